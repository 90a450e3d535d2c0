"""The ops that the cost model plans are those that mapping and lowering make, of the same kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tvm.script import tirx as T

from pipeliner.machine import machine_for
from pipeliner.passes.copy.copies import lower_copies
from pipeliner.passes.dependence.graph import dependence
from pipeliner.passes.ir.op_form import op_loops, thread_extents
from pipeliner.passes.map.instructions import map_tiles
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import Gemm
from pipeliner.space.ranking import choose
from pipeliner.targets import cuda_target

from .lowering_tools import prepared
from .tiles import scheduled

FP8 = Gemm(256, 128, 512, dtype="float8_e4m3fn", out="float32")
SIMT = Request(instruction="simt")
NON_SPECIALISED = Request(instruction="wgmma", mechanism="cp_async", depth=3)
CASES = {
    "mma": ("sm_80", Gemm(256, 256, 256), (128, 128, 32), Request(instruction="mma")),
    "mma, k tail": ("sm_80", Gemm(64, 64, 72), (64, 64, 64), Request(instruction="mma")),
    "mma, int8": ("sm_80", Gemm(128, 64, 256, dtype="int8"), (64, 64, 64), Request()),
    "mma, one step": ("sm_80", Gemm(64, 64, 64), (64, 64, 16), Request(instruction="mma")),
    "simt": ("sm_80", Gemm(128, 128, 128, dtype="float32"), (64, 64, 8), SIMT),
    "simt, k-major": ("sm_80", Gemm(64, 64, 64, layout="NT"), (64, 64, 16), SIMT),
    "simt, ragged": ("sm_80", Gemm(250, 130, 66, dtype="float32"), (64, 64, 8), SIMT),
    "registers": ("sm_75", Gemm(128, 128, 128), (64, 64, 16), Request()),
    "direct": ("sm_80", Gemm(128, 128, 128), (64, 64, 32), Request(mechanism="direct", depth=1)),
    "wgmma, tma": ("sm_90a", Gemm(256, 256, 512), (128, 128, 64), Request(instruction="wgmma")),
    "wgmma, non-specialised": ("sm_90a", Gemm(256, 128, 512), (128, 64, 64), NON_SPECIALISED),
    "wgmma, operand in registers": (
        "sm_90a",
        Gemm(256, 128, 512),
        (128, 64, 64),
        Request(instruction="wgmma", mechanism="cp_async", operand="registers", depth=3),
    ),
    "wgmma, promoted": (
        "sm_90a",
        FP8,
        (128, 64, 128),
        Request(instruction="wgmma", mechanism="cp_async", accumulate="promoted", depth=3),
    ),
}


@T.prim_func(s_tir=True)
def stream(
    A: T.Buffer((64, 256), "float32"),
    C: T.Buffer((64, 256), "float32"),
) -> None:
    for tx in T.thread_binding(256, thread="threadIdx.x"):
        for i in range(64):
            with T.sblock("C"):
                C[i, tx] = A[i, tx] * T.float32(2)


def planned(func: Any, arch: str, request: Request) -> tuple[KernelPlan, Any]:
    """The plan of ``func``, and the function mapped and its copies lowered as the plan says."""
    target = cuda_target(arch)
    recognised, kernel = recognise(prepared(func, target))
    plan = choose(kernel.info, machine_for(target), request)
    return plan, lower_copies(map_tiles(recognised, kernel, plan), plan)


def loops(plan: KernelPlan, func: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """(op, kind) of each op of a loop: as it is planned, and as it is found in ``func``."""
    forms = {str(form.var.name): form for form in op_loops(func.body)}
    for loop in plan.loops:
        if loop.pipelined:
            graph = dependence(forms[loop.name].node, thread_extents(func.body))
            made = [(op, graph.nodes[op]["kind"]) for op in forms[loop.name].names]
            yield [(op.name, op.kind) for op in loop.ops], made


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(2)
def test_what_is_planned_is_made(case: str) -> None:
    arch, gemm, tile, request = CASES[case]
    plan, func = planned(scheduled(gemm, GemmTile(*tile)), arch, request)
    ((expected, made),) = loops(plan, func)
    assert made == expected


def test_a_load_with_a_ring_is_split_off() -> None:
    plan, func = planned(stream, "sm_80", Request(depth=4))
    ((expected, made),) = loops(plan, func)
    assert made == expected == [("C.load", "load"), ("C", expected[-1][1])]
