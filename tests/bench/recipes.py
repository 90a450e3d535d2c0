"""Recipes that a worker process can import."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from pipeliner.measuring import Recipe


@dataclass(frozen=True)
class Fatal(Recipe):
    """Ends the process that compiles it."""

    def kernel(self) -> Any:
        """No return from here."""
        os._exit(3)


@dataclass(frozen=True)
class Refused(Recipe):
    """Fails as TVM does: many lines, and an exception that cannot be sent."""

    def kernel(self) -> Any:
        """The last line is the message."""

        class Local(Exception):
            pass

        raise Local("Traceback\nof many lines\nnvcc said no")
