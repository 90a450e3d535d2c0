"""What runs in a worker's process: one object, called for each request that comes."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
from typing import Any, BinaryIO

from .worker import framed


def main() -> None:
    """Answer requests until there are no more; what is printed goes to the error output."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    target: Any = None
    make = requests.get()
    with contextlib.suppress(Exception):  # the first request tries again, and is told why not
        target = make()
    while True:
        arguments = requests.get()
        try:
            target = make() if target is None else target
            answer = ("", target(*arguments))
        except Exception as err:  # whatever a compiler or a driver raises is this request's result
            from ..bench.results import reason  # only now: it brings TVM

            answer = (reason(err), None)
        answers.write(framed(answer))
        answers.flush()


def _read(pipe: BinaryIO, requests: queue.Queue[Any]) -> None:
    """Take requests in; when the parent is gone, end at once, whatever hangs in the main thread."""
    while True:
        try:
            requests.put(pickle.load(pipe))
        except Exception:
            os._exit(1)
