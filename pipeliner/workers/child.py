"""What runs in a worker's process: one object, called for each request that comes."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any, Final

from ..values.failure import why

WHOLE_GROUP: Final = 0


def main(descriptor: int) -> None:
    """Answer requests that come through the socket ``descriptor`` until its other end is closed."""
    os.set_inheritable(descriptor, False)  # by what a request starts
    parent = Connection(descriptor)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(parent, requests), daemon=True).start()
    make = requests.get()
    target: Any = None
    with contextlib.suppress(Exception):  # the first request tries again, and is told why not
        target = pickle.loads(make)()
    while True:
        arguments = requests.get()
        try:
            target = pickle.loads(make)() if target is None else target
            answer = pickle.dumps(("", target(*pickle.loads(arguments))))
        except Exception as err:  # whatever a compiler or a driver raises is this request's result
            answer = pickle.dumps((why(err), None))
        parent.send_bytes(answer)


def _receive(parent: Connection, requests: queue.SimpleQueue[bytes]) -> None:
    """Take requests in; when the parent is gone, end at once, whatever hangs in the main thread."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            requests.put(parent.recv_bytes())
    os.killpg(WHOLE_GROUP, signal.SIGKILL)  # what was started here ends too
