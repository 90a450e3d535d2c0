"""Objects that workers make: what compiling and measuring may do to a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


class Does:
    """Whatever it is told."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, what: str, argument: object = None) -> object:
        self.calls += 1
        if what == "hang":
            time.sleep(1000)
        if what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "exit":
            os._exit(3)
        if what == "raise":
            raise ValueError("many\nlines, the last of which counts")
        if what == "print":
            print("talk on stdout", flush=True)
            os.write(1, b"and below Python\n")
        if what == "child":
            return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid
        if what == "no answer":
            return (one for one in ())
        if what == "environment":
            return os.environ.get(str(argument))
        return argument, self.calls, os.getpid()


def cannot_be_made() -> None:
    raise RuntimeError("no driver here")
