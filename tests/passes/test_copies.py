"""Copies by mechanism: widths that alignment proves, masks as sizes, splits through registers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import sym, tirx
from tvm.ir import Range
from tvm.script import tirx as T

import pipeliner
from pipeliner.emulator import emulate, lower_for_emulation
from pipeliner.errors import LoweringError, PlanError
from pipeliner.passes.copy.copies import lower_copies
from pipeliner.passes.copy.cp_async import as_cp_async
from pipeliner.passes.copy.register import split_loads
from pipeliner.passes.ir.nodes import (
    ForKind,
    TensorLoad,
    Var,
    buffer,
    const_int,
    i32,
    loop,
    substitute,
    walk,
)
from pipeliner.passes.lower import PIPELINE
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan import KernelPlan, LoopPlan, RingPlan
from pipeliner.plan.request import Request
from pipeliner.schedules.gemm import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.values.op import Op

from ..refusals import refused, the
from .lowering_tools import TARGET, prepared
from .tiles import mapped, ops, run

THREAD = Var("tx", "int32")


def _is_text(arg: Any) -> bool:
    return isinstance(getattr(arg, "value", None), str)


def moved(dtype: str, row: int, base: int, lanes: int, condition: Any = None) -> Any:
    """``S[tx * lanes + v] = A[tx, base + v]`` as cp.async, where A's rows have ``row`` elements."""
    source = buffer([64, row], dtype, "A", "global")
    shared = buffer([64 * lanes], dtype, "S", "shared")

    def body(v: Any) -> Any:
        value: Any = tirx.BufferLoad(source, [THREAD, base + v])
        if condition is not None:
            value = tirx.if_then_else(condition(v), value, tirx.const(0, dtype))
        return tirx.BufferStore(shared, value, [THREAD * lanes + v])

    analyzer = sym.Analyzer()
    analyzer.bind(THREAD, Range(0, 64))
    return as_cp_async("A", loop("v", lanes, body, ForKind.VECTORIZED), analyzer)


def sizes(stmt: Any) -> list[int]:
    """Bytes of each cp.async in a statement, loops multiplied out."""
    found: list[int] = []

    def visit(node: Any, times: int) -> None:
        if isinstance(node, tirx.For):
            visit(node.body, times * (const_int(node.extent) or 1))
        else:
            found.extend([int(node.value.args[2].value)] * times)

    visit(stmt, 1)
    return found


@pytest.mark.parametrize(
    ("dtype", "row", "base", "lanes", "expected"),
    [
        ("float16", 64, 0, 8, [16]),
        ("float16", 60, 0, 8, [8, 8]),
        ("float16", 62, 0, 8, [4] * 4),
        ("float16", 64, 4, 8, [8, 8]),
        ("float32", 64, 0, 4, [16]),
        ("float32", 65, 1, 4, [4] * 4),
        ("float32", 64, 0, 1, [4]),
        ("int8", 64, 0, 16, [16]),
        ("int8", 68, 4, 16, [4] * 4),
    ],
)
def test_widest_size_that_is_provably_aligned(
    dtype: str, row: int, base: int, lanes: int, expected: list[int]
) -> None:
    assert sizes(moved(dtype, row, base, lanes)) == expected


@pytest.mark.parametrize(("dtype", "row", "lanes"), [("float16", 63, 8), ("int8", 62, 16)])
def test_what_is_not_aligned_to_four_bytes_is_refused(dtype: str, row: int, lanes: int) -> None:
    with refused("cp_async.bytes", LoweringError):
        moved(dtype, row, 0, lanes)


def test_a_condition_on_the_row_switches_the_whole_vector() -> None:
    stmt = moved("float16", 64, 0, 8, lambda v: THREAD < 50)
    (load, size) = _source(stmt)
    assert [_at(size, t) for t in (0, 49, 50, 63)] == [16, 16, 0, 0]
    assert [_at(load.indices[0], t) for t in (49, 50, 63)] == [49, 49, 49]


def test_a_bound_inside_the_vector_is_a_partial_size() -> None:
    stmt = moved("float16", 64, 0, 8, lambda v: v < THREAD)
    (_, size) = _source(stmt)
    assert [_at(size, t) for t in (0, 3, 8, 20)] == [0, 6, 16, 16]


def test_a_bound_that_whole_vectors_meet_is_no_partial_size() -> None:
    stmt = moved("float16", 64, 0, 8, lambda v: THREAD * 8 + v < 40)
    (_, size) = _source(stmt)
    assert [_at(size, t) for t in (4, 5)] == [16, 0]


def test_a_condition_that_always_holds_leaves_no_size() -> None:
    stmt = moved("float16", 64, 0, 8, lambda v: THREAD < 64)
    assert _source(stmt)[1] is None


def _source(stmt: Any) -> tuple[Any, Any]:
    """The loaded source element of the one cp.async of ``stmt``, and its source size."""
    found: list[Any] = []
    walk(stmt, TensorLoad, lambda load: found.append(load) if load.source.name == "A" else None)
    argument = stmt.value.args[3]
    return found[0], None if _is_text(argument) else argument


def _at(expr: Any, thread: int) -> int | None:
    """``expr`` for one thread."""
    return const_int(substitute(expr, {THREAD: i32(thread)}))


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(100, 72, 56), GemmTile(64, 64, 32)),
        (Gemm(61, 68, 100), GemmTile(64, 64, 32)),
        (Gemm(61, 70, 98, layout="TN"), GemmTile(64, 64, 32)),
        (Gemm(61, 67, 53), GemmTile(64, 64, 32)),
        (Gemm(61, 67, 99, dtype="int8", layout="TN"), GemmTile(64, 64, 64)),
        (Gemm(61, 68, 100, dtype="int8"), GemmTile(64, 64, 64)),
        (Gemm(33, 35, 37, dtype="fp32", layout="NN"), GemmTile(32, 32, 8)),
        (Gemm(33, 36, 37, dtype="tf32", layout="TT"), GemmTile(32, 32, 8)),
        (Gemm(None, 72, 50), GemmTile(64, 64, 32)),
        (Gemm(1, 1, 1, dtype="fp32"), GemmTile(32, 32, 8)),
    ],
)
@pytest.mark.part(6)
def test_ragged_edges(gemm: Gemm, tile: GemmTile) -> None:
    run(gemm, tile, m=77 if gemm.m is None else None, depth=2)


@pytest.mark.part(9)
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["cp_async", "register", "direct"])
@pytest.mark.parametrize("dtype", ["float16", "int8", "float32"])
def test_mechanisms_give_the_same_answer(dtype: str, mechanism: str) -> None:
    run(Gemm(60, 72, 100, dtype=dtype), GemmTile(64, 64, 32), depth=2, mechanism=mechanism)


def test_register_copies_are_two_ops_with_a_local_buffer() -> None:
    func, _ = mapped(Gemm(64, 64, 64), GemmTile(64, 64, 32), Request(mechanism="register"))
    names = list(ops(func))
    assert names[:4] == ["A_shared.load", "A_shared.store", "B_shared.load", "B_shared.store"]
    stores: list[Any] = []
    walk(ops(func)["A_shared.load"], tirx.BufferStore, stores.append)
    (store,) = stores
    # 64 x 32 elements over 128 threads
    assert str(store.buffer.scope()) == "local"
    assert [int(extent) for extent in store.buffer.shape] == [16]


def test_cp_async_that_cannot_be_had_raises() -> None:
    with refused("cp_async.vector", PlanError, nbytes=2):
        mapped(Gemm(64, 64, 63), GemmTile(64, 64, 32), Request(mechanism="cp_async"))


def share(*extents: Any, source: str = "global") -> Any:
    """What a thread copies: ``S[i, j] = A[i, j]``, in loops of ``extents``."""
    loops = [Var(name, "int32") for name in "ij"[: len(extents)]]
    src, dst = (buffer([256, 256], "float32", *of) for of in (("A", source), ("S", "shared")))
    at = [*loops, i32(0)][:2]
    stmt: Any = tirx.BufferStore(dst, tirx.BufferLoad(src, at), at)
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        stmt = tirx.For(var, i32(0), extent, ForKind.SERIAL, stmt)
    return stmt


@pytest.mark.parametrize(
    ("stmt", "code", "args"),
    [
        (share(i32(9), i32(16)), "copy.share", {"elements": 144, "most": 128}),
        (share(i32(8), Var("n", "int32")), "copy.no_share", {"loop": "j"}),
        (share(i32(8), source="shared"), "copy.loads_nothing", {}),
        (tirx.While(Var("go", "bool"), share(i32(8))), "copy.inseparable", {"statement": "While"}),
    ],
    ids=["elements", "extent", "shared", "while"],
)
def test_a_share_that_registers_cannot_hold_says_why(stmt: Any, code: str, args: Any) -> None:
    with refused(code, LoweringError, **args):
        split_loads(Op("A", "load"), stmt, ())


def test_a_share_of_as_many_elements_as_may_go_ahead_is_split() -> None:
    _, _, (register,) = split_loads(Op("A", "load"), share(i32(8), i32(16)), ())
    assert [int(extent) for extent in register.shape] == [128]


@T.prim_func(s_tir=True)
def stream(
    A: T.Buffer((16, 256), "float32"),
    B: T.Buffer((16, 256), "float32"),
    C: T.Buffer((16, 256), "float32"),
) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for i in range(16):
            for v in T.vectorized(4):
                with T.sblock("C"):
                    C[i, tx * 4 + v] = A[i, tx * 4 + v] + B[i, tx * 4 + v]


def test_a_streaming_statement_is_split_where_the_plan_gives_it_a_ring() -> None:
    func, kernel = recognise(prepared(stream))
    ring = RingPlan("C.load", "local", 3, 2048, (Op("C", "load"),), ())
    loop_plan = LoopPlan("i", "16", True, rings=(ring,))
    plan = KernelPlan("main", "sm_80", "", threads=64, loops=(loop_plan,))
    assert [info.name for info in kernel.info.loops] == ["i"]
    done = lower_copies(func, plan)
    assert list(ops(done)) == ["C.load", "C"]
    loads: list[Any] = []
    walk(ops(done)["C"], TensorLoad, loads.append)
    assert {str(load.source.scope()) for load in loads} == {"local"}


def test_a_streaming_kernel_is_right() -> None:
    done = pipeliner.pipeline(stream, "sm_80", depth=4)
    assert pipeliner.plan_of(done).loops[0].ops[0].name == "C.load"
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((16, 256)).astype("float32") for _ in range(2))
    with TARGET:
        lowered = lower_for_emulation(done, TARGET, PIPELINE)
    result = emulate(lowered, [a, b, np.zeros_like(a)])
    assert not result.hazards
    np.testing.assert_array_equal(result.outputs["C"], a + b)


@T.prim_func(s_tir=True)
def unbound_copy(A: T.Buffer((256, 64), "float32"), C: T.Buffer((64,), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("root"):
            acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
            acc[0] = T.float32(0)
            for k in range(16):
                with T.sblock("tile"):
                    S = T.sblock_alloc_buffer((16, 64), "float32", scope="shared")
                    for i, j in T.grid(16, 64):
                        with T.sblock("S"):
                            S[i, j] = A[k * 16 + i, j]
                    with T.sblock("sum"):
                        for i in range(16):
                            acc[0] = acc[0] + S[i, 63 - tx]
            C[tx] = acc[0]


def test_an_unbound_copy_is_shared_out_over_the_threads_of_its_function() -> None:
    done = pipeliner.pipeline(unbound_copy, "sm_80", depth=2)
    (copy,) = pipeliner.plan_of(done).copies
    assert (copy.mechanism, copy.vector_bytes) == ("cp_async", 16)
    a = np.random.default_rng(0).standard_normal((256, 64)).astype("float32")
    with TARGET:
        lowered = lower_for_emulation(done, TARGET, PIPELINE)
    result = emulate(lowered, [a, np.zeros(64, "float32")])
    assert not result.hazards
    np.testing.assert_allclose(result.outputs["C"], a.sum(0)[::-1], rtol=1e-5, atol=1e-5)


def unread_tile(k: int, read: str) -> Any:
    """C[k] = S less ``read`` of S, with S copied from A by every thread."""
    return tvm.script.from_source(
        f"""
@T.prim_func(s_tir=True)
def unread(A: T.Buffer(({k}, 64), "float32"), C: T.Buffer(({k}, 64), "float32")):
    T.func_attr({{"global_symbol": "unread", "tirx.noalias": True}})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for k in T.serial({k}):
                with T.sblock("body"):
                    S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                    with T.sblock("S"):
                        S[tx] = A[k, tx]
                    with T.sblock("C"):
                        C[k, tx] = S[63 - tx] - S[{read}]
"""
    )


def test_a_tile_that_nothing_reads_is_not_copied_asynchronously() -> None:
    """S[i] - S[i] is zero to the simplifier: no wait would be for the copy."""
    kernel = pipeliner.build(unread_tile(8, "63 - tx"), "sm_80", depth=3)
    (copy,) = kernel.plan.copies
    assert copy.mechanism == "register"
    assert the("copy.unread", [copy.reason])["buffer"] == "S"
    a = np.random.default_rng(0).standard_normal((8, 64)).astype("float32")
    result = kernel.emulate(a, np.full_like(a, np.nan))
    assert not result.hazards
    np.testing.assert_array_equal(result.outputs["C"], np.zeros_like(a))
    with refused("copy.unread", PlanError, buffer="S"):
        pipeliner.pipeline(unread_tile(8, "63 - tx"), "sm_80", mechanism="cp_async")
    (read,) = pipeliner.build(unread_tile(8, "tx"), "sm_80", depth=3).plan.copies
    assert read.mechanism == "cp_async"


@pytest.mark.parametrize(("k", "instruction"), [(48, "cp.async.cg"), (40, "cp.async.ca")])
@pytest.mark.part(2)
def test_rows_that_share_a_sector_go_through_l1(k: int, instruction: str) -> None:
    """40 elements of float16 are 2.5 sectors, 48 are 3."""
    kernel = pipeliner.build(
        pipeliner.pipeline(schedule_gemm(Gemm(64, 64, k), GemmTile(64, 64, 32)), "a100"), "a100"
    )
    (copies,) = set(re.findall(r"cp\.async\.c[ag]", kernel.cuda))
    assert copies == instruction
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, k)).astype("float16") for _ in "ab")
    emulation = kernel.emulate(a, b, np.full((64, 64), np.nan, "float16"))
    assert not emulation.hazards
    want = a.astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(emulation.outputs["C"], want, rtol=2e-3, atol=2e-2)
