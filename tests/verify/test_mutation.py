"""Every synchronisation that is deleted or weakened and every ring index that is shifted shows."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.kernel.building import build_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.kernel.cuda_lines import cuda_lines
from pipeliner.mutation import mutants, mutate, mutated
from pipeliner.mutation.equivalence import equivalent
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.schedules.workloads.gemm import LAYOUTS

from ..corpus import loops
from .mutation_kernels import FORMS, count_in_cuda, family, gemm, unexplained


@pytest.mark.part(18)
@pytest.mark.parametrize("how", FORMS, ids=lambda how: "-".join(how.values()))
@pytest.mark.parametrize("depth", [1, 3])
def test_one_mutant_for_each_synchronisation_in_the_cuda(depth: int, how: dict[str, str]) -> None:
    kernel = gemm(4, depth, **how)
    found = [mutant for mutant in mutants(kernel.lowered) if mutant.synchronises]
    assert len(found) == count_in_cuda(kernel.cuda) > 0


def test_each_mutant_differs_from_the_kernel_and_from_the_others() -> None:
    kernel = gemm(4, 3, **FORMS[0])
    found = mutants(kernel.lowered)
    modules = [kernel.lowered, *(mutated(kernel.lowered, mutant) for mutant in found)]
    texts = {module.script() for module in modules}
    assert len(texts) == len(found) + 1
    assert len({mutant.twin for mutant in found}) == len(found)


@pytest.mark.parametrize("how", [FORMS[0], FORMS[3]], ids=lambda how: "-".join(how.values()))
@pytest.mark.deep("test_one_mutant_for_each_synchronisation_in_the_cuda")
def test_the_cuda_of_mutants_can_be_printed(how: dict[str, str]) -> None:
    lowered = gemm(4, 3, **how).lowered
    whole = cuda_lines(lowered).source
    some = {mutant.kind: mutant for mutant in mutants(lowered)}.values()  # a second each
    printed = {cuda_lines(mutated(lowered, mutant)).source for mutant in some}
    assert whole not in printed
    assert len(printed) == len(some) > 1


def test_every_slot_of_the_steady_state_is_shifted() -> None:
    kernel = gemm(6, 3, **FORMS[0])
    (loop,) = (loop for loop in kernel.plan.loops if loop.pipelined)
    rings = {ring.buffer for ring in loop.rings if ring.scope.startswith("shared")}
    expected = {op.name for op in loop.ops if op.kind in ("copy", "load")}
    uses = [m for m in mutants(kernel.lowered) if m.kind == "slot" and m.origin.phase == "steady"]
    assert {mutant.origin.op for mutant in uses} == expected
    assert {mutant.what.partition("[")[0] for mutant in uses} == rings == {"A_shared", "B_shared"}


@pytest.mark.part(12)
@pytest.mark.parametrize("how", FORMS, ids=lambda how: "-".join(how.values()))
def test_every_mutant_of_a_gemm_dies(how: dict[str, str]) -> None:
    depth = 3 if how["instruction"] == "mma" else 2
    kernel = gemm(depth + 2, depth, **how)
    report = mutate(kernel, relatives=family(depth, **how))
    assert report.ok, unexplained(report.fates)
    assert len(report.fates) == report.mutants
    here = [fate.mutant for fate in report.fates if fate.killed and "trips" not in fate.run]
    assert not [mutant for mutant in here if equivalent(kernel.lowered, mutant)]


STREAMS = {
    "column_sum": ({},),
    "gather_sum": ({},),
    "gemv_stream": ({},),
    "prefix_sum": ({},),
    "stream_add": ({},),
    "thread_if": ({},),
    "stream_scale_dynamic": ({"n": 8}, {"n": 1100}),
}
"""Loops without shared memory, whose loads have rings in registers."""


@pytest.mark.part(27)
@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("name", STREAMS)
def test_every_index_of_a_ring_in_registers_is_shifted(name: str, depth: int) -> None:
    kernel = pipeliner.build(getattr(loops, name), "a100", depth=depth)
    rings = [ring for loop in kernel.plan.loops for ring in loop.rings if ring.depth > 1]
    assert {ring.scope for ring in rings} == {"local"}
    code = kernel.cuda[kernel.cuda.index("__global__") :].splitlines()
    for ring in rings:
        array = ring.buffer.replace(".", "_") + "_ptr"
        declared, *uses = [line for line in code if re.search(rf"\b{array}\b", line)]
        assert declared.endswith("];")
        shifted = [m for m in mutants(kernel.lowered) if m.what.startswith(f"{ring.buffer}[")]
        assert len(shifted) == len(uses) >= 2 * depth


@pytest.mark.part(4)
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("name", STREAMS)
def test_every_mutant_of_a_ring_in_registers_dies(name: str, depth: int) -> None:
    kernel = pipeliner.build(getattr(loops, name), "a100", depth=depth)
    report = mutate(kernel, extents=STREAMS[name])
    assert not report.survivors, [str(fate.mutant) for fate in report.survivors]


TILES = {
    "float32": (16, 32, 8),
    "tfloat32": (32, 32, 16),
    "float16": (32, 32, 16),
    "bfloat16": (32, 32, 16),
    "int8": (32, 32, 32),
}
QUICK = (("bfloat16", "TN"), ("int8", "NT"))
PAIRS = [
    (dtype, LAYOUTS[at % len(LAYOUTS)])
    for number, dtype in enumerate(TILES)
    for at in (number, number + 1)
]
"""Two layouts of each type, each with two types or three."""


@pytest.mark.part(6)
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.slow]) for pair in PAIRS],
)
def test_every_mutant_of_a_plan_by_default_dies(dtype: str, layout: str) -> None:
    m, n, k = TILES[dtype]

    def build(trips: int) -> Kernel:
        shape = Gemm(m, n, trips * k, dtype=dtype, layout=layout)
        return pipeliner.build(schedule_gemm(shape, GemmTile(m, n, k)), "a100")

    relatives = {f"{trips} trips": lambda trips=trips: build(trips) for trips in (2, 4, 9)}
    report = mutate(build(6), relatives=relatives)
    assert not report.survivors, [str(fate.mutant) for fate in report.survivors]


def test_the_barriers_of_a_step_are_all_needed_where_stores_are_guarded() -> None:
    """Stores of registers or memory to a slot that, while there are any, nobody reads that step."""
    for depth, trips in ((2, 4), (3, 6)):
        how = {"instruction": "simt", "mechanism": "direct", "epilogue": "rolled"}
        shape = Gemm(16, 16, trips * 8, dtype="float32")
        request = Request(depth=depth, **how)
        kernel = build_with(schedule_gemm(shape, GemmTile(16, 16, 8)), "a100", request)
        assert kernel.plan.sync.barriers_in_steady == 1
        report = mutate(kernel)
        assert not report.survivors, [str(fate.mutant) for fate in report.survivors]


def test_a_commit_whose_group_is_waited_for_with_the_next_is_proved_equivalent() -> None:
    """A lags a step behind B, so the first group holds B alone."""
    schedule = schedule_gemm(Gemm(64, 64, 160), GemmTile(64, 64, 32))
    kernel = pipeliner.build(schedule, "a100", depth=3)
    report = mutate(kernel)
    assert report.ok, unexplained(report.fates)
    reasons = {fate.mutant.kind: fate.reason for fate in report.survivors}
    assert reasons in ({}, {"commit": Reason("mutation.joined")})
    assert not [
        fate.mutant
        for fate in report.fates
        if fate.killed and equivalent(kernel.lowered, fate.mutant)
    ]


TRIPS = (1, 2, 5)
"""Iterations, one for each form and depth: relatives have others."""


@pytest.mark.part(36)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "depth", "trips"),
    [
        (how, depth, TRIPS[(number + depth) % len(TRIPS)])
        for number, how in enumerate(FORMS)
        for depth in (1, 2, 3, 4)
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)
def test_every_mutant_dies_at_every_depth(how: dict[str, str], depth: int, trips: int) -> None:
    report = mutate(gemm(trips, depth, **how), relatives=family(depth, **how))
    assert report.ok, unexplained(report.fates)


def test_a_mutant_that_a_short_loop_does_not_need_dies_on_a_longer_one() -> None:
    how = FORMS[0]
    alone = mutate(gemm(1, 3, **how))
    assert alone.unexplained
    report = mutate(gemm(1, 3, **how), relatives=family(3, **how))
    assert report.ok
    saved = {
        fate.run for fate in report.fates if fate.mutant in [f.mutant for f in alone.survivors]
    }
    assert saved
    assert all("trips" in run for run in saved)


def test_symbolic_extents_are_relatives() -> None:
    shape = Gemm(None, 16, 64, dtype="float16")
    kernel = pipeliner.build(schedule_gemm(shape, GemmTile(16, 16, 16)), "a100", depth=3)
    report = mutate(kernel, extents=[{"m": 16}, {"m": 5}])
    assert report.ok, unexplained(report.fates)


def test_bfloat16_outputs_are_compared() -> None:
    shape = Gemm(16, 16, 64, dtype="bf16")
    kernel = pipeliner.build(schedule_gemm(shape, GemmTile(16, 16, 16)), "a100", depth=2)
    report = mutate(kernel)
    assert report.ok, unexplained(report.fates)
    a, b = shape.inputs(0)
    c = np.zeros((16, 16), a.dtype)
    assert mutate(kernel, [a, b, c]).ok


@pytest.mark.parametrize("columns", [128, 96])
def test_results_in_slots_of_their_own_are_one_group(columns: int) -> None:
    """Each box was one, of which none is waited for before the last: their ends did nothing."""
    tile = GemmTile(64, columns, 64)
    kernel = pipeliner.build(
        schedule_gemm(Gemm(64, columns, 512), tile), "h200", mechanism="tma", store="tma", depth=3
    )
    (store,) = kernel.plan.stores
    assert 1 < columns / store.box[1] <= store.slots
    assert kernel.cuda.count("commit_group_async_bulk_commit_group();") == 1
    found = mutate(kernel, timings=["late"], orders=["lockstep"])
    assert not found.survivors, found
