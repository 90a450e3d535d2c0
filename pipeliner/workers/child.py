"""What runs in a worker's process: one object, called for each request that comes."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NoReturn

from ..reason import reason

LENGTH: Final = 8
"""Bytes before an answer that say how long it is."""


@dataclass(frozen=True, slots=True)
class Birth:
    """The first request: the process that a child is to stand for, and its object.

    ``make``: pickled; what it is made of may be found along ``path`` alone.
    """

    environment: dict[str, str]
    path: list[str]
    folder: str
    make: bytes


def serve(requests: int, answers: int, errors: int) -> NoReturn:
    """Answer requests until there are no more; what is printed goes to ``errors``."""
    try:
        for usual in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(errors, usual)
        os.close(errors)
        _serve(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # not the exit of the process that this one was forked from


def framed(value: Any) -> bytes:
    """``value`` as a child answers it."""
    data = pickle.dumps(value)
    return len(data).to_bytes(LENGTH, "big") + data


def _serve(pipe: BinaryIO, answers: BinaryIO) -> NoReturn:
    make = _born(pickle.load(pipe))
    requests: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_read, args=(pipe, requests), daemon=True).start()
    target: Any = None
    with contextlib.suppress(Exception):  # the first request tries again, and is told why not
        target = pickle.loads(make)()
    while True:
        arguments = requests.get()
        try:
            target = pickle.loads(make)() if target is None else target
            answer = ("", target(*pickle.loads(arguments)))
        except Exception as err:  # whatever a compiler or a driver raises is this request's result
            answer = (reason(err), None)
        answers.write(framed(answer))
        answers.flush()


def _born(birth: Birth) -> bytes:
    """Be in the place of the process that asked for this one; what makes the object."""
    os.environ.clear()
    os.environ.update(birth.environment)
    sys.path[:] = birth.path
    os.chdir(birth.folder)
    return birth.make


def _read(pipe: BinaryIO, requests: queue.Queue[Any]) -> None:
    """Take requests in; when the parent is gone, end at once, whatever hangs in the main thread."""
    while True:
        try:
            requests.put(pickle.load(pipe))
        except Exception:
            os._exit(1)
