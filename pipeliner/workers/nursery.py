"""The process that workers are forked from, so that what they all import is loaded once.

It imports, and does nothing else: it has no thread and no driver's context when it forks, so a fork
of it is as good as a program of its own. Loading TVM takes a second or two, five where files are
slow to open, and a tuner has a worker for each core.

PyTorch is kept out. tvm-ffi imports it where there is one and has it count the GPUs, and what is
forked from a process that did may never use one: cudaErrorInitializationError. What measures comes
from a nursery that was told to import nothing, and imports all by itself.

A message is the name of a module, or nothing, behind a colon. With it may come four descriptors:
then a child is forked, which reads requests from the first, writes answers to the second and prints
to the fourth. The third, a socket, stands for the child's life: its exit status is sent there, and
when the other end shuts down, the child and all that it started are killed. They are as well when
the process that began all this is gone.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from types import ModuleType
from typing import Final, cast

from .child import serve

DESCRIPTORS: Final = 4

_LONGEST: Final = 4096
"""Bytes of a message: the name of a module."""


def main(control: int) -> None:
    """Fork a child for each message on the socket ``control``, until that is closed."""
    _Nursery(socket.socket(fileno=control)).run()


class _Nursery:
    """``children``: by the socket that stands for each. ``closing``: those of no more use.

    A child that has ended stays a zombie until it is of no more use: until then its number is its
    own, and whoever kills it kills nobody else.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[socket.socket, int] = {}
        self._closing: set[socket.socket] = set()
        self._told: set[socket.socket] = set()
        self._ended, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._ended, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the other end of ``control`` is closed; nothing is left running then."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    message, given, *_ = socket.recv_fds(self._control, _LONGEST, DESCRIPTORS)
                    if not message:
                        for pid in self._children.values():
                            _kill(pid)
                        return
                    _load(message.decode().removeprefix(":"))
                    if given:
                        self._fork(*given)
                elif isinstance(key.fileobj, socket.socket):
                    self._let_go(key.fileobj)
                else:
                    os.read(self._ended, _LONGEST)
                    self._look()

    def _fork(self, requests: int, answers: int, life: int, errors: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._be_born(life)
            serve(requests, answers, errors)
        for descriptor in (requests, answers, errors):
            os.close(descriptor)
        theirs = socket.socket(fileno=life)
        self._children[theirs] = pid
        self._selector.register(theirs, selectors.EVENT_READ)

    def _be_born(self, life: int) -> None:
        """In a child: let go of what is the nursery's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()  # ^C is for the first process alone; what a child started dies with it
        self._selector.close()
        for one in (self._control, *self._children):
            one.close()
        for descriptor in (life, self._ended, self._wake):
            os.close(descriptor)

    def _let_go(self, life: socket.socket) -> None:
        """Kill the child: it is of no more use."""
        self._selector.unregister(life)
        self._closing.add(life)
        _kill(self._children[life])
        self._look()

    def _look(self) -> None:
        """Tell how each child that is no more has ended, and forget those of no more use."""
        for life, pid in list(self._children.items()):
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                continue
            if life not in self._told:
                self._told.add(life)
                exited = found.si_code == os.CLD_EXITED
                with contextlib.suppress(OSError):
                    life.send(str(found.si_status if exited else -found.si_status).encode())
            if life in self._closing:
                os.waitpid(pid, 0)
                life.close()
                del self._children[life]
                self._closing.discard(life)
                self._told.discard(life)


def _load(module: str) -> None:
    """Import what children need; one that cannot be is the children's to report."""
    if not module:
        return
    sys.modules.setdefault("torch", cast("ModuleType", None))  # to import it is an ImportError
    with contextlib.suppress(Exception):
        importlib.import_module(module)
    gc.freeze()  # a collection in a child would write to what all children share


def _kill(pid: int) -> None:
    """Kill a child with what it started, or itself alone while it has not begun."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
