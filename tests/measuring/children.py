"""What a timer's process may have in it instead of the real thing; a process can import it."""

from __future__ import annotations

import os
import time


class Hangs:
    def __call__(self, question: object) -> None:
        time.sleep(60)


class Dies:
    def __call__(self, question: object) -> None:
        os._exit(3)


class FailsOnceAskedTwice:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, question: object) -> int:
        self.asked += 1
        if self.asked == 2:
            raise RuntimeError("the GPU is lost")
        return os.getpid()
