"""GEMM schedules compute what they should, and are tiles that recognition can read."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.s_tir import SBlock
from tvm.s_tir import transform as stir
from tvm.tirx import ForKind

from pipeliner.errors import WorkloadError
from pipeliner.passes.ir.nodes import const_int, walk
from pipeliner.passes.recognise.facts import recognise
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.gemm import GemmTile, schedule_gemm
from pipeliner.schedules.tiles import stages_transposed
from pipeliner.schedules.workloads import GatedGemm, Gemm, numpy_dtype
from pipeliner.values.elements import element
from pipeliner.values.facts import CopyInfo
from tests.refusals import refused

PREFIX = (
    "CanonicalizeLoop",
    "LowerCrossThreadReduction",
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "LiftThreadBinding",
    "ManifestSharedMemoryLocalStage",
    "CompactBufferAllocation",
    "LowerAutoCopy",
    "UnifyThreadBinding",
    "LowerMatchBuffer",
    "StmtSimplify",
    "InjectPermutedLayout",
    "AnnotateIrregularLoop",
)

EVEN = Gemm(128, 96, 64), GemmTile(64, 32, 32)
CASES = {
    "fp16-NT-even": EVEN,
    "bf16-NN-ragged": (Gemm(33, 20, 17, dtype="bf16", layout="NN"), GemmTile(16, 16, 16)),
    "fp32-NT-ragged": (Gemm(30, 50, 20, dtype="fp32"), GemmTile(16, 32, 8)),
    "fp32-TN-even": (Gemm(32, 32, 16, dtype="fp32", layout="TN"), GemmTile(16, 32, 8)),
    "tf32-TT": (Gemm(32, 32, 24, dtype="tf32", layout="TT"), GemmTile(16, 32, 8)),
    "int8-K-odd": (Gemm(16, 24, 53, dtype="int8"), GemmTile(16, 8, 32)),
    "uint8-TN": (Gemm(16, 24, 64, dtype="uint8", layout="TN"), GemmTile(16, 8, 32)),
    "weights": (Gemm(33, 48, 64, weights="int8"), GemmTile(16, 16, 32)),
    "weights-split": (
        Gemm(32, 48, 64, dtype="bf16", weights="int8"),
        GemmTile(16, 16, 16, splits=2),
    ),
    "batched": (Gemm(20, 24, 16, batch=3, layout="NN"), GemmTile(16, 8, 16)),
    "prime": (Gemm(37, 41, 43, dtype="fp32", layout="TN"), GemmTile(16, 16, 8)),
    "one": (Gemm(1, 1, 1, dtype="fp32"), GemmTile(16, 16, 8)),
    "symbolic": (Gemm(None, 40, 24, layout="NN"), GemmTile(16, 16, 8)),
    "symbolic-batched-fp32": (Gemm(None, 24, 20, batch=2, dtype="fp32"), GemmTile(16, 16, 8)),
    "half-accumulator": (Gemm(16, 16, 32, accumulator="float16"), GemmTile(16, 16, 16)),
    "split": (Gemm(48, 40, 128), GemmTile(16, 32, 16, splits=4)),
    "split-ragged": (Gemm(33, 20, 53, layout="TN"), GemmTile(16, 16, 16, splits=3)),
    "split-fp32": (Gemm(32, 64, 80, dtype="fp32"), GemmTile(16, 32, 8, splits=5)),
    "split-int8": (Gemm(16, 24, 256, dtype="int8"), GemmTile(16, 8, 32, splits=2)),
    "split-symbolic": (Gemm(None, 40, 64, layout="NN"), GemmTile(16, 16, 8, splits=2)),
    "gated": (GatedGemm(48, 64, 64, layout="NN"), GemmTile(16, 32, 16)),
    "gated-ragged": (GatedGemm(33, 20, 17, activation="gelu"), GemmTile(16, 16, 16)),
    "gated-batched": (
        GatedGemm(20, 24, 16, batch=3, dtype="fp32", activation="relu"),
        GemmTile(16, 8, 8),
    ),
    "gated-symbolic": (GatedGemm(None, 40, 24, layout="TN"), GemmTile(16, 16, 8)),
    "gated-split": (GatedGemm(48, 40, 128), GemmTile(16, 32, 16, splits=4)),
    "gated-split-ragged": (
        GatedGemm(33, 20, 53, layout="TN", activation="gelu"),
        GemmTile(16, 16, 16, splits=3),
    ),
    "gated-split-batched": (
        GatedGemm(20, 24, 40, batch=3, dtype="fp32", activation="relu"),
        GemmTile(16, 8, 8, splits=2),
    ),
    "gated-split-symbolic": (GatedGemm(None, 40, 64), GemmTile(16, 16, 16, splits=2)),
    "fp32-out": (Gemm(16, 24, 32, out="float32"), GemmTile(16, 8, 16)),
    "reordered": (Gemm(33, 20, 45), GemmTile(16, 16, 16, reordered=True)),
    "reordered-NN": (Gemm(48, 37, 45, layout="NN"), GemmTile(16, 16, 64, reordered=True)),
    "reordered-TN": (Gemm(33, 20, 45, layout="TN"), GemmTile(16, 16, 16, reordered=True)),
    "reordered-TT-fp32": (
        Gemm(30, 50, 21, dtype="fp32", layout="TT"),
        GemmTile(16, 32, 8, reordered=True),
    ),
    "reordered-tf32": (Gemm(32, 40, 23, dtype="tf32"), GemmTile(16, 8, 8, reordered=True)),
    "reordered-int8": (
        Gemm(16, 24, 53, dtype="int8", layout="NN"),
        GemmTile(16, 8, 32, reordered=True),
    ),
    "reordered-batched": (Gemm(20, 24, 17, batch=3), GemmTile(16, 8, 16, reordered=True)),
    "reordered-split": (Gemm(33, 20, 53), GemmTile(16, 16, 16, splits=3, reordered=True)),
    "reordered-split-TN": (
        Gemm(33, 20, 53, layout="TN"),
        GemmTile(16, 16, 16, splits=3, reordered=True),
    ),
    "reordered-gated": (GatedGemm(33, 20, 17), GemmTile(16, 16, 16, reordered=True)),
    "reordered-weights": (Gemm(33, 48, 60, weights="int8"), GemmTile(16, 16, 32, reordered=True)),
    "reordered-symbolic": (
        Gemm(None, 41, 24, layout="NN"),
        GemmTile(16, 16, 8, reordered=True),
    ),
}


def on_cpu(func):
    """The scheduled function with serial loops as its grid."""

    def serial(loop):
        if loop.kind != ForKind.THREAD_BINDING:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, loop.body)

    body = tvm_ffi.structural_map(func.body, [(tirx.For, serial)], order="post")
    func = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return tvm.compile(module, target="llvm")["main"]


def check(gemm, tile, m=None, func=None):
    inputs = gemm.inputs(seed=3, m=m)
    c = tvm.runtime.tensor(np.zeros(gemm.shapes(m)[-1], numpy_dtype(gemm.out)))
    run = on_cpu(schedule_gemm(gemm, tile, func).mod["main"])
    run(*map(tvm.runtime.tensor, inputs), c)
    expected = gemm.reference(*inputs)
    found = c.numpy().astype(expected.dtype)
    half = "float16" in (gemm.accumulator, gemm.out)
    loose = 2e-2 if half or gemm.out == "bfloat16" else 1e-5
    scale = max(1, np.abs(expected).max())
    assert np.abs(found - expected).max() <= (0 if element(gemm.storage).integer else loose * scale)


def prefix(mod):
    return reduce(lambda module, name: getattr(stir, name)()(module), PREFIX, mod)["main"]


@pytest.mark.part(12)
@pytest.mark.parametrize("case", CASES)
def test_the_schedule_computes_the_product(case):
    gemm, tile = CASES[case]
    sizes = (1, tile.m, 3 * tile.m + 1) if gemm.m is None else (None,)
    for m in sizes:
        check(gemm, tile, m)


extents = st.integers(1, 40)


@settings(max_examples=8, deadline=None)
@given(m=extents, n=extents, k=extents, layout=st.sampled_from(["NN", "NT", "TN", "TT"]))
def test_any_extents_compute_the_product(m, n, k, layout):
    check(Gemm(m, n, k, dtype="fp32", layout=layout), GemmTile(16, 16, 8))


@pytest.mark.parametrize("case", CASES)
def test_tiles_are_exact_and_live_inside_the_k_loop(case):
    gemm, tile = CASES[case]
    func = prefix(schedule_gemm(gemm, tile).mod)
    info = kernel_info(gemm, tile)
    (loop,) = info.loops
    found = {}

    def inside(block):
        for buf in block.alloc_buffers:
            shape = [const_int(extent) for extent in buf.shape]
            found[str(buf.name)] = (str(buf.scope()), shape[-2:])

    loops = []
    walk(func.body, tirx.For, loops.append)
    (step,) = [f for f in loops if str(f.loop_var.name) == loop.name]
    assert const_int(step.extent) == loop.trip
    walk(step.body, SBlock, inside)
    assert found == {
        op.dst: ("shared", list(op.shape)) for op in loop.ops if isinstance(op, CopyInfo)
    }
    bound = [f for f in loops if f.kind == ForKind.THREAD_BINDING]
    assert {str(f.thread_binding.thread_tag) for f in bound} <= {"blockIdx.x", "blockIdx.z"}


def test_an_fp32_operand_contiguous_along_k_is_staged_transposed():
    gemm, tile = Gemm(64, 64, 16, dtype="fp32", layout="NN"), GemmTile(32, 64, 8)
    assert [stages_transposed(gemm.contraction(), operand) for operand in (0, 1)] == [True, False]
    a, b, matmul = kernel_info(gemm, tile).loops[0].ops
    assert (a.shape, a.src_dims) == ((8, 32), (1, 0))
    assert (b.shape, b.src_dims) == ((8, 64), (0, 1))
    assert not matmul.a_k_major


def test_neighbouring_ctas_rasterise_groups_of_rows():
    gemm = Gemm(512, 512, 32)
    func = schedule_gemm(gemm, GemmTile(64, 64, 32, raster_group=4)).mod["main"]
    text = func.script()
    # 8 x 8 tiles in two groups of 4 rows: row = group * 4 + index % 4, column = index % 32 // 4
    for piece in ("// 32", "% 4"):
        assert piece in text


def test_hints_reach_the_matmul_block():
    tile = GemmTile(64, 32, 32, warps=(2, 1), thread_tile=(8, 4))
    found = {}
    walk(
        schedule_gemm(EVEN[0], tile).mod["main"].body,
        SBlock,
        lambda block: found.update(dict(block.annotations.items())),
    )
    assert str(found["pipeliner.mma"]) == "auto"
    assert [int(x) for x in found["pipeliner.warps"]] == [2, 1]
    assert [int(x) for x in found["pipeliner.thread_tile"]] == [8, 4]


def test_tf32_is_marked():
    gemm, tile = CASES["tf32-TT"]
    assert '"pipeliner.mma": "tensor"' in schedule_gemm(gemm, tile).mod["main"].script()


def test_a_fused_epilogue_stays_one_block():
    gemm, tile = CASES["fp32-TN-even"]
    func = _with_relu(gemm)
    scheduled = schedule_gemm(gemm, tile, func).mod["main"]
    names = []
    walk(scheduled.body, SBlock, lambda block: names.append(str(block.name_hint)))
    assert "relu" in names
    assert "store" not in names
    a, b = gemm.inputs()
    c = tvm.runtime.tensor(np.zeros(gemm.shapes()[2], "float32"))
    on_cpu(scheduled)(tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), np.maximum(gemm.reference(a, b), 0), atol=1e-4)


def _with_relu(gemm):
    """The workload with one more elementwise block after its own."""
    from tvm.script import tirx as T

    M, N, K = gemm.m, gemm.n, gemm.k

    @T.prim_func(s_tir=True)
    def fused(
        A: T.Buffer((K, M), "float32"),
        B: T.Buffer((K, N), "float32"),
        D: T.Buffer((M, N), "float32"),
    ):
        acc = T.sblock_alloc_buffer((M, N), "float32")
        C = T.sblock_alloc_buffer((M, N), "float32")
        for i, j, k in T.grid(M, N, K):
            with T.sblock("matmul"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    acc[vi, vj] = T.float32(0)
                acc[vi, vj] = acc[vi, vj] + A[vk, vi] * B[vk, vj]
        for i, j in T.grid(M, N):
            with T.sblock("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = acc[vi, vj]
        for i, j in T.grid(M, N):
            with T.sblock("relu"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = T.max(C[vi, vj], T.float32(0))

    return fused


def test_more_matrices_than_a_grid_holds_are_refused():
    with refused("tile.batch_axes", WorkloadError, count=65536, most=65535):
        schedule_gemm(Gemm(16, 16, 16, batch=65536), GemmTile(16, 16, 16))


def test_a_tile_without_extent_is_refused():
    with refused("tile.least", WorkloadError, name="k", value=0):
        GemmTile(16, 16, 0)


@pytest.mark.parametrize("epilogue", [("bias",), ("residual",), ("scale", "bias")], ids="-".join)
def test_bytes_of_a_sum_of_parts_count_what_is_of_a_column_once(epilogue: tuple[str, ...]) -> None:
    gemm, tile = Gemm(200, 64, 1024, epilogue=epilogue), GemmTile(64, 32, 64, splits=2)
    _, facts = recognise(prefix(schedule_gemm(gemm, tile).mod))
    (found,), (closed,) = facts.info.elementwise, kernel_info(gemm, tile).elementwise
    inputs = {"bias": 64, "scale": 64, "residual": 512}
    read = sum(inputs[step] for step in epilogue)
    assert found.global_bytes == closed.global_bytes == 512 * (2 * 4 + 2) + read * 2
