"""Every synchronisation that is deleted or weakened and every ring index that is shifted shows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner import cli
from pipeliner.api import build_with
from pipeliner.compiled import Kernel, compile_kernel
from pipeliner.cuda_lines import cuda_lines
from pipeliner.errors import EmulatorError, WorkloadError
from pipeliner.mutation import Campaign, Fate, mutants, mutate, mutated
from pipeliner.mutation.equivalence import equivalent
from pipeliner.mutation.mutants import device_functions
from pipeliner.mutation.operations import kind_of
from pipeliner.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.schedules.workloads.gemm import LAYOUTS
from pipeliner.targets import cuda_target

from ..corpus import loops

MMA, SIMT = (32, 32, 16), (16, 32, 8)


def gemm(trips: int, depth: int, **how: Any) -> Kernel:
    """A GEMM of one CTA and ``trips`` iterations."""
    simt = how["instruction"] == "simt"
    m, n, k = SIMT if simt else MMA
    shape = Gemm(m, n, trips * k, dtype="float32" if simt else "float16")
    request = Request(depth=depth, **how)
    return build_with(schedule_gemm(shape, GemmTile(m, n, k)), "a100", request)


def family(depth: int, **how: Any) -> Mapping[str, Callable[[], Kernel]]:
    return {
        f"{trips} trips": lambda trips=trips: gemm(trips, depth, **how)
        for trips in (2, depth + 1, depth + 2)
    }


# How many there are, counted in the CUDA that TVM prints from the same functions.

SYNCHRONISES = re.compile(
    r"^\s+(__sync\w+|tvm_builtin_(ptx|cuda)_\w*"
    r"(commit_group|wait_group|wait_all|mbarrier|bar_sync|barrier|fence|cluster_sync)\w*)\(",
    re.MULTILINE,
)


def count_in_cuda(source: str) -> int:
    kernels = source[source.index("__global__") :]
    return len(SYNCHRONISES.findall(kernels))


FORMS = [
    {"instruction": "mma", "mechanism": "cp_async", "epilogue": "rolled"},
    {"instruction": "mma", "mechanism": "cp_async", "epilogue": "clamped"},
    {"instruction": "mma", "mechanism": "cp_async", "epilogue": "peeled"},
    {"instruction": "simt", "mechanism": "register", "epilogue": "rolled"},
    {"instruction": "simt", "mechanism": "register", "epilogue": "peeled"},
    {"instruction": "simt", "mechanism": "cp_async", "epilogue": "clamped"},
    {"instruction": "simt", "mechanism": "direct", "epilogue": "rolled"},
]


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
def test_the_cuda_of_every_mutant_can_be_printed(how: dict[str, str]) -> None:
    lowered = gemm(4, 3, **how).lowered
    whole = cuda_lines(lowered).source
    printed = {cuda_lines(mutated(lowered, mutant)).source for mutant in mutants(lowered)}
    assert whole not in printed
    assert len(printed) == len(mutants(lowered))


def test_every_slot_of_the_steady_state_is_shifted() -> None:
    kernel = gemm(6, 3, **FORMS[0])
    (loop,) = (loop for loop in kernel.plan.loops if loop.pipelined)
    rings = {ring.buffer for ring in loop.rings if ring.scope.startswith("shared")}
    expected = {op.name for op in loop.ops if op.kind in ("copy", "load")}
    uses = [m for m in mutants(kernel.lowered) if m.kind == "slot" and m.origin.phase == "steady"]
    assert {mutant.origin.op for mutant in uses} == expected
    assert {mutant.what.partition("[")[0] for mutant in uses} == rings == {"A_shared", "B_shared"}


# They die.


def unexplained(fates: Any) -> list[str]:
    return [f"{fate.mutant}" for fate in fates if not fate.ok]


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


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.slow])
        for pair in itertools.product(TILES, LAYOUTS)
    ],
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
    joined = "its copies join the next group, and the first wait completes both"
    assert reasons in ({}, {"commit": joined})
    assert not [
        fate.mutant
        for fate in report.fates
        if fate.killed and equivalent(kernel.lowered, fate.mutant)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("trips", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("how", FORMS, ids=lambda how: "-".join(how.values()))
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


# What is reported.


def fates_of(func: Any, **options: Any) -> list[Fate]:
    return list(Campaign(func, target="a100", **options).run())


@T.prim_func(s_tir=True)
def reversal(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    """Every second barrier is one too many."""
    T.func_attr({"global_symbol": "reversal", "tirx.noalias": True})
    for tx in T.thread_binding(128, thread="threadIdx.x"):
        with T.sblock("all"):
            S = T.sblock_alloc_buffer((128,), "float32", scope="shared")
            S[tx] = A[tx]
            T.tvm_storage_sync("shared")
            T.tvm_storage_sync("shared")
            B[tx] = S[127 - tx]
            T.tvm_storage_sync("shared")


def stock(func: Any) -> Kernel:
    """``func`` as TVM lowers it, which leaves barriers by hand as they are."""
    return compile_kernel(tvm.IRModule({"main": func}), cuda_target("a100"), "s_tir")


def test_barriers_too_many_survive_and_one_with_nothing_behind_it_is_proved() -> None:
    fates = fates_of(stock(reversal))
    assert len(fates) == count_in_cuda(stock(reversal).cuda)
    *doubled, last = fates
    assert [fate.killed or fate.reason for fate in doubled] == [""] * len(doubled)
    assert last.reason == "no access to memory follows it that it could order"
    assert not last.killed


def test_a_wrong_output_kills_where_nothing_races() -> None:
    """A slot further in a ring that is all written before it is read."""
    kernel = gemm(3, 3, instruction="simt", mechanism="direct", epilogue="rolled")
    causes = {fate.killed_by for fate in Campaign(kernel).run()}
    assert any(re.fullmatch(r"\d+ of 512 elements of C differ", cause) for cause in causes)


def test_a_kernel_that_is_wrong_itself_is_refused() -> None:
    kernel = gemm(4, 3, **FORMS[0])
    first = next(mutant for mutant in mutants(kernel.lowered) if mutant.kind == "barrier")
    with pytest.raises(WorkloadError, match="cannot mutate a kernel that is wrong itself: race on"):
        mutate(mutated(kernel.lowered, first))


def test_a_kernel_that_is_not_what_its_reference_says_is_refused() -> None:
    kernel = gemm(4, 3, **FORMS[0])
    with pytest.raises(WorkloadError, match=r"wrong itself: its error is .* against the reference"):
        mutate(kernel, reference=lambda a, b, c: (a + 1) @ b.T)
    assert mutate(kernel, reference=lambda a, b, c: a @ b.T, timings=["late"], orders=["lockstep"])


def test_an_operation_inside_an_expression_is_refused() -> None:
    @T.prim_func(s_tir=True)
    def votes(A: T.Buffer((128,), "int32")):
        T.func_attr({"global_symbol": "votes", "tirx.noalias": True})
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.sblock("all"):
                A[tx] = T.cuda.syncthreads_and(A[tx])

    with pytest.raises(EmulatorError, match="1 synchronising operations are parts of expressions"):
        mutants(stock(votes).lowered)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tirx.tvm_storage_sync", "barrier"),
        ("tirx.ptx.bar_sync_count", "barrier"),
        ("tirx.ptx.barrier_cluster_arrive", "barrier"),
        ("tirx.cuda.cluster_sync", "barrier"),
        ("tirx.ptx.cp_async_wait_all", "wait"),
        ("tirx.ptx.wgmma_wait_group", "wait"),
        ("tirx.cuda.mbarrier_wait", "wait"),
        ("tirx.ptx.mbarrier_try_wait_parity", "wait"),
        ("tirx.ptx.griddepcontrol", "wait"),
        ("tirx.ptx.cp_async_bulk_commit_group", "commit"),
        ("tirx.ptx.mbarrier_init", "arrival"),
        ("tirx.ptx.mbarrier_arrive_expect_tx", "arrival"),
        ("tirx.ptx.cp_async_mbarrier_arrive", "arrival"),
        ("tirx.ptx.wgmma_fence", "fence"),
        ("tirx.ptx.fence_proxy", "fence"),
        ("tirx.ptx.cp_async_cg", None),
        ("tirx.ptx.setmaxnreg", None),
        ("tirx.ptx.mma", None),
        ("tirx.cuda.elect_sync", None),
        ("tirx.tvm_mma_sync", None),
    ],
)
def test_what_synchronises(name: str, kind: str | None) -> None:
    assert tvm.ir.Op.get(name).name == name
    assert kind_of(name) == kind


def test_symbolic_extents_are_relatives() -> None:
    shape = Gemm(None, 16, 64, dtype="float16")
    kernel = pipeliner.build(schedule_gemm(shape, GemmTile(16, 16, 16)), "a100", depth=3)
    report = mutate(kernel, extents=[{"m": 16}, {"m": 5}])
    assert report.ok, unexplained(report.fates)


def test_the_mutants_of_one_kernel_leave_it_alone() -> None:
    kernel = gemm(4, 3, **FORMS[0])
    before = kernel.lowered.script()
    mutate(kernel)
    assert kernel.lowered.script() == before
    kernels, _ = device_functions(kernel.lowered)
    assert all(isinstance(func, tirx.PrimFunc) for func in kernels.values())


# The command.

SMALL = ("gemm", "--m", "32", "--n", "32", "--tile", "32x32x16", "--target", "a100", "--depth", "3")


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", *SMALL, "--k", "80", "--mutate"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    counts = re.search(r"(\d+) of (\d+) mutants killed, 0 proved equivalent, 0 survive", last)
    assert counts
    assert counts[1] == counts[2] == str(len(table) - 2)
    assert last.startswith("right: gemm_32x32x80_float16_nt: ")


def test_command_as_json_with_the_line_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", *SMALL, "--k", "16", "--mutate", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    kernel = pipeliner.build(schedule_gemm(Gemm(32, 32, 16), GemmTile(32, 32, 16)), "a100", depth=3)
    lines = kernel.cuda.splitlines()
    barriers = [fate for fate in data["fates"] if fate["kind"] == "barrier"]
    assert barriers
    assert all("__syncthreads" in lines[fate["line"] - 1] for fate in barriers)
    assert data["operations"] == count_in_cuda(kernel.cuda)
    assert any(fate["run"].endswith("K = 32") for fate in data["fates"])


def test_command_says_what_survives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeliner.commands.mutate.TRIPS", (1,))
    assert cli.main(["verify", *SMALL, "--k", "16", "--mutate"]) == 1
    out = capsys.readouterr().out
    assert "SURVIVES" in out
    assert re.search(r"^survives: .*\n  CUDA line \d+: \S", out, re.MULTILINE)
    assert out.splitlines()[-1].startswith("WRONG: ")


def test_an_interrupt_prints_what_was_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Campaign.run

    def interrupted(campaign: Campaign) -> Any:
        fates = run(campaign)
        yield next(fates)
        yield next(fates)
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "run", interrupted)
    assert cli.main(["verify", *SMALL, "--k", "80", "--mutate"]) == 130
    captured = capsys.readouterr()
    title, _, *rows = captured.out.splitlines()[:-1]
    assert title.startswith("line  operation")
    assert len(rows) == 2
    assert re.search(r"2 of \d+ mutants killed, .* [1-9]\d* not run", captured.out)
    assert captured.err.endswith("pipeliner: interrupted\n")


def test_bfloat16_outputs_are_compared() -> None:
    shape = Gemm(16, 16, 64, dtype="bf16")
    kernel = pipeliner.build(schedule_gemm(shape, GemmTile(16, 16, 16)), "a100", depth=2)
    report = mutate(kernel)
    assert report.ok, unexplained(report.fates)
    a, b = shape.inputs(0)
    c = np.zeros((16, 16), a.dtype)
    assert mutate(kernel, [a, b, c]).ok
