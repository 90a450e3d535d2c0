"""Tile functions that wait for others inside their loop: the plan says what the code can do."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import tvm

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.plan.explain import explain

from ..refusals import the

STEPS = 4

_POLL = """
while flag[k0] == 0:
    T.evaluate(0)
"""
_PRODUCT = """
for i, j, r in T.grid(64, 64, 32):
    with T.sblock("product"):
        vi, vj, vr = T.axis.remap("SSR", [i, j, r])
        acc[vi, vj] = acc[vi, vj] + T.Cast("float32", S[vi, vr]) * T.Cast("float32", U[vj, vr])
"""
_SUM = """
for i, r in T.grid(64, 32):
    with T.sblock("sum"):
        C[bx * 64 + i, r] = C[bx * 64 + i, r] + T.Cast("float32", S[i, r] * U[i, 31 - r])
"""
_OUT = """
for i, j in T.grid(64, 64):
    with T.sblock("out"):
        C[bx * 64 + i, j] = acc[i, j]
"""
_KERNEL = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float16"), B: T.Buffer((64, 128), "float16"),
         flag: T.Buffer((4,), "int32"), C: T.Buffer((128, 64), "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
            for i, j in T.grid(64, 64):
                with T.sblock("zero"):
                    acc[i, j] = T.float32(0)
            for k0 in T.serial(4):
                with T.sblock("step"):
                    S = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
                    U = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
{before}
                    for i, r in T.grid(64, 32):
                        with T.sblock("S"):
                            vi, vr = T.axis.remap("SS", [i, r])
                            S[vi, vr] = A[bx * 64 + vi, k0 * 32 + vr]
                    for i, r in T.grid(64, 32):
                        with T.sblock("U"):
                            vi, vr = T.axis.remap("SS", [i, r])
                            U[vi, vr] = B[vi, k0 * 32 + vr]
{behind}
{work}
{out}
"""


def program(before: str, behind: str, work: str, out: str) -> object:
    parts = {"before": before, "behind": behind, "work": work}
    filled = {name: textwrap.indent(text, " " * 20) for name, text in parts.items()}
    text = _KERNEL.format(**filled, out=textwrap.indent(out, " " * 12))
    return tvm.script.from_source(text, check_well_formed=False)


def run(kernel: pipeliner.Kernel, *, product: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (rows, 128)).astype("float16") for rows in (128, 64))
    c, flag = np.zeros((128, 64), "float32"), np.ones(STEPS, "int32")
    result = kernel.emulate(a, b, flag, c, order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    if product:
        want = a.astype("float32") @ b.astype("float32").T
    else:
        want = c.copy()
        for k in range(0, 128, 32):
            want[:, :32] += a[:, k : k + 32] * np.tile(b[:, k : k + 32][:, ::-1], (2, 1))
    np.testing.assert_array_equal(result.outputs["C"], want)


@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.parametrize("where", ["before", "behind", "both"])
@pytest.mark.part(6)
def test_no_more_slots_are_planned_than_copies_can_reach(where: str, target: str) -> None:
    """Copies of a step run under the product of the one before, behind what the loop polls."""
    polls = {name: _POLL if where in (name, "both") else "" for name in ("before", "behind")}
    kernel = pipeliner.build(program(**polls, work=_PRODUCT, out=_OUT), target)
    (loop,) = [loop for loop in kernel.plan.loops if loop.pipelined]
    assert {ring.depth for ring in loop.rings if ring.scope.startswith("shared")} == {2}
    assert the("ahead.polled", loop.reasons)["buffer"] == "flag"
    run(kernel, product=True)
    free = pipeliner.plan_of(
        pipeliner.pipeline(program("", "", _PRODUCT, _OUT), target, mechanism="cp_async")
    )
    assert kernel.plan.predicted_us > free.predicted_us
    assert f"predicted {kernel.plan.predicted_us:.1f} us" in explain(kernel.plan)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.deep("test_copies_that_are_asked_for_are_made_and_said_to_overlap_nothing")
def test_a_loop_that_overlaps_nothing_is_not_called_pipelined(target: str) -> None:
    kernel = pipeliner.build(program(_POLL, "", _SUM, ""), target)
    assert not kernel.plan.pipelined
    assert "not pipelined" in explain(kernel.plan)
    said = the("schedule.no_overlap", [*kernel.plan.reasons, *kernel.plan.loop("k0").reasons])
    assert said == Reason(
        "schedule.no_overlap", loop="k0", why=Reason("ahead.polled", buffer="flag")
    )
    run(kernel, product=False)


@pytest.mark.slow
def test_copies_that_are_asked_for_are_made_and_said_to_overlap_nothing() -> None:
    kernel = pipeliner.build(program(_POLL, "", _SUM, ""), "a100", mechanism="cp_async")
    assert {copy.mechanism for copy in kernel.plan.copies} == {"cp_async"}
    assert the("schedule.no_overlap", kernel.plan.loops[0].reasons)["loop"] == "k0"
    run(kernel, product=False)
