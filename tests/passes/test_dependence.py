"""Edges of the dependence graph, by kind and distance."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from .core_ops import edges_of, graph_of, op_form


def carried(graph: Any) -> set[tuple[str, str, str, str, int]]:
    return {edge for edge in edges_of(graph) if edge[4]}


def test_stencil_accumulator_and_rings() -> None:
    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32"), S: T.Buffer((1,), "float32")
    ):
        with T.sblock("root"):
            for k in T.serial(2, 9):
                with T.sblock(""):
                    X = T.sblock_alloc_buffer((4,), "float32")
                    for i in range(4):
                        X[i] = A[k * 4 + i]
                    S[0] = S[0] + X[0]
                    C[k * 4] = X[3] + C[k * 4 - 8]

    graph = graph_of(op_form(func, ["load", "sum", "step"]))
    assert set(graph.graph["rings"]) == {"X"}
    assert {e for e in edges_of(graph) if not e[4]} == {
        ("load", "sum", "RAW", "X", 0),
        ("load", "step", "RAW", "X", 0),
    }
    assert carried(graph) == {
        ("sum", "sum", "RAW", "S", 1),
        ("sum", "sum", "WAR", "S", 1),
        ("sum", "sum", "WAW", "S", 1),
        ("step", "step", "RAW", "C", 2),
    }


def test_streaming_has_no_carried_edge() -> None:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        with T.sblock("root"):
            for k in T.serial(16):
                for i in range(4):
                    C[k * 4 + i] = A[k * 4 + i] + T.float32(1)

    assert edges_of(graph_of(op_form(func, ["add"]))) == set()


def test_overlapping_rows_meet_in_the_next_iteration() -> None:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((80,), "float32"), C: T.Buffer((80,), "float32")):
        with T.sblock("root"):
            for k in T.serial(16):
                for i in range(5):
                    C[k * 4 + i] = A[k * 4 + i] + T.float32(1)

    assert edges_of(graph_of(op_form(func, ["add"]))) == {("add", "add", "WAW", "C", 1)}


def test_unknown_index_orders_every_iteration() -> None:
    @T.prim_func(s_tir=True)
    def func(Index: T.Buffer((16,), "int32"), C: T.Buffer((64,), "float32")):
        with T.sblock("root"):
            for k in T.serial(16):
                C[Index[k]] = C[Index[k]] + T.float32(1)

    kinds = {(kind, d) for _, _, kind, _, d in edges_of(graph_of(op_form(func, ["add"])))}
    assert kinds == {("RAW", 1), ("WAR", 1), ("WAW", 1)}


def test_a_distance_beyond_the_trip_count_is_no_edge() -> None:
    @T.prim_func(s_tir=True)
    def func(C: T.Buffer((64,), "float32")):
        with T.sblock("root"):
            for k in T.serial(4):
                C[k + 4] = C[k] + T.float32(1)

    assert edges_of(graph_of(op_form(func, ["step"]))) == set()


def test_read_before_write_carries_a_value() -> None:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        with T.sblock("root"):
            for k in T.serial(16):
                with T.sblock(""):
                    S = T.sblock_alloc_buffer((1,), "float32")
                    S[0] = S[0] + A[k]
                    C[k] = S[0]

    graph = graph_of(op_form(func, ["sum", "out"]))
    assert graph.graph["carried"] == {"S": "it is read before it is written"}
    assert graph.graph["rings"] == {}
    assert ("out", "sum", "WAR", "S", 1) in edges_of(graph)


@pytest.mark.parametrize(("shift", "distances"), [(0, {0}), (1, {0, 1})])
def test_threads_are_instances_of_their_own(shift: int, distances: set[int]) -> None:
    """Other threads' rows: index 16 k + tx stays in its own iteration, shifted by one it does not."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((512,), "float32"),
        C: T.Buffer((512,), "float32"),
        D: T.Buffer((512,), "float32"),
    ):
        for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
            with T.sblock(""):
                for k in T.serial(16):
                    C[k * 16 + tx] = A[k * 16 + tx]
                    D[k * 16 + tx] = C[k * 16 + tx - shift]

    graph = graph_of(op_form(func, ["write", "read"]))
    assert {d for u, v, kind, b, d in edges_of(graph) if (u, v, b) == ("write", "read", "C")} == (
        distances
    )


def test_a_barrier_orders_everything() -> None:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        with T.sblock("root"):
            for k in T.serial(16):
                C[k] = A[k]
                T.evaluate(T.tvm_storage_sync("shared"))

    edges = edges_of(graph_of(op_form(func, ["copy", "barrier"])))
    assert ("copy", "barrier", "RAW", "<fence>", 0) in edges
    assert ("barrier", "copy", "RAW", "<fence>", 1) in edges
