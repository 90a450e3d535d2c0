"""Every emitted statement says where it comes from, and the CUDA is the same without it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.api import build
from pipeliner.kernel.building import pipeline_with
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.ir.kernels import bodies
from pipeliner.passes.sync.labels import label
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, schedule_gemm
from pipeliner.schedules.tiles import GemmTile
from pipeliner.values.origin import ORIGIN_ATTR, Origin

from . import arena_kernels, sync_kernels
from .lowering_tools import prepared


def gemm(dtype: str, tile: tuple[int, int, int], **request: Any) -> Any:
    func = schedule_gemm(Gemm(m=50, n=64, k=130, dtype=dtype, layout="NN"), GemmTile(*tile))
    return pipeline_with(func, "sm_80", Request(**request))


KERNELS: dict[str, Any] = {
    "mma": lambda: gemm("float16", (32, 32, 32), depth=3),
    "mma clamped": lambda: gemm("float16", (32, 32, 32), depth=4, epilogue="clamped"),
    "mma peeled": lambda: gemm("float16", (32, 32, 16), depth=2, epilogue="peeled"),
    "registers": lambda: gemm("float32", (32, 32, 16), depth=2, mechanism="register"),
    "simt": lambda: gemm("float32", (32, 32, 16), depth=3),
    "not pipelined": lambda: gemm("float16", (32, 32, 32), depth=1),
    "arena": lambda: pipeline_with(arena_kernels.in_turn, "sm_80", Request()),
    "virtual threads": lambda: pipeline_with(sync_kernels.virtual_threads, "sm_80", Request()),
}


def stripped(func: Any) -> Any:
    """``func`` without its origins."""

    def visit(stmt: Any) -> Any:
        return stmt.body if stmt.attr_key == ORIGIN_ATTR else stmt

    body = tvm_ffi.structural_map(func.body, [(tirx.AttrStmt, visit)], order="post")
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def unmarked(stmt: Any) -> list[Any]:
    """Statements under no origin that touch shared memory or synchronise."""
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ORIGIN_ATTR:
        return []
    inner = bodies(stmt)
    if inner:
        return [found for body in inner for found in unmarked(body)]
    shared: list[Any] = []
    if isinstance(stmt, tirx.BufferStore | tirx.Evaluate):
        ir.walk(
            stmt,
            ir.Var,
            lambda v: shared.append(v) if ir.is_buffer_var(v) and ir.is_shared(v) else None,
        )
        ir.walk(stmt, ir.Call, lambda c: shared.append(c) if is_synchronising(c) else None)
    return [stmt] if shared else []


def is_synchronising(call: Any) -> bool:
    name = str(getattr(call.op, "name", ""))
    return name == "tirx.tvm_storage_sync" or "commit_group" in name or "wait_group" in name


@pytest.mark.part(12)
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_cuda_is_the_same_without_origins(name: str) -> None:
    func = KERNELS[name]()
    bare = stripped(func)
    assert "pipeliner.origin" not in bare.script()
    assert build(func, "sm_80").cuda == build(bare, "sm_80").cuda


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.part(2)
def test_every_shared_access_copy_wait_commit_and_barrier_has_an_origin(name: str) -> None:
    func = KERNELS[name]()
    assert unmarked(func.body) == []
    device = [
        f for f in build(func, "sm_80").lowered.functions.values() if "calling_conv" in f.attrs
    ]
    assert [unmarked(f.body) for f in device] == [[]]


def origins(func: Any) -> list[Origin]:
    found: list[Origin] = []

    def visit(stmt: Any) -> None:
        origin = ir.origin_of(stmt)
        if origin is not None:
            found.append(origin)

    ir.walk(func.body, tirx.AttrStmt, visit)
    return found


def test_a_pipelined_loop_tells_its_parts_kinds_and_slots() -> None:
    found = origins(KERNELS["mma"]())
    assert {o.phase for o in found if o.kind == "copy"} == {"prologue", "steady"}
    assert {"copy", "commit", "wait", "barrier", "load", "mma"} <= {o.kind for o in found}
    waits = [o for o in found if o.kind == "wait"]
    assert {name for o in waits for name in o.buffers} == {"A_pad_shared", "B_pad_shared"}
    assert all(place.slot for o in waits for place in o.places)
    assert all(o.reason for o in found if o.kind == "barrier")
    assert {o.block for o in found if o.kind == "mma"} == {"matmul_update_o"}


def test_marking_twice_is_marking_once() -> None:
    func = prepared(arena_kernels.in_turn)
    once = label(func)
    assert not once.same_as(func)
    assert label(once).same_as(once)


STAGES = {"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}


@T.prim_func(s_tir=True)
def one_name_twice(A: T.Buffer((8, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for k in T.serial(8, annotations=STAGES):
            with T.sblock("first"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                with T.sblock("load"):
                    S[tx] = A[k, tx]
                with T.sblock("store"):
                    C[k, tx] = S[63 - tx]
        for j in T.serial(8, annotations=STAGES):
            with T.sblock("second"):
                S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                with T.sblock("load"):
                    S[tx] = A[j, tx] + T.float32(1)
                with T.sblock("store"):
                    C[8 + j, tx] = S[63 - tx]


def test_origins_call_buffers_as_the_arena_does() -> None:
    func = pipeline_with(one_name_twice, "sm_80", Request())
    plan = build(func, "sm_80").plan
    assert {b.buffer for b in plan.smem.buffers} == {"S", "S_1"}
    by_variable = {}
    for origin in origins(func):
        variable = re.search(r"[kj]", origin.iteration) if origin.kind != "barrier" else None
        if variable is not None and origin.places:
            by_variable.setdefault(variable[0], set()).update(origin.buffers)
    assert by_variable == {"k": {"S"}, "j": {"S_1"}}
