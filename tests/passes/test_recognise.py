"""Recognition: what is a candidate, what its statements are, and why the rest is none."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason, Why
from pipeliner.passes.ir.nodes import walk
from pipeliner.passes.ir.op_form import op_loops
from pipeliner.passes.recognise.facts import recognise
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import Gemm
from pipeliner.values.facts import CopyInfo, MatmulInfo, StatementInfo

from .lowering_tools import prepared
from .tiles import run, scheduled


def declined(func: Any) -> dict[str, Why]:
    _, kernel = recognise(prepared(func))
    assert not kernel.info.loops
    return dict(kernel.info.declined)


def test_a_gemm_tile_is_two_copies_and_a_matmul() -> None:
    gemm = Gemm(100, 72, 52, layout="TN")
    tile = GemmTile(64, 32, 16, warps=(2, 1), thread_tile=(8, 8))
    func, kernel = recognise(prepared(scheduled(gemm, tile)))
    (loop,) = kernel.info.loops
    a, b, matmul = loop.ops
    assert isinstance(a, CopyInfo)
    assert isinstance(b, CopyInfo)
    assert isinstance(matmul, MatmulInfo)
    assert (a.shape, a.src_dims, a.src_strides) == ((16, 64), (0, 1), (100, 1))
    assert (a.masked, a.aligned, a.bound) == (True, 4, False)
    assert (b.shape, b.src_strides, b.aligned) == ((16, 32), (72, 1), 8)
    assert (matmul.m, matmul.n, matmul.k) == (64, 32, 16)
    assert (matmul.a_k_major, matmul.b_k_major) == (False, False)
    assert (matmul.warps, matmul.thread_tile) == ((2, 1), (8, 8))
    assert (kernel.info.threads, kernel.info.grid) == (0, (6,))
    assert (loop.trip, len(loop.rings)) == (4, 2)
    (form,) = op_loops(func)
    assert form.names == tuple(op.op for op in loop.ops)
    assert [name for name, _, _ in kernel.info.accumulators] == [matmul.acc]


@pytest.mark.parametrize(("layout", "k_major"), [("NT", (True, True)), ("NN", (True, False))])
def test_layouts_of_operands(layout: str, k_major: tuple[bool, bool]) -> None:
    _, kernel = recognise(
        prepared(scheduled(Gemm(64, 64, 64, layout=layout), GemmTile(64, 64, 32)))
    )
    matmul = kernel.info.loops[0].ops[2]
    assert isinstance(matmul, MatmulInfo)
    assert (matmul.a_k_major, matmul.b_k_major) == k_major


def test_a_matmul_that_clears_its_accumulator_itself() -> None:
    """Without decompose_reduction the first iteration clears; that moves before the loop."""
    from tvm import s_tir

    sch = s_tir.Schedule(Gemm(64, 64, 64).function())
    block = sch.get_sblock("matmul")
    copies = [sch.cache_read(block, side, "shared") for side in (0, 1)]
    i, j, k = sch.get_loops(block)
    outer, _ = sch.split(k, [None, 32])
    i_tile, i_in = sch.split(i, [None, 64])
    j_tile, j_in = sch.split(j, [None, 64])
    sch.reorder(i_tile, j_tile, outer, i_in, j_in)
    cta = sch.fuse(i_tile, j_tile)
    sch.bind(cta, "blockIdx.x")
    sch.reverse_compute_at(sch.get_sblock("store"), cta)
    sch.set_scope(block, 0, "local")
    for copy in copies:
        sch.compute_at(copy, outer)
    (func,) = sch.mod.functions.values()
    _, kernel = recognise(prepared(func))
    assert [type(op) for op in kernel.info.loops[0].ops] == [CopyInfo, CopyInfo, MatmulInfo]


@T.prim_func(s_tir=True)
def bound(A: T.Buffer((128, 256), "float16"), C: T.Buffer((128, 256), "float16")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        for k in range(128):
            with T.sblock("tile"):
                S = T.sblock_alloc_buffer((256,), "float16", scope="shared")
                for v in T.vectorized(8):
                    with T.sblock("S"):
                        S[tx * 8 + v] = A[k, tx * 8 + v]
                for v in T.serial(8):
                    with T.sblock("exp"):
                        C[k, tx * 8 + v] = T.exp(S[255 - tx * 8 - v])


def test_statements_of_bound_threads() -> None:
    _, kernel = recognise(prepared(bound))
    copy, compute = kernel.info.loops[0].ops
    assert isinstance(copy, CopyInfo)
    assert isinstance(compute, StatementInfo)
    assert (copy.shape, copy.aligned, copy.bound, copy.elements) == ((32, 8), 8, True, 256)
    assert (compute.kind, compute.transcendentals) == ("compute", 256)
    assert (compute.shared_bytes, compute.global_bytes, compute.loads) == (512, 512, False)
    assert kernel.info.threads == 32


@T.prim_func(s_tir=True)
def no_loads(A: T.Buffer((64,), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for k in range(8):
            A[tx] = T.float32(k)


@T.prim_func(s_tir=True)
def by_thread(A: T.Buffer((64,), "float32"), B: T.Buffer((64, 64), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for k in range(tx):
            A[tx] = A[tx] + B[k, tx]


@T.prim_func(s_tir=True)
def atomic(A: T.Buffer((1024,), "int32"), H: T.Buffer((16,), "int32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for k in range(16):
            T.cuda.atomic_add(T.address_of(H[A[k * 64 + tx]]), 1)


@T.prim_func(s_tir=True)
def chase(N: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("root"):
            p = T.sblock_alloc_buffer((1,), "int32", scope="local")
            p[0] = tx
            for k in range(8):
                p[0] = N[p[0]]
            C[tx] = p[0]


@T.prim_func(s_tir=True)
def in_place(A: T.Buffer((33, 64), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for k in range(32):
            A[k + 1, tx] = A[k, tx] * T.float32(0.5) + A[k + 1, tx]


@T.prim_func(s_tir=True)
def registers(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("root"):
            acc = T.sblock_alloc_buffer((16,), "float32", scope="local")
            for k in range(16):
                acc[k] = T.float32(1)
            for k in range(16):
                C[k, tx] = acc[k] * A[k, tx]


@T.prim_func(s_tir=True)
def extern(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for k in range(16):
            C[k, tx] = T.call_extern("float32", "sinf", A[k, tx])


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (no_loads, Reason("loop.no_load")),
        (by_thread, Reason("loop.thread_trip")),
        (atomic, Reason("loop.atomic")),
        (chase, Reason("loop.carried_addresses")),
        (in_place, Reason("loop.carried_loads", buffers=("A",))),
        (registers, Reason("loop.indexes_registers", buffer="acc")),
        (extern, Reason("loop.opaque_call", function="sinf")),
    ],
    ids=["no_loads", "by_thread", "atomic", "chase", "in_place", "registers", "extern"],
)
def test_what_is_no_candidate_says_why(func: Any, reason: Reason) -> None:
    assert reason in declined(func).values()


@T.prim_func(s_tir=True)
def conditional(
    A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32"), n: T.int32
) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("root"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            for k in range(16):
                if k < n:
                    S[tx] = A[k, tx]
                    C[k, tx] = S[63 - tx]


def test_a_condition_around_several_statements_goes_around_each() -> None:
    func, kernel = recognise(prepared(conditional))
    assert len(kernel.info.loops[0].ops) == 2
    found: list[Any] = []
    walk(func.body, tirx.IfThenElse, found.append)
    assert len(found) == 2


@T.prim_func(s_tir=True)
def twins(
    A: T.Buffer((16, 64), "float32"),
    B: T.Buffer((16, 64), "float32"),
    C: T.Buffer((64,), "float32"),
) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("root"):
            acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
            acc[0] = T.float32(0)
            for k in range(16):
                acc[0] = acc[0] + A[k, tx]
            for k in range(16):
                acc[0] = acc[0] * B[k, tx]
            C[tx] = acc[0]


def test_loops_and_ops_of_one_name_are_told_apart() -> None:
    func, kernel = recognise(prepared(twins))
    names = [loop.name for loop in kernel.info.loops]
    assert len(set(names)) == 2
    assert [str(form.var.name) for form in op_loops(func)] == names
    everything = [op.op for loop in kernel.info.loops for op in loop.ops]
    assert len(set(everything)) == len(everything)


def test_a_loop_of_one_iteration_is_mapped_all_the_same() -> None:
    run(Gemm(64, 64, 32), GemmTile(64, 64, 32))
