"""How others pick a tile and a number of stages, as rules over the same candidates.

A rule is stated as its project states it; none of them is fitted here. Where a rule names depths
that were not measured, the nearest measured one stands for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..choice.built import as_built, best_built, worth_building
from ..cost.predict import Prediction, predict
from ..cost.usage import of_arithmetic, of_fragments
from ..instructions.dtypes import element_bytes
from ..instructions.table import multiplied_by, rate_of
from ..schedules.tile_space import contraction_of
from ..values.facts import MatmulInfo
from .cases import Case

Depths = tuple[int, ...]

TRITON_LATENCY: Final = 300
"""Cycles of a load in Triton's ``early_config_prune`` (triton/ops/matmul_perf_model.py)."""

DEEP_GEMM_L2_RATE: Final = 8e6 / 1.3e3
"""Bytes a cycle of the whole GPU in DeepGEMM's sm90 heuristics, or 64 an SM."""

TRITON_REREADS_IN_L2: Final = 0.8
"""Of what several CTAs read, in Triton's ``estimate_matmul_time``."""

ALCOP_REGISTER_STAGES: Final = 2
"""Of fragments: what every kernel here has."""

_PARTITIONS: Final = 4
"""Of an SM, each with a scheduler and a tensor core."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its ``name``.

    ``depths``: of the measured depths of one family, ascending, those that the rule would take, one
    as good as another. ``cost``: what it ranks candidates by, least first; None: it leaves the tile
    to others. ``ranks_depths``: whether that ranks depths. ``applies``: to which candidates.
    """

    name: str
    depths: Callable[[Sequence[Case]], Depths]
    cost: Callable[[Case], float] | None = None
    ranks_depths: bool = False
    applies: Callable[[Case], bool] = lambda case: True


def _own_depths(family: Sequence[Case]) -> Depths:
    """What the library takes by itself."""
    return (_nearest(family, family[0].own_depth),)


def _built_depths(family: Sequence[Case]) -> Depths:
    """What the library takes once those that it considers are compiled, and none is measured."""
    if not _compiled(family):
        return _own_depths(family)
    close = worth_building(_estimates(family))
    depths = {option.depth for option in close}
    built = [_corrected(case) for case in family if case.depth in depths]
    best = best_built(close, (option for option in built if option is not None))
    return _own_depths(family) if best is None else (best.depth,)


def _compiled(family: Sequence[Case]) -> bool:
    """Whether what ptxas made of every depth is known, and says anything."""
    return len(family) > 1 and all(case.built is not None for case in family)


def _estimates(family: Sequence[Case]) -> list[Prediction]:
    found = (predict(case.loop.work, case.machine, case.depth) for case in family)
    return [option for option in found if option is not None]


def _corrected(case: Case) -> Prediction | None:
    """What is predicted of a kernel that is compiled; None: it takes more than an SM has."""
    if case.built is None:
        return predict(case.loop.work, case.machine, case.depth)
    work = as_built(case.loop.work, case.built, case.machine)
    return predict(work, case.machine, case.depth)


def _deepest(family: Sequence[Case]) -> Depths:
    """CUTLASS, StageCountAutoCarveout: as many stages as fit shared memory; DeepGEMM: up to 16."""
    return (max(case.depth for case in family),)


def _four_or_five(family: Sequence[Case]) -> Depths:
    """TVM, MetaSchedule's tensor core rule: 4 or 5 stages, drawn evenly."""
    return tuple(dict.fromkeys(_nearest(family, wanted) for wanted in (4, 5)))


def _triton_stages(family: Sequence[Case]) -> Depths:
    """Triton: of the two numbers nearest to a load's latency over a step's arithmetic, the larger.

    ``mma_cycles = BM * BN * BK / (16 * 8 * 16) / min(4, warps) * 8``.
    """
    one = family[0].tile
    cycles = one.m * one.n * one.k / (16 * 8 * 16) / min(_PARTITIONS, family[0].warps) * 8
    wanted = TRITON_LATENCY / cycles
    two = sorted({case.depth for case in family}, key=lambda depth: abs(depth - wanted))
    return (max(two[:2]),)


def _least_alcop(family: Sequence[Case]) -> Depths:
    return (min(family, key=lambda case: (alcop(case), case.depth)).depth,)


def _nearest(family: Sequence[Case], wanted: int) -> int:
    depths = [case.depth for case in family]
    return min(depths, key=lambda depth: (abs(depth - wanted), -depth))


def triton(case: Case) -> float:
    """Triton's ``estimate_matmul_time`` in microseconds: the longer of compute and load, and store.

    Four fifths of what CTAs read again come from L2, at four times the rate of memory.
    """
    machine, one = case.machine, case.tile
    m, n, k = case.extents
    size = element_bytes(case.spec.dtype)
    rows, columns = math.ceil(m / one.m), math.ceil(n / one.n)
    ctas = case.tiles * one.splits
    warps = _PARTITIONS * machine.sms
    busy = min(warps, ctas * min(case.warps, _PARTITIONS)) / warps
    compute = 2 * m * n * k * _batch(case) / (_operations(case) * machine.sms * busy)
    again_a, again_b = columns - 1, rows - 1
    from_memory = m * k * (1 + (1 - TRITON_REREADS_IN_L2) * again_a) + n * k * (
        1 + (1 - TRITON_REREADS_IN_L2) * again_b
    )
    from_l2 = TRITON_REREADS_IN_L2 * (m * k * again_a + n * k * again_b)
    some, most = min(1.0, ctas / 32), max(min(1.0, (ctas - 32) / (108 - 32)), 0.0)
    rate = machine.dram_bytes_per_second / (machine.clock_ghz * 1e9)
    loading = from_memory * size / (rate * (0.95 * some + 0.05 * most)) + from_l2 * size / (
        4 * rate
    )
    storing = m * n * size * one.splits / (0.6 * rate)
    return machine.cycles_to_us(max(compute, loading * _batch(case)) + storing * _batch(case))


def deep_gemm(case: Case) -> float:
    """DeepGEMM's cost of a tile on sm_90, in cycles: the busier of L1 and L2 over the share of SMs.

    Its ``get_best_configs`` without clusters; an accumulated result is one of ``splits``.
    """
    machine, one = case.machine, case.tile
    size = element_bytes(case.spec.dtype)
    _, _, k = case.extents
    k = math.ceil(k / one.splits)
    blocks = case.tiles * one.splits
    moved = k * (one.m + one.n) * size
    result = one.m * one.n * size
    read = k * (max(64, one.m) + one.n) * size + result
    l2 = (moved + result) * blocks / min(64 * machine.sms, DEEP_GEMM_L2_RATE)
    l1 = (moved + read + result) * blocks / (machine.smem_bytes_per_cycle * machine.sms)
    return max(l1, l2) / (blocks / (math.ceil(blocks / machine.sms) * machine.sms))


def alcop(case: Case) -> float:
    """ALCOP's two-level model as reconstructed, in cycles: fragments' pipeline in that of tiles."""
    machine, work, resident = case.machine, case.loop.work, case.resident
    depth, trip = case.depth, work.grid.trip or 1
    ctas = work.grid.ctas or 1
    used, first = _tile_use(case)
    from_memory = work.traffic.read_bytes / (ctas * trip) / machine.dram_bytes_per_cycle
    from_l2 = work.usage.global_bytes / machine.l2_bytes_per_cycle
    load = machine.global_latency + resident * max(from_memory, from_l2)
    steps = trip / work.grid.tiles
    stored = resident * work.stores.tile_bytes / machine.dram_bytes_per_cycle
    tile = load + first + _pipe(load, used, steps, depth, resident) + stored
    return work.grid.tiles * tile * math.ceil(ctas / (resident * machine.sms))


def _tile_use(case: Case) -> tuple[float, float]:
    """Cycles in which all CTAs of an SM use a tile each, and to fill the first fragments."""
    machine, resident = case.machine, case.resident
    info = next(op for op in case.loop.loop.ops if isinstance(op, MatmulInfo))
    plan = case.plan.matmuls[0]
    usage = of_arithmetic(info, plan, machine)
    arithmetic = resident * usage.compute
    if multiplied_by(plan).operands == "descriptor":  # it has no fragments
        return arithmetic, 0.0
    read = sum(of_fragments(info, plan, machine, side).lsu for side in "ab") / plan.steps
    load = machine.shared_latency + resident * read
    schedulers = max(1, resident * case.warps // _PARTITIONS)
    use = arithmetic / plan.steps
    return _pipe(load, use, plan.steps, ALCOP_REGISTER_STAGES, schedulers), load


def _pipe(load: float, use: float, loops: float, stages: int, multiplexed: int) -> float:
    """Cycles of a loop whose loads are ``stages`` deep, ``multiplexed`` such loops interleaved."""
    if load <= (stages * multiplexed - 1) * use:
        return use * loops
    return (load + use) * loops / (stages * multiplexed)


def _operations(case: Case) -> float:
    """Multiplications and additions of an SM in a cycle by the instruction of ``case``."""
    plan = case.plan.matmuls[0]
    rate = rate_of(plan, case.machine)
    if rate is None:
        return 2 * case.machine.fp32_per_cycle
    return rate.ops_per_cycle


def _batch(case: Case) -> int:
    """Matmuls that the workload is cut into, as images of a batch."""
    what = contraction_of(case.spec, case.tile)
    return math.prod(extent or 1 for _, extent in what.batch_axes)


def _predicted_as_built(case: Case) -> float:
    """The time of the plan, its loop's corrected."""
    estimate, found = predict(case.loop.work, case.machine, case.depth), _corrected(case)
    if estimate is None or found is None:
        return case.plan.predicted_us
    return case.plan.predicted_us * found.us / estimate.us


OURS: Final = Rule("pipeliner", _own_depths, lambda case: case.plan.predicted_us, ranks_depths=True)

AS_BUILT: Final = Rule(
    "pipeliner, once compiled", _built_depths, _predicted_as_built, ranks_depths=True
)
"""By the same model, corrected by what ptxas made of each candidate."""

RULES: Final = (
    OURS,
    AS_BUILT,
    Rule("CUTLASS: fill shared memory", _deepest),
    Rule("TVM: 4 or 5", _four_or_five),
    Rule("Triton: matmul_perf_model", _triton_stages, triton),
    Rule("DeepGEMM: ranking", _deepest, deep_gemm, applies=lambda case: bool(case.plan.roles)),
    Rule("ALCOP, as reconstructed", _least_alcop, alcop, ranks_depths=True),
)
