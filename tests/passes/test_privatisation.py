"""Which buffers of a body may have versions."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx

from pipeliner.diagnostics import Reason
from pipeliner.passes.ir import nodes as ir

from .core_ops import graph_of

K, TX = ir.Var("k", "int32"), ir.Var("tx", "int32")
A, C = (ir.buffer([64, 64], "float32", name, "global") for name in "AC")
S = ir.buffer([64], "float32", "S", "shared")


def write(index: Any) -> Any:
    return tirx.BufferStore(S, tirx.BufferLoad(A, [K, TX]), [index])


def read(index: Any) -> Any:
    return tirx.BufferStore(C, tirx.BufferLoad(S, [index]), [K, TX])


def chosen(condition: Any, index: Any) -> Any:
    """A read in an expression, under ``condition``."""
    zero = tirx.const(0, "float32")
    value = tirx.if_then_else(condition, tirx.BufferLoad(S, [index]), zero)
    return tirx.BufferStore(C, value, [K, TX])


def when(condition: Any, stmt: Any) -> Any:
    return tirx.IfThenElse(condition, stmt, None)


def either(condition: Any, stmt: Any, other: Any) -> Any:
    return tirx.IfThenElse(condition, stmt, other)


def graph(*statements: Any) -> Any:
    ops = [ir.op_stmt(f"op{i}", stmt) for i, stmt in enumerate(statements)]
    body = ir.block("", ir.seq(*ops), [S])
    node = tirx.For(K, ir.i32(0), ir.i32(16), ir.ForKind.SERIAL, body)
    threads = ir.thread_loop(TX, 32, "threadIdx.x", node)
    return graph_of(tirx.PrimFunc([A, C], ir.block("root", threads), None, None))


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ((write(TX), read(31 - TX)), ""),
        ((write(TX), write(TX + 32), read(63 - TX)), ""),
        ((write(TX), read(TX + 1)), "version.read_first"),
        ((read(TX), write(TX)), "version.read_first"),
        ((write(ir.i32(0)), read(ir.i32(1)), write(ir.i32(1))), "version.read_first"),
        ((write(K % 4), read((K + 1) % 4)), "version.moves"),
        ((when(K < 8, write(TX)), read(TX)), "version.not_always_written"),
        ((when(K < 8, write(TX)), when(K < 8, read(TX))), ""),
        (
            (when(K < 8, write(TX)), when(K < 9, read(TX))),
            "version.not_always_written",
        ),
        ((write(TX), when(K < 8, read(TX))), ""),
        ((when(K < 8, write(TX)), chosen(K < 8, TX)), ""),
        (
            (when(K < 8, write(TX)), chosen(K < 9, TX)),
            "version.not_always_written",
        ),
        (
            (when(K < 8, write(TX)), chosen(tirx.Not(K < 8), TX)),
            "version.not_always_written",
        ),
        ((either(K < 8, write(TX), write(TX)), read(TX)), ""),
        (
            (either(K < 8, write(TX), write(TX + 1)), read(TX)),
            "version.not_always_written",
        ),
        ((either(tirx.And(K < 8, TX < 9), write(TX), write(TX)), read(TX)), ""),
        (
            (either(tirx.And(K < 8, TX < 9), write(TX), write(TX + 1)), read(TX)),
            "version.not_always_written",
        ),
        (
            (when(tirx.And(K < 8, TX < 9), write(TX)), read(TX)),
            "version.not_always_written",
        ),
        (
            (when(K < 8, either(tirx.And(K < 7, TX < 9), write(TX), write(TX))), read(TX)),
            "version.not_always_written",
        ),
        (
            (when(TX < 8, either(K < 8, write(TX), write(TX))), read(TX)),
            "",
        ),
        (
            (when(K < 9, either(K < 8, write(TX), write(TX))), read(TX)),
            "version.not_always_written",
        ),
    ],
)
def test_fresh_or_carried(statements: tuple[Any, ...], why: str) -> None:
    found = graph(*statements).graph
    assert found["carried"] == ({"S": Reason(why)} if why else {})
    assert ("S" in found["rings"]) == (not why)


def test_a_condition_that_the_body_changes_proves_nothing() -> None:
    flag = tirx.BufferLoad(C, [ir.i32(0), ir.i32(0)]) < tirx.const(0, "float32")
    found = graph(when(flag, write(TX)), when(flag, read(TX)))
    assert found.graph["carried"] == {"S": Reason("version.loaded_condition")}
