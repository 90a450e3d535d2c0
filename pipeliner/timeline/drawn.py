"""The timeline of a loop as a value: a line in a session, a drawing in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

from .model import Runs
from .svg import svg


@dataclass(frozen=True, repr=False)
class Timeline(Runs):
    """A loop of a kernel in model time, pipelined and un-pipelined. ``trip``: as in the plan."""

    def __repr__(self) -> str:
        """One line; ``str`` has every event."""
        return (
            f"Timeline({self.kernel!r}: {self.iterations} of {self.trip} iterations of loop "
            f"{self.loop} on {self.machine}, {self.speedup:.2f} times as fast as un-pipelined)"
        )

    def __str__(self) -> str:
        return Runs.__repr__(self)

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return svg(self)
