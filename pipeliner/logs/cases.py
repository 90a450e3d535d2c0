"""Candidates of a log beside what the model makes of them, on the machine that was measured."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..choice.built import AsBuilt, read_loop
from ..choice.depth import DepthChoice, choose_depth
from ..choice.mapped import LoopWork, map_kernel
from ..cost.occupancy import occupancy
from ..errors import PipelinerError, WorkloadError
from ..machine import Machine, machine_for, read_machine
from ..plan import KernelPlan
from ..records import OURS, Record
from ..records.candidate import Candidate, workload_of
from ..records.functions import is_function
from ..records.log import AGAIN, find_log, group_of, loop_of, read_any
from ..schedules import GemmTile
from ..schedules.closed_form import kernel_info, typical
from ..schedules.tile_space import contraction_of, tiles_of
from ..schedules.workloads import Spec
from ..space.ranking import choose
from ..targets import accelerated, cuda_target


@dataclass(frozen=True, slots=True)
class Case:
    """One candidate that was timed: what it is of, its plan, and its loop as numbers.

    ``us``: interleaved with all candidates of the workload; ``again``: with the fastest, in fresh
    rounds; 0: it was not. ``extents``: M, N and K of the matmul that its tile cuts. ``tiles``: of
    all outputs. ``own_depth``: what the library gives it where no depth is asked for.
    """

    record: Record
    again: float
    candidate: Candidate
    spec: Spec
    machine: Machine
    plan: KernelPlan
    loop: LoopWork
    extents: tuple[int, int, int]
    tiles: int
    own_depth: int

    @property
    def us(self) -> float:
        """In the rounds that all candidates of the workload took."""
        return self.record.us

    @property
    def best_us(self) -> float:
        """The fresh time where there is one."""
        return self.again or self.us

    @property
    def tile(self) -> GemmTile:
        """Its tile."""
        assert isinstance(self.candidate.tile, GemmTile)
        return self.candidate.tile

    @property
    def depth(self) -> int:
        """Slots of its rings."""
        depth = self.candidate.request.depth
        return depth if isinstance(depth, int) else _deepest(self.plan)

    @property
    def built(self) -> AsBuilt | None:
        """What ptxas made of it; None where roles set their own registers, or that is not known."""
        registers = self.record.resources.get("registers", 0)
        if self.plan.roles or not registers:
            return None
        return read_loop(registers, loop_of(self.record), self.loop.loop, self.plan.matmuls)

    @property
    def family(self) -> Candidate:
        """It, but for the depth."""
        return self.candidate.family

    @property
    def warps(self) -> int:
        """That multiply."""
        return self.plan.matmuls[0].warps[0] * self.plan.matmuls[0].warps[1]

    @property
    def resident(self) -> int:
        """CTAs that an SM holds at once, at least one."""
        work, depth = self.loop.work, self.depth
        registers, smem = work.registers_at(depth), work.smem(depth)
        fit = occupancy(self.machine, work.threads.count, registers, smem)
        return max(1, fit.ctas)


def cases(records: Iterable[Record], machine: Machine) -> Mapping[tuple[str, str], list[Case]]:
    """What was timed of each workload, by its name and type: our kernels with a matmul's tile."""
    found: dict[tuple[str, str], list[Case]] = {}
    ours = [one for one in records if not is_function(one.workload)]
    for key, timed in by_workload(ours).items():
        spec = workload_of(key)
        made = [_case(record, again, spec, machine) for record, again in timed]
        own = {one.family: one for one in made if one is not None}
        depths = {family: own_depth(family, spec, machine) for family in own}
        kept = [replace(one, own_depth=depths[one.family]) for one in made if one is not None]
        if kept:
            found[group_of(spec)] = kept
    return found


def cases_of(
    file: str | None, target: str, machine_file: str | None = None
) -> tuple[list[Record], Machine, Mapping[tuple[str, str], list[Case]]]:
    """The records of a log (default: the shipped one of ``target``), its machine and its cases.

    ``machine_file``: of the machine to predict by. WorkloadError: no log, or no time in it.
    """
    machine = machine_for(accelerated(cuda_target(target)))
    records = read_any(find_log(file, target), machine)
    machine = read_machine(Path(machine_file)).machine if machine_file else machine
    timed = cases(records, machine)
    if not timed:
        raise WorkloadError("command.log_without_time", log=file or target)
    return records, machine, timed


def by_workload(records: Iterable[Record]) -> Mapping[str, list[tuple[Record, float]]]:
    """Our records with a time, of each candidate the last; and its fresh time, or 0."""
    timed: dict[str, dict[str, Record]] = defaultdict(dict)
    again: dict[tuple[str, str], float] = {}
    for record in records:
        if record.failure or record.contender != OURS:
            continue
        if record.label == AGAIN:
            again[record.workload, record.candidate] = record.us
        else:
            timed[record.workload][record.candidate] = record
            again.pop((record.workload, record.candidate), None)
    return {
        key: [(one, again.get((key, name), 0.0)) for name, one in found.items()]
        for key, found in timed.items()
    }


def noise(records: Iterable[Record]) -> float:
    """The median relative difference between the two times of those that have two."""
    found = [one for group in by_workload(records).values() for one in group]
    twice = [abs(again / record.us - 1) for record, again in found if again]
    return statistics.median(twice) if twice else 0.0


def by_family(found: Sequence[Case]) -> Mapping[Candidate, list[Case]]:
    """Cases that differ in depth alone."""
    families: dict[Candidate, list[Case]] = defaultdict(list)
    for case in found:
        families[case.family].append(case)
    return families


def _case(record: Record, again: float, spec: Spec, machine: Machine) -> Case | None:
    """None: its tile is none of a matmul's, or its plan has no loop of one."""
    one = Candidate.from_json(record.candidate)
    if not isinstance(one.tile, GemmTile):
        return None
    what, info = contraction_of(spec, one.tile), kernel_info(spec, one.tile)
    plan, loops = choose(info, machine, one.request), map_kernel(info, machine, one.request).loops
    if not plan.matmuls or not loops:
        return None
    tiles = tiles_of(what, one.tile)
    return Case(record, again, one, spec, machine, plan, loops[0], typical(what), tiles, 0)


def own_depth(family: Candidate, spec: Spec, machine: Machine) -> int:
    """1 where the library leaves the loop alone.

    Where it gives each ring its own depth, which no candidate does, the best of one for all.
    """
    assert isinstance(family.tile, GemmTile)
    request = replace(family.request, depth="auto")
    info = kernel_info(spec, family.tile)
    try:
        plan = choose(info, machine, request)
    except PipelinerError:  # not even one slot fits, by the model
        return 1
    depths = {ring.depth for loop in plan.loops for ring in loop.rings}
    if len(depths) < 2:
        return max(depths, default=1)
    common = choose_depth(map_kernel(info, machine, request).loops[0].depths)
    return common.depth if isinstance(common, DepthChoice) else max(depths)


def _deepest(plan: KernelPlan) -> int:
    return max((ring.depth for loop in plan.loops for ring in loop.rings), default=1)
