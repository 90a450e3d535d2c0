"""TVM's pipeline annotations as the user's plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason
from pipeliner.errors import ScheduleRefused
from pipeliner.machine import H100
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.schedule.annotations import (
    LOCAL_STAGE,
    annotated_plan,
    async_statements,
    is_annotated,
    staged_statements,
)
from pipeliner.plan import LoopPlan

from ..refusals import refused
from .core_ops import compiled, expand_loop, graph_of, op_form, run, the_loop


@T.prim_func(s_tir=True)
def three(A: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")):
    with T.sblock("root"):
        for k in T.serial(16):
            with T.sblock(""):
                B = T.sblock_alloc_buffer((1,), "float32")
                C = T.sblock_alloc_buffer((1,), "float32")
                B[0] = A[k] * T.float32(2)
                C[0] = B[0] + T.float32(2)
                D[k] = C[0] + T.float32(1)


@T.prim_func(s_tir=True)
def overwritten(S: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    """The value read is replaced afterwards: the buffer comes from outside the loop."""
    with T.sblock("root"):
        B = T.sblock_alloc_buffer((1,), "float32")
        B[0] = S[0]
        for k in T.serial(16):
            C[k] = B[0] + T.float32(1)
            B[0] = S[k]


@T.prim_func(s_tir=True)
def outside(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    with T.sblock("root"):
        B = T.sblock_alloc_buffer((1,), "float32")
        for k in T.serial(16):
            B[0] = A[k]
            C[k] = B[0]


@T.prim_func(s_tir=True)
def summing(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    """S carries a sum although the body allocates it."""
    with T.sblock("root"):
        for k in T.serial(16):
            with T.sblock(""):
                S = T.sblock_alloc_buffer((1,), "float32")
                B = T.sblock_alloc_buffer((1,), "float32")
                S[0] = S[0] + A[k]
                B[0] = S[0]
                C[k] = B[0] + S[0]


def annotated(func: Any, **annotations: Any) -> Any:
    """``func`` in op form, its loop annotated with ``software_pipeline_*``."""
    named = {f"software_pipeline_{key}": value for key, value in annotations.items()}

    def annotate(loop: Any, mutator: Any) -> Any:
        if loop.loop_var.name != "k":
            return mutator.default_mutate(loop)
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, None, named)

    func = op_form(func)
    body = tvm_ffi.structural_mutate(func.body, [(tirx.For, annotate)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def plan_of(func: Any) -> LoopPlan:
    return annotated_plan(graph_of(func), the_loop(func).node, LoopPlan("k", "16", True), H100)


@pytest.mark.parametrize(
    ("stage", "order", "depths"),
    [
        ([0, 1, 2], [0, 1, 2], {"B": 2, "C": 2}),
        ([0, 1, 2], [0, 2, 1], {"B": 2, "C": 1}),
        ([0, 1, 2], [2, 1, 0], {"B": 1, "C": 1}),
        ([1, 1, 3], [0, 1, 2], {"B": 1, "C": 3}),
    ],
)
def test_legal_plan(stage: list[int], order: list[int], depths: dict[str, int]) -> None:
    func = annotated(three, stage=stage, order=order)
    plan = plan_of(func)
    assert plan.source == "annotation"
    assert {ring.buffer: ring.depth for ring in plan.rings} == depths
    expanded = expand_loop(func, plan)
    assert "software_pipeline" not in expanded.script()
    a = np.arange(16, dtype="float32")
    _, d = run(compiled(expanded), a, np.zeros_like(a))
    np.testing.assert_array_equal(d, a * 2 + 3)


@pytest.mark.parametrize(
    ("func", "stage", "order", "code", "args"),
    [
        (
            three,
            [0, 1],
            [0, 1, 2],
            "annotation.entries",
            {"key": "software_pipeline_stage", "entries": 2, "statements": 3},
        ),
        (
            three,
            [0, 1, 2],
            [0, 1],
            "annotation.entries",
            {"key": "software_pipeline_order", "entries": 2, "statements": 3},
        ),
        (three, [0, 1, 2], [0, 1, 1], "annotation.order_twice", {"order": 1}),
        (three, [0, -1, 2], [0, 1, 2], "annotation.stage", {"stage": -1}),
        (
            three,
            [1, 0, 2],
            [0, 1, 2],
            "schedule.dependence",
            {"op": "op1", "iteration": "i", "after": "op0"},
        ),
        (
            overwritten,
            [0, 0],
            [1, 0],
            "schedule.dependence",
            {"op": "op1", "after": "op0", "why": Reason("edge.WAR", buffer="B"), "kind": "WAR"},
        ),
        (
            outside,
            [0, 1],
            [0, 1],
            "schedule.dependence",
            {
                "op": "op0",
                "iteration": "i + 1",
                "after": "op1",
                "why": Reason("edge.WAR", buffer="B"),
                "kind": "WAR",
                "stage": 0,
                "order": 0,
                "late": Reason("schedule.earlier_in_step"),
                "after_stage": 1,
                "after_order": 1,
            },
        ),
        (
            outside,
            [0, 1],
            [0, 1],
            "schedule.one_version",
            {"buffer": "B", "why": Reason("version.outside")},
        ),
        (
            summing,
            [0, 0, 1],
            [0, 1, 2],
            "schedule.one_version",
            {"buffer": "S", "why": Reason("version.read_first")},
        ),
    ],
)
def test_illegal_plan_is_refused_with_the_reason(
    func: Any, stage: list[int], order: list[int], code: str, args: dict[str, Any]
) -> None:
    with refused(code, ScheduleRefused, **args) as caught:
        plan_of(annotated(func, stage=stage, order=order))
    assert "\n" not in str(caught.value)


def test_carried_value_that_keeps_its_order_is_accepted() -> None:
    """Read again only after everything that needs the old value: one version of S is enough."""
    func = annotated(summing, stage=[0, 0, 1], order=[1, 2, 0])
    plan = plan_of(func)
    assert {ring.buffer: ring.depth for ring in plan.rings} == {"B": 1}


def test_missing_order_is_refused() -> None:
    with refused("annotation.missing", ScheduleRefused, key="software_pipeline_order"):
        plan_of(annotated(three, stage=[0, 1, 2]))


def test_async_statements_are_those_of_async_stages() -> None:
    func = annotated(three, stage=[0, 0, 1], order=[0, 1, 2], async_stages=[0])
    loop = the_loop(func).node
    assert is_annotated(loop)
    assert async_statements(loop) == {"op0", "op1"}


def test_nested_loop_counts_as_three_entries() -> None:
    @T.prim_func(s_tir=True)
    def nested(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
        with T.sblock("root"):
            for k in T.serial(8):
                with T.sblock(""):
                    B = T.sblock_alloc_buffer((4,), "float32")
                    for i in T.serial(4):
                        B[i] = A[k, i]
                    for j in T.serial(
                        4,
                        annotations={
                            "software_pipeline_stage": [0, 1],
                            "software_pipeline_order": [0, 1],
                        },
                    ):
                        with T.sblock(""):
                            x = T.sblock_alloc_buffer((1,), "float32")
                            x[0] = B[j] * T.float32(2)
                            C[k, j] = x[0] + T.float32(1)

    func = annotated(nested, stage=[0, 0, 1, 1], order=[0, 1, 2, 3])
    plan = plan_of(func)
    assert [(op.name, op.stage) for op in plan.ops] == [("op0", 0), ("op1", 1)]
    said = Reason("annotation.whole", statement="op1", stage=1, entries=3)
    assert plan.reasons[-1] == said
    a = np.arange(32, dtype="float32").reshape(8, 4)
    _, c = run(compiled(expand_loop(func, plan)), a, np.zeros_like(a))
    np.testing.assert_array_equal(c, a * 2 + 1)


def rows(*entries: tuple[str, dict[str, Any]], split: bool = False) -> Any:
    """A body with a block of two statements that copies, and a use; annotated."""
    A, C = (ir.buffer([16, 4], "float32", name, "global") for name in "AC")
    S, L = (ir.buffer([4], "float32", name, scope) for name, scope in (("S", "shared"), ("L", "")))
    k = ir.Var("k", "int32")

    def row(dst: Any, src: Any, *at: Any) -> Any:
        return ir.loop("i", 4, lambda i: tirx.BufferStore(dst, src(i), [*at, i]))

    load = row(L, lambda i: tirx.BufferLoad(A, [k, i]))
    store = row(S, lambda i: tirx.BufferLoad(L, [i]))
    use = row(C, lambda i: tirx.BufferLoad(S, [i]), k)
    ops = [ir.op_stmt("copy", ir.block("copy", ir.seq(load, store))), ir.op_stmt("use", use)]
    if split:
        marked = ir.block("copy", store, annotations={LOCAL_STAGE: 1})
        ops = [ir.op_stmt("copy.load", load), ir.op_stmt("copy.store", marked), ops[1]]
    body = ir.block("", ir.seq(*ops), [S, L])
    annotations = {f"software_pipeline_{key}": value for key, value in entries}
    node = tirx.For(k, ir.i32(0), ir.i32(16), ir.ForKind.SERIAL, body, None, annotations)
    return tirx.PrimFunc([A, C], ir.block("root", node), None, None)


def stages_of(func: Any) -> dict[str, tuple[int, int]]:
    return {op.name: (op.stage, op.order) for op in plan_of(func).ops}


def test_a_block_counts_its_statements() -> None:
    func = rows(("stage", [0, 0, 2]), ("order", [0, 2, 1]))
    assert stages_of(func) == {"use": (2, 0), "copy": (0, 1)}


def test_a_staged_copy_counts_as_load_and_store() -> None:
    func = rows(("stage", [0, 0, 1]), ("order", [0, 2, 1]), split=True)
    assert stages_of(func) == {"copy.load": (0, 0), "use": (1, 1), "copy.store": (0, 2)}
    assert staged_statements(the_loop(func).node) == {"copy"}
