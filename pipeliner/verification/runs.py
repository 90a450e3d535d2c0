"""The runs of a verification: each has its own timing of copies and its own order of warps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..diagnostics import Why
from ..emulator import Emulation, Hazard
from ..emulator.engine.scheduler import LOCKSTEP
from ..errors import WorkloadError
from .accessed import Block
from .arrays import Array
from .compared import Compared
from .sampling import Sample, in_turn
from .subjects import Subject

Outputs: TypeAlias = "Mapping[str, Array]"
"""Arrays by the name of their parameter."""

OnProgress: TypeAlias = "Callable[[str, int, int], None]"
"""Told what runs, how many CTAs of it have, and how many will."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution: when copies landed, how warps were interleaved, and what came of it.

    ``in_step``: by the name of a kernel, CTAs whose warps went in lock step whatever ``order`` is.
    """

    timing: str
    order: str
    worst: float
    hazards: tuple[Hazard, ...]
    seconds: float
    notes: tuple[Why, ...] = ()
    in_step: Mapping[str, tuple[Block, ...]] = field(default_factory=dict, hash=False)

    @property
    def ok(self) -> bool:
        """Whether every element is right and nothing was objected to."""
        return self.worst <= 1 and not self.hazards


class AdversarialRuns:
    """Runs a subject on the chosen CTAs."""

    def __init__(
        self,
        subject: Subject,
        arrays: Mapping[str, Any],
        chosen: Sample,
        seed: int,
        progress: OnProgress | None,
    ) -> None:
        self.subject = subject
        self.arrays = arrays
        self._chosen = chosen
        self._seed = seed
        self._progress = progress

    def run(
        self, modes: Sequence[tuple[str, str]], judge: Callable[[Emulation], Compared]
    ) -> tuple[tuple[Run, ...], Outputs]:
        """Return every run, and the outputs of the first; WorkloadError: there is no such CTA."""
        runs: list[Run] = []
        first: Outputs = {}
        names = self.subject.kernels
        turns = [mode for mode in modes if mode[1] != LOCKSTEP]
        for number, (timing, order) in enumerate(modes, 1):
            begun = time.perf_counter()
            calm: Mapping[int, tuple[Block, ...]] = {}
            if order != LOCKSTEP:
                turn = sum(mode[1] != LOCKSTEP for mode in modes[: number - 1])
                calm = in_turn(self._chosen, turn, len(turns), self.subject.cluster)
            outcome = self.once(
                self.subject.emulate,
                f"run {number} of {len(modes)}, copies {timing}, warps {order}",
                timing=timing,
                order=order,
                in_step=calm,
            )
            self._check_asked(outcome)
            first = first or outcome.outputs
            found = judge(outcome)
            seconds = time.perf_counter() - begun
            quiet = {names[at]: blocks for at, blocks in calm.items() if blocks}
            runs.append(
                Run(timing, order, found.worst, outcome.hazards, seconds, found.notes, quiet)
            )
        return tuple(runs), first

    def once(
        self,
        run: Callable[..., Emulation],
        what: str,
        arrays: Sequence[Any] | None = None,
        **options: Any,
    ) -> Emulation:
        """Run anything on the chosen CTAs."""
        told = self._progress
        if told is not None:
            options["progress"] = lambda done, total: told(what, done, total)
        values = list(self.arrays.values()) if arrays is None else arrays
        return run(*values, blocks=self._chosen.blocks, seed=self._seed, **options)

    def _check_asked(self, outcome: Emulation) -> None:
        for number, blocks in self._chosen.asked.items():
            ran = self.ran(outcome)[number]
            missing = [block for block in blocks if block not in ran]
            if missing:
                raise WorkloadError("verification.no_cta", block=tuple(missing[0]))

    def ran(self, outcome: Emulation) -> list[set[Block]]:
        """The CTAs of each kernel that a run has run."""
        found: dict[str, set[Block]] = {name: set() for name in self.subject.kernels}
        for stats in outcome.stats:
            found[stats.kernel].add(stats.block)
        return list(found.values())
