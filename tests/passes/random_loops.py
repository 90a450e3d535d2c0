"""Random thread-free loops: as TensorIR in op form, and as the places that each statement touches.

The places are an oracle that shares nothing with the passes: two instances conflict if they touch
one place and one of them writes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tvm import tirx

from pipeliner.passes.ir import nodes as ir

WIDTH = 3
"""Elements of a ring's slot and of a row of the arrays."""
ROWS = 32
FIRST = 6
"""Rows before the first one that a loop writes, for stencils to read."""


@dataclass(frozen=True)
class Statement:
    """``target`` row = function of ``sources`` rows.

    A name is a ring (``r0`` ...), an input (``A``), an output with a row offset (``("C", -2)``: row
    ``k - 2``), or the scratch buffer ``E`` from outside the loop. ``adds``: accumulates into its
    target. ``guarded``: runs in even iterations only.
    """

    target: Any
    sources: tuple[Any, ...]
    adds: bool = False
    guarded: bool = False


@dataclass(frozen=True)
class Loop:
    """``statements`` over ``k`` in ``[low, low + n)``; ``scopes``: of each ring."""

    statements: tuple[Statement, ...]
    scopes: tuple[str, ...]
    low: int = 0

    def rings(self) -> list[str]:
        """Names of the rings."""
        return [f"r{i}" for i in range(len(self.scopes))]


@st.composite
def loops(draw: Any, guards: bool = True) -> Loop:
    """Loops of two to six statements: copies, computations, accumulators, stencils, scratch."""
    scopes = draw(st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=3))
    statements = [Statement("r0", ("A",))]
    defined = ["r0"]
    for name in [f"r{i}" for i in range(1, len(scopes))]:
        source = draw(st.sampled_from([*defined, "A"]))
        statements.append(Statement(name, (source,)))
        defined.append(name)
    kinds = ["store", "accumulate", "stencil", "scratch", "read_scratch"]
    for _ in range(draw(st.integers(1, 3))):
        source = draw(st.sampled_from(defined))
        kind = draw(st.sampled_from(kinds))
        guarded = guards and draw(st.booleans())
        if kind == "store":
            statements.append(Statement(("C", 0), (source,), guarded=guarded))
        elif kind == "accumulate":
            statements.append(Statement("S", (source,), adds=True, guarded=guarded))
        elif kind == "stencil":
            back = draw(st.integers(1, 3))
            statements.append(Statement(("C", 0), (source, ("C", -back)), guarded=guarded))
        elif kind == "scratch":
            statements.append(Statement("E", (source,), guarded=guarded))
        else:
            statements.append(Statement(("D", 0), (source, "E"), guarded=guarded))
    return Loop(tuple(statements), tuple(scopes), draw(st.sampled_from([0, 0, 1, 5])))


def function(loop: Loop, n: int | None) -> Any:
    """A PrimFunc over A, C, D, S, E (and ``n`` when None) with the loop in op form."""
    arrays = {name: ir.buffer([ROWS, WIDTH], "float32", name, "global") for name in "ACD"}
    arrays |= {name: ir.buffer([WIDTH], "float32", name, "global") for name in "SE"}
    rings = {
        name: ir.buffer([WIDTH], "float32", name, scope)
        for name, scope in zip(loop.rings(), loop.scopes, strict=True)
    }
    extent = ir.Var("n", "int32") if n is None else ir.i32(n)
    k = ir.Var("k", "int32")

    def place(name: Any, i: Any) -> tuple[Any, list[Any]]:
        if isinstance(name, tuple):
            return arrays[name[0]], [k + (FIRST + name[1]), i]
        if name == "A":
            return arrays["A"], [k + FIRST, i]
        return (rings[name] if name in rings else arrays[name]), [i]

    def body(number: int, s: Statement) -> Any:
        def element(i: Any) -> Any:
            value: Any = tirx.const(float(number + 1), "float32")
            for source in s.sources:
                buf, index = place(source, i)
                value = value * tirx.const(0.5, "float32") + tirx.BufferLoad(buf, index)
            buf, index = place(s.target, i)
            if s.adds:
                value = tirx.BufferLoad(buf, index) * tirx.const(0.5, "float32") + value
            return tirx.BufferStore(buf, value, index)

        stmt = ir.loop("i", WIDTH, element)
        if s.guarded:
            even = tirx.EQ(tirx.floormod(k, ir.i32(2)), ir.i32(0))
            stmt = tirx.IfThenElse(even, stmt, None)
        return ir.op_stmt(f"op{number}", stmt)

    ops = [body(number, s) for number, s in enumerate(loop.statements)]
    inner = ir.block("", ir.seq(*ops), list(rings.values()))
    node = tirx.For(k, ir.i32(loop.low), extent, ir.ForKind.SERIAL, inner)
    params = [*arrays.values(), *([extent] if n is None else [])]
    func = tirx.PrimFunc(params, ir.block("root", node), None, None)
    return func.with_attr("s_tir", True)


def arguments(seed: int) -> list[np.ndarray]:
    """Random A, C, D, S, E."""
    rng = np.random.default_rng(seed)
    shapes = [(ROWS, WIDTH)] * 3 + [(WIDTH,)] * 2
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def touched(loop: Loop, number: int, k: int) -> tuple[set[Any], set[Any]]:
    """(read, written) places of statement ``number`` in iteration ``k``; rings are per iteration."""
    s = loop.statements[number]

    def place(name: Any) -> Any:
        if isinstance(name, tuple):
            return (name[0], k + name[1])
        if name == "A":
            return ("A", k)
        return (name, k) if name in loop.rings() else (name, None)

    target = place(s.target)
    return {place(source) for source in s.sources} | ({target} if s.adds else set()), {target}


def is_legal(loop: Loop, stages: Sequence[int], order: Sequence[int], n: int) -> bool:
    """Whether no two conflicting instances of ``n`` iterations change places."""
    instances = list(itertools.product(range(n), range(len(loop.statements))))
    for (ka, a), (kb, b) in itertools.combinations(instances, 2):
        reads_a, writes_a = touched(loop, a, ka)
        reads_b, writes_b = touched(loop, b, kb)
        if not (writes_a & (reads_b | writes_b) or reads_a & writes_b):
            continue
        if (ka + stages[a], order[a]) > (kb + stages[b], order[b]):
            return False
    return True
