"""A kernel to run: what it is compiled to, how it is launched, which of its loops are open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from ...diagnostics import Why
from ...emulator.launch.host import Launch
from ...emulator.memory.grid import Block
from ...emulator.translate.compiler import CompiledKernel
from ...emulator.translate.source import Code, Entry
from ...emulator.units.fragments import WARP
from ...emulator.units.wgmma import WARPGROUP
from ..reading.deciding import Deciding
from ..reading.entering import ThreadMask
from ..reading.loops import Family
from .slicing import sliced


class Reading(Enum):
    """How the text of a kernel is read that may have been made for one trip count."""

    AS_WRITTEN = 0
    BY_ENDS = 1
    """Constants near the ends of loops are so far from these."""
    BY_COUNTS = 2
    """Also, the trip count of a loop is what is skipped at once."""


@dataclass
class Launched:
    """One kernel to run: what it is compiled to, how it is launched, which loops are open."""

    kernel: CompiledKernel
    launch: Launch
    deciding: Deciding
    families: tuple[Family, ...]
    blocks: tuple[tuple[Block, Block], ...]  # place in the cluster and blockIdx of each CTA
    threads: int
    dims: Block
    dynamic: int
    uneven: Why = ""  # why CTAs may come to different barriers of the grid
    inside: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # loops around statements
    entering: Mapping[int, ThreadMask] = field(default_factory=dict)  # by loop, who may come to it
    is_short: bool = False
    unbounded: Why = ""  # why it can not stand for other values of what is left open
    repeats: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # after, every, of these
    parameters: tuple[Any, ...] = ()  # variables of these
    reading: Reading = Reading.AS_WRITTEN
    source: Any = None  # the device function
    func: Any = None  # and as it is run, with trip counts asked for
    given: Mapping[Any, int] = field(default_factory=dict)  # arguments, and where the first CTA is

    @property
    def is_other(self) -> bool:
        """Whether its text is read for other trip counts than it was made for."""
        return self.reading != Reading.AS_WRITTEN

    @property
    def near(self) -> tuple[Family, ...]:
        """Loops that grow, and may make fewer iterations than walks leave open."""
        return tuple(one for one in self.families if one.grows and one.fewest < one.far)

    @property
    def entry(self) -> Entry:
        """What its thread groups run: of the short form, what a proof needs alone."""
        if not self.is_short:
            return self.kernel.code.in_step
        deciding = frozenset(self.deciding.buffers)
        return _sliced(self.kernel.code, deciding, bool(self.launch.dependent))

    @property
    def together(self) -> int:
        """Threads of a group: of the short form, a warpgroup where warps are groups else."""
        if not self.kernel.by_warp:
            return self.threads
        return WARPGROUP if self.is_short and self.threads % WARPGROUP == 0 else WARP

    def short(self, families: tuple[Family, ...]) -> Launched:
        """Return the short form, with some of the loops open.

        It runs less code and goes fewer ways: what is wrong with it may be of that form alone.
        """
        return replace(self.opened(families), is_short=True)

    def of_kind(self, trips: Mapping[frozenset[int], tuple[int, int]]) -> Launched:
        """Return it with the fewest and the most iterations that CTAs like the first make."""
        families = (
            replace(one, fewest=trips[one.numbers][0], most=trips[one.numbers][1])
            if one.numbers in trips
            else one
            for one in self.families
        )
        return replace(self, families=tuple(families))

    def opened(self, families: tuple[Family, ...]) -> Launched:
        """Return it with some of the loops open, launched with trip counts that are like theirs."""
        counts = {family.count: family.launched for family in families if family.count is not None}
        args = (
            counts.get(param, arg)
            for param, arg in zip(self.func.params, self.launch.args, strict=True)
        )
        return replace(self, families=families, launch=replace(self.launch, args=tuple(args)))


@lru_cache(maxsize=16)
def _sliced(code: Code, deciding: frozenset[str], dependent: bool) -> Entry:
    return sliced(code, deciding, dependent=dependent)
