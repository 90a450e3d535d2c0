"""Tensor maps, descriptors and roles: what the passes emit, judged by the vendor's definitions."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.emulator.units.wgmma import decode_descriptor
from pipeliner.errors import LoweringError, PlanError, TargetError
from pipeliner.machine import machine_for
from pipeliner.passes.ir.nodes import TensorLoad, i32, substitute, walk
from pipeliner.passes.ir.patterns import Matmul, is_zero
from pipeliner.passes.map.instructions import map_tiles
from pipeliner.passes.matmul.wgmma import map_wgmma
from pipeliner.passes.recognise.facts import recognise
from pipeliner.passes.software_pipeline import SoftwarePipeline
from pipeliner.passes.sync.mbarriers import ROLE_ATTR
from pipeliner.passes.threads.spread import Threads
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules.gemm import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.space.ranking import choose
from pipeliner.targets import cuda_target

from ..refusals import gives, refused, the
from ..verify.hopper_loops import counted
from .lowering_tools import prepared
from .tiles import calls, scheduled

TARGET = cuda_target("sm_90a")
WGMMA = Request(instruction="wgmma")


def mapped(gemm: Gemm, tile: tuple[int, int, int]) -> tuple[Any, KernelPlan]:
    func, kernel = recognise(prepared(scheduled(gemm, GemmTile(*tile)), TARGET))
    plan = choose(kernel.info, machine_for(TARGET), WGMMA)
    return map_tiles(func, kernel, plan), plan


def sliced(gemm: Gemm, tile: tuple[int, int, int], **options: Any) -> Any:
    schedule = schedule_gemm(gemm, GemmTile(*tile))
    return pipeliner.pipeline(schedule, "sm_90a", instruction="wgmma", **options)


def roles(func: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def visit(attr: Any) -> None:
        if attr.attr_key == ROLE_ATTR:
            found[str(attr.value.value)] = attr.body

    walk(func.body, tirx.AttrStmt, visit)
    return found


def encoded(func: Any) -> list[list[Any]]:
    """The arguments of each cuTensorMapEncodeTiled from the rank on, without the tensor."""
    found = [c for c in calls(func.body, "call_packed") if "Encode" in str(c.args[0])]
    return [[int(arg.value) for arg in (call.args[3], *call.args[5:])] for call in found]


def test_a_tensor_map_says_shape_strides_box_and_swizzle() -> None:
    func, _ = mapped(Gemm(512, 256, 1024, dtype="bfloat16"), (128, 64, 64))
    # CUDA driver API, cuTensorMapEncodeTiled: innermost first; strides in bytes, but the first.
    a = [2, 1024, 512, 2048, 64, 128, 1, 1, 0, 3, 2, 0]
    b = [2, 1024, 256, 2048, 64, 64, 1, 1, 0, 3, 2, 0]
    c = [2, 256, 512, 512, 64, 64, 1, 1, 0, 3, 2, 0]  # a box of each warpgroup
    assert encoded(func) == [a, b, c]


def test_a_batched_tensor_is_three_dimensional() -> None:
    func, _ = mapped(Gemm(256, 128, 192, batch=5), (128, 64, 32))
    a = [3, 192, 256, 5, 384, 384 * 256, 32, 128, 1, 1, 1, 1, 0, 2, 2, 0]
    assert encoded(func)[0] == a


@pytest.mark.parametrize(("k", "column_blocks"), [(32, 1), (64, 1), (128, 2), (192, 3)])
def test_a_wide_tile_is_a_box_for_each_column_block(k: int, column_blocks: int) -> None:
    func, _ = mapped(Gemm(256, 128, 2 * k), (128, 64, k))
    assert len(calls(func.body, "cp_async_bulk_tensor_g2s")) == 2 * column_blocks


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        ("NT", {(16, 1024)}),
        ("TT", {(64 * 128, 1024), (16, 1024)}),
        ("NN", {(16, 1024), (8192, 1024)}),
    ],
)
def test_descriptors_have_the_strides_of_the_canonical_layouts(
    layout: str, strides: set[tuple[int, int]]
) -> None:
    func, _ = mapped(Gemm(256, 256, 128, layout=layout), (128, 128, 64))
    found = set()
    for call in calls(func.body, "wgmma_f16_ss"):
        for descriptor in [arg for arg in call.args if isinstance(arg, tirx.BitwiseOr)]:
            decoded = decode_descriptor(int(descriptor.b.value))
            assert decoded.swizzle == 128
            found.add((decoded.leading, decoded.stride))
    assert found == strides


def test_every_element_of_the_accumulator_belongs_to_one_thread() -> None:
    gemm = Gemm(256, 64, 64, out="float32")
    _, kernel = recognise(prepared(scheduled(gemm, GemmTile(256, 64, 64)), TARGET))
    plan = choose(kernel.info, machine_for(TARGET), WGMMA)
    (matmul,) = [op for op in kernel.ops.values() if isinstance(op, Matmul)]
    thread = tvm.ir.Var("t", "int32")
    fragment = map_wgmma(matmul, plan.matmuls[0], Threads(thread, 256, tvm.sym.Analyzer())).fragment
    seen: set[tuple[int, int]] = set()
    evaluate = tvm.sym.Analyzer().simplify

    for t in (0, 5, 37, 127, 128, 255):
        warp, lane = t % 128 // 32, t % 32
        for block in range(fragment.loops[0]):
            for half in range(2):
                for tile in range(fragment.loops[2]):
                    at = [i32(block), i32(half), i32(tile)]
                    for v in range(2):
                        where = [
                            int(evaluate(substitute(i, {thread: i32(t)})).value)
                            for i in fragment.coordinates(at, i32(v))
                        ]
                        # PTX ISA, wgmma register fragments: D of m64nN.
                        row = t // 128 * 128 + block * 64 + warp * 16 + half * 8 + lane // 4
                        assert where[-2:] == [row, tile * 8 + lane % 4 * 2 + v]
                        register = int(evaluate(fragment.register(at, i32(v))).value)
                        assert register == block * 32 + tile * 4 + half * 2 + v
                        seen.add(tuple(where))
    assert len(seen) == 6 * 2 * 2 * 8 * 2


def test_the_producer_copies_and_the_consumer_computes() -> None:
    by_role = roles(sliced(Gemm(256, 256, 256), (128, 128, 64)))
    copies = {name: len(calls(body, "cp_async_bulk_tensor_g2s")) for name, body in by_role.items()}
    assert copies == {"consumer": 0, "producer": 2}
    stores = {name: len(calls(body, "cp_async_bulk_tensor_s2g")) for name, body in by_role.items()}
    assert stores == {"consumer": 1, "producer": 0}
    assert {n: len(calls(b, "wgmma_f16")) for n, b in by_role.items()} == {
        "consumer": 4,
        "producer": 0,
    }
    assert not calls(by_role["consumer"], "encode_matrix_descriptor")
    for body in by_role.values():
        loops: list[Any] = []
        walk(body, tirx.For, loops.append)
        rolled = [loop for loop in loops if str(loop.loop_var.name) == "k_0"]
        assert [bool(loop.annotations["disable_unroll"]) for loop in rolled] == [True]
        assert not calls(body, "storage_sync")


def test_descriptors_are_computed_once_and_added_to() -> None:
    consumer = roles(sliced(Gemm(256, 256, 256), (128, 128, 64), store="direct"))["consumer"]
    assert len(calls(consumer, "cvta_generic_to_shared")) == 2 + 1  # and a barrier
    for call in calls(consumer, "wgmma_f16"):
        bases: list[Any] = []
        walk(call, TensorLoad, bases.append)
        assert {str(b.source.name) for b in bases} >= {"A_shared_desc", "B_shared_desc"}


@pytest.mark.parametrize("operand", ["shared", "registers"])
def test_a_non_specialised_mainloop_computes_descriptors_once_too(operand: str) -> None:
    func = sliced(Gemm(256, 256, 512), (128, 128, 64), mechanism="cp_async", operand=operand)
    found = calls(func.body, "wgmma_f16")
    assert found
    for call in found:
        assert not calls(call, "cvta_generic_to_shared")
        bases: list[Any] = []
        walk(call, TensorLoad, bases.append)
        tiles = ["A_shared_desc"] * (operand == "shared") + ["B_shared_desc"]
        assert {str(b.source.name) for b in bases if "_desc" in str(b.source.name)} == set(tiles)


def test_the_first_wgmma_clears_where_there_is_a_first_step() -> None:
    def scales(func: Any) -> tuple[int, int]:
        """Instructions that may clear, and stores of zero to accumulators."""
        consumer = roles(func)["consumer"]
        zeros: list[Any] = []
        walk(consumer, tirx.BufferStore, lambda s: zeros.append(s) if is_clear(s) else None)
        found = calls(consumer, "wgmma_f16_ss")
        return sum(any(isinstance(a, tirx.Cast) for a in c.args) for c in found), len(zeros)

    def is_clear(store: Any) -> bool:
        return str(store.buffer.name).endswith("_frag") and is_zero(store.value)

    assert scales(sliced(Gemm(256, 256, 256), (128, 128, 64))) == (1, 0)
    assert scales(sliced(Gemm(256, 128, 256), (256, 128, 64))) == (2, 0)  # two blocks of 64 rows
    at_run_time = pipeliner.pipeline(counted(), "h100", instruction="wgmma")
    assert scales(at_run_time) == (0, 2)


def test_the_same_schedule_serves_every_gpu() -> None:
    schedule = schedule_gemm(Gemm(256, 256, 256), GemmTile(128, 128, 64))
    old = pipeliner.pipeline(schedule, "sm_80")
    new = pipeliner.pipeline(schedule, "h100", instruction="wgmma")
    assert pipeliner.plan_of(old).matmuls[0].instruction.startswith("mma.")
    assert pipeliner.plan_of(new).matmuls[0].instruction.startswith("wgmma.")
    assert pipeliner.build(new).arch == "sm_90a"
    assert pipeliner.build(new, "h100").arch == "sm_90a"
    assert pipeliner.build(schedule, "h100").arch == "sm_90a"
    assert pipeliner.build(schedule, "h100", instruction="mma").arch == "sm_90"


@pytest.mark.deep("tests/passes/test_obeyed.py::test_a_plan_handed_back_is_the_same_kernel")
def test_a_plan_handed_back_gives_the_same_kernel() -> None:
    schedule = schedule_gemm(Gemm(256, 256, 256), GemmTile(128, 128, 64))
    first = pipeliner.build(schedule, "h100", instruction="wgmma")
    plan = KernelPlan.from_json(first.plan.to_json())
    assert pipeliner.build(schedule, "h100", plan=plan).cuda == first.cuda


def test_as_a_pass_it_needs_the_target_that_has_wgmma() -> None:
    mod = schedule_gemm(Gemm(256, 256, 256), GemmTile(128, 128, 64)).mod
    needs = {"arch": "sm_90", "needed": "sm_90a"}
    with cuda_target("sm_90"), refused("matmul.target", TargetError, **needs):
        SoftwarePipeline(instruction="wgmma")(mod)


def test_a_stride_that_is_no_multiple_of_16_bytes_is_named() -> None:
    of_a = {"dimension": 0, "buffer": "A"}
    with refused("box.stride", PlanError, stride=2004, **of_a):
        sliced(Gemm(256, 256, 1002), (128, 128, 64), mechanism="tma")
    plan = pipeliner.plan_of(sliced(Gemm(256, 256, 1002), (128, 128, 64)))
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert gives(plan.copies[0].reason, "box.stride", stride=2004, **of_a)
    assert not plan.roles
    with refused("mechanism.for_wgmma", PlanError) as error:
        sliced(Gemm(256, 256, 1003), (128, 128, 64))
    assert gives(error.value.reason, "box.stride", stride=2006, **of_a)
    assert gives(error.value.reason, "cp_async.vector", nbytes=2)


def test_a_mask_that_says_more_than_the_bounds_is_declined() -> None:
    with refused("tma.mask", PlanError, buffer="A", condition="k * 64 + j <= i"):
        pipeliner.pipeline(_triangular(), "sm_90a", instruction="wgmma", mechanism="tma")


def test_threads_show_what_they_copied_to_wgmma_before_the_barrier() -> None:
    func = sliced(Gemm(256, 256, 512), (128, 128, 64), mechanism="cp_async", depth=3)
    order = [
        name
        for call in calls(func.body, "")
        for name in ("cp_async_wait_group", "fence_proxy", "storage_sync", "wgmma_f16_ss")
        if name in str(getattr(call.op, "name", ""))
    ]
    steady = order[: order.index("wgmma_f16_ss") + 1]
    assert steady[-4:] == ["cp_async_wait_group", "fence_proxy", "storage_sync", "wgmma_f16_ss"]


def test_a_kernel_that_writes_what_it_copies_has_no_tma() -> None:
    with refused("sync.inside_role", LoweringError, buffer="A"):
        pipeliner.pipeline(_in_place(), "sm_90a", instruction="wgmma", mechanism="tma")
    plan = pipeliner.plan_of(pipeliner.pipeline(_in_place(), "sm_90a", instruction="wgmma"))
    assert "tma" not in {copy.mechanism for copy in plan.copies}
    assert the("sync.inside_role", plan.reasons)["buffer"] == "A"


@pytest.mark.part(3)
@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("tile", "hgmma"),
    [
        ((128, 256, 64), 4),
        ((128, 128, 64), 4),
        ((256, 128, 64), 8),
        ((192, 192, 64), 4),
        ((64, 256, 64), 4),
        ((256, 192, 64), 8),
        ((128, 96, 64), 4),
        ((64, 48, 64), 4),
    ],
)
def test_machine_code_keeps_loops_rolled_and_spills_nothing(
    tile: tuple[int, int, int], hgmma: int
) -> None:
    schedule = schedule_gemm(Gemm(6144, 3072, 4096, dtype="bfloat16"), GemmTile(*tile))
    kernel = pipeliner.build(schedule, "h100", instruction="wgmma")
    assert kernel.resources.spills == 0
    assert kernel.resources.registers <= 255
    counts = Counter(re.findall(r"\b(HGMMA|UTMALDG|USETMAXREG|STL|LDL|BAR|UTMASTG)\b", kernel.sass))
    (store,) = kernel.plan.stores
    boxes = tile[1] // store.box[1]
    assert counts == {
        "HGMMA": hgmma,
        "UTMALDG": 2,
        "USETMAXREG": 2,
        "UTMASTG": boxes,
        "BAR": 1 + boxes + (boxes - store.slots),  # at the start, behind each box, before a reuse
    }
    at = [at for at, line in enumerate(kernel.sass.splitlines()) if "HGMMA" in line]
    loop = kernel.sass.splitlines()[at[0] : at[-1]]
    assert not any("R2UR" in line for line in loop)  # descriptors stay uniform
    assert "serializ" not in kernel._cubin.log
    assert "setmaxnreg" not in kernel._cubin.log  # ptxas says there when it ignores it


def _triangular() -> Any:
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((128, 256), "float16"),
        B: T.Buffer((64, 256), "float16"),
        C: T.Buffer((128, 64), "float32"),
    ):
        T.func_attr({"global_symbol": "main"})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((128, 64), "float32", scope="local")
                for i, j in T.grid(128, 64):
                    with T.sblock("init"):
                        acc[i, j] = T.float32(0)
                for k in T.serial(4):
                    with T.sblock("step"):
                        A_s = T.sblock_alloc_buffer((128, 64), "float16", scope="shared")
                        B_s = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                        for i, j in T.grid(128, 64):
                            with T.sblock("A_copy"):
                                A_s[i, j] = T.if_then_else(
                                    k * 64 + j <= i, A[i, k * 64 + j], T.float16(0)
                                )
                        for i, j in T.grid(64, 64):
                            with T.sblock("B_copy"):
                                B_s[i, j] = B[i, k * 64 + j]
                        for i, j, kk in T.grid(128, 64, 64):
                            with T.sblock("mma"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", A_s[i, kk]) * T.Cast(
                                    "float32", B_s[j, kk]
                                )
                for i, j in T.grid(128, 64):
                    with T.sblock("store"):
                        C[i, j] = acc[i, j]

    return main


def _in_place() -> Any:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((128, 128), "float16"), B: T.Buffer((128, 128), "float16")):
        T.func_attr({"global_symbol": "main"})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((128, 128), "float32", scope="local")
                for i, j in T.grid(128, 128):
                    with T.sblock("init"):
                        acc[i, j] = T.float32(0)
                for k in T.serial(2):
                    with T.sblock("step"):
                        A_s = T.sblock_alloc_buffer((128, 64), "float16", scope="shared")
                        B_s = T.sblock_alloc_buffer((128, 64), "float16", scope="shared")
                        for i, j in T.grid(128, 64):
                            with T.sblock("A_copy"):
                                A_s[i, j] = A[i, k * 64 + j]
                        for i, j in T.grid(128, 64):
                            with T.sblock("B_copy"):
                                B_s[i, j] = B[i, k * 64 + j]
                        for i, j, kk in T.grid(128, 128, 64):
                            with T.sblock("mma"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", A_s[i, kk]) * T.Cast(
                                    "float32", B_s[j, kk]
                                )
                for i, j in T.grid(128, 128):
                    with T.sblock("store"):
                        A[i, j] = T.Cast("float16", acc[i, j])

    return main


@pytest.mark.parametrize("cluster", [2, 4])
def test_a_cluster_shares_what_a_persistent_group_of_tiles_reads(cluster: int) -> None:
    # Of 132 CTAs, whose number is no multiple of the 8 rows of tiles of a raster group.
    schedule = schedule_gemm(Gemm(4096, 4096, 4096), GemmTile(256, 128, 64, persistent=132))
    func = pipeliner.pipeline(schedule, "sm_90a", instruction="wgmma", cluster=cluster)
    assert func.script().count("multicast::cluster") == 1
