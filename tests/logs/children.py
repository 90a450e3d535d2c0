"""What a timer's process may run instead of the real thing; a process can import it."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

from pipeliner.errors import ToolError


def hangs(line: Connection) -> None:
    line.recv()
    time.sleep(60)


def dies(line: Connection) -> None:
    line.recv()
    os._exit(3)


def fails_once_asked_twice(line: Connection) -> None:
    line.recv()
    line.send(os.getpid())
    line.recv()
    line.send(ToolError("the GPU is lost"))
