"""Candidates of a log beside what the model makes of them, on the machine that was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..bench.suites import NAMES, suite
from ..choice.built import AsBuilt, read_loop
from ..choice.depth import DepthChoice, choose_depth
from ..choice.mapped import LoopWork, map_kernel
from ..cost.occupancy import occupancy
from ..errors import PipelinerError, WorkloadError
from ..machine import Machine
from ..plan import KernelPlan
from ..schedules.choice import tiles_of
from ..schedules.closed_form import kernel_info, typical
from ..schedules.workloads import Spec
from ..space.ranking import choose
from .candidates import LogCandidate
from .entries import Entry, by_workload


@dataclass(frozen=True, slots=True)
class Case:
    """One candidate that was timed: what it is of, its plan, and its loop as numbers.

    ``extents``: M, N and K of the matmul that its tile cuts. ``tiles``: of all outputs.
    ``own_depth``: what the library gives it where no depth is asked for.
    """

    entry: Entry
    spec: Spec
    machine: Machine
    plan: KernelPlan
    loop: LoopWork
    extents: tuple[int, int, int]
    tiles: int
    own_depth: int

    @property
    def built(self) -> AsBuilt | None:
        """What ptxas made of it; None where roles set their own registers, or that is not known."""
        if self.plan.roles or not self.entry.registers:
            return None
        loop = self.loop.loop
        return read_loop(self.entry.registers, self.entry.loop, loop, self.plan.matmuls)

    @property
    def candidate(self) -> LogCandidate:
        """Its name."""
        return self.entry.candidate

    @property
    def family(self) -> LogCandidate:
        """Its name but for the depth."""
        return self.entry.candidate.family

    @property
    def warps(self) -> int:
        """That multiply."""
        return self.plan.matmuls[0].warps[0] * self.plan.matmuls[0].warps[1]

    @property
    def resident(self) -> int:
        """CTAs that an SM holds at once, at least one."""
        work, depth = self.loop.work, self.candidate.depth
        registers, smem = work.registers_at(depth), work.smem(depth)
        fit = occupancy(self.machine, work.threads.count, registers, smem)
        return max(1, fit.ctas)


def cases(entries: Iterable[Entry], machine: Machine) -> Mapping[tuple[str, str], list[Case]]:
    """What was timed of each workload of a suite; WorkloadError for one that no suite has."""
    found: dict[tuple[str, str], list[Case]] = {}
    for group, timed in by_workload(entries).items():
        spec = _spec(*group)
        own = _own_depths(timed, spec, machine)
        found[group] = [_case(entry, spec, machine, own[entry.candidate.family]) for entry in timed]
    return found


def by_family(found: Sequence[Case]) -> Mapping[LogCandidate, list[Case]]:
    """Cases that differ in depth alone."""
    families: dict[LogCandidate, list[Case]] = defaultdict(list)
    for case in found:
        families[case.family].append(case)
    return families


def _spec(label: str, dtype: str) -> Spec:
    for name in NAMES:
        specs = suite(name, dtype)
        if label in specs:
            return specs[label]
    raise WorkloadError("log.workload", suites=NAMES, value=label)


def _case(entry: Entry, spec: Spec, machine: Machine, own_depth: int) -> Case:
    one = entry.candidate
    tile, what = one.tile(spec, machine), one.contraction(spec, machine)
    info = kernel_info(spec, tile)
    return Case(
        entry=entry,
        spec=spec,
        machine=machine,
        plan=one.plan(spec, machine),
        loop=map_kernel(info, machine, one.request).loops[0],
        extents=typical(what),
        tiles=tiles_of(what, tile),
        own_depth=own_depth,
    )


def _own_depths(timed: Sequence[Entry], spec: Spec, machine: Machine) -> dict[LogCandidate, int]:
    """The depth that the library gives each family by itself."""
    families = dict.fromkeys(entry.candidate.family for entry in timed)
    return {family: _own_depth(family, spec, machine) for family in families}


def _own_depth(family: LogCandidate, spec: Spec, machine: Machine) -> int:
    """1 where the library leaves the loop alone.

    Where it gives each ring its own depth, which no candidate does, the best of one for all.
    """
    request = replace(family.request, depth="auto")
    info = kernel_info(spec, family.tile(spec, machine))
    try:
        plan = choose(info, machine, request)
    except PipelinerError:  # not even one slot fits, by the model
        return 1
    depths = {ring.depth for loop in plan.loops for ring in loop.rings}
    if len(depths) < 2:
        return max(depths, default=1)
    common = choose_depth(map_kernel(info, machine, request).loops[0].depths)
    return common.depth if isinstance(common, DepthChoice) else max(depths)
