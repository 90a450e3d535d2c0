"""Periods of what decides, derived from expressions, checked by z3 for every iteration.

A proof stands on this: from iteration ``after`` on, what decides repeats every ``every`` iterations.
z3 knows nothing of how that was derived. It is no dependency: pip install '.[z3]'.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.ir import prim

from pipeliner.emulator.translate.operation import TRIP_COUNT
from pipeliner.proof.reading.eventually import Repeats

z3 = pytest.importorskip("z3", reason="z3-solver is missing: pip install '.[z3]'")

MILLISECONDS = 20_000
"""That z3 may take for one expression."""


def translated(expr: Any, of: Any, trips: Any = None) -> Any:
    """An expression over the variable of a loop and its trip count, as z3 has it."""
    if isinstance(expr, tvm.ir.Var):
        return of
    if isinstance(expr, tvm.ir.Call):
        return trips
    if isinstance(expr, prim.IntImm):
        return z3.IntVal(int(expr.value))
    a, b = translated(expr.a, of, trips), translated(expr.b, of, trips)
    made = {
        prim.Add: lambda: a + b,
        prim.Sub: lambda: a - b,
        prim.Mul: lambda: a * b,
        prim.FloorDiv: lambda: a / b,
        prim.FloorMod: lambda: a % b,
        prim.Min: lambda: z3.If(a < b, a, b),
        prim.Max: lambda: z3.If(a > b, a, b),
        prim.EQ: lambda: a == b,
        prim.NE: lambda: a != b,
        prim.LT: lambda: a < b,
        prim.LE: lambda: a <= b,
        prim.GT: lambda: a > b,
        prim.GE: lambda: a >= b,
        prim.And: lambda: z3.And(a, b),
        prim.Or: lambda: z3.Or(a, b),
    }
    return made[type(expr)]()


def repeats(expr: Any, after: int, every: int) -> bool:
    """Whether an expression is the same ``every`` iterations later, in each from ``after`` on."""
    at = z3.Int("at")
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    solver.add(at >= after, translated(expr, at) != translated(expr, at + every))
    answer = solver.check()
    assert answer != z3.unknown, solver.reason_unknown()
    return bool(answer == z3.unsat)


def holds_far(expr: Any, after: int, every: int, horizon: int) -> bool:
    """Whether an expression is the same ``every`` iterations later with as many to go.

    Also, if there are ``horizon`` to go or more, with any other number of them that large.
    """
    at, left, other = z3.Ints("at left other")
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    alike = z3.Or(left == other, z3.And(left >= horizon, other >= horizon))
    solver.add(at >= after, left >= 1, other >= 1, alike)
    later = translated(expr, at + every, at + every + other)
    solver.add(translated(expr, at, at + left) != later)
    answer = solver.check()
    assert answer != z3.unknown, solver.reason_unknown()
    return bool(answer == z3.unsat)


def constant(value: int) -> Any:
    return tirx.IntImm("int32", value)


def equal(expr: Any, value: int) -> Any:
    return tirx.EQ(expr, constant(value))


def number(rng: random.Random, of: Any, depth: int) -> Any:
    """A random integer expression over a variable."""
    kind = rng.randrange(6) if depth else 0
    if kind == 0:
        return of * rng.randint(1, 3) + rng.randint(0, 9)
    inner = number(rng, of, depth - 1)
    by = rng.randint(2, 5)
    if kind == 1:
        return tirx.floordiv(inner, by)
    if kind == 2:
        return tirx.floormod(inner, by)
    if kind == 3:
        return tirx.min(inner, rng.randint(0, 12))
    if kind == 4:
        return tirx.max(inner, rng.randint(0, 12))
    return inner + tirx.floormod(number(rng, of, depth - 1), by)


def condition(rng: random.Random, of: Any) -> Any:
    """A random condition over a variable, as conditions and parities in kernels are."""
    value = number(rng, of, 3)
    if rng.random() < 0.5:
        return equal(tirx.floormod(value, rng.randint(2, 6)), rng.randint(0, 3))
    other = tirx.NE(tirx.floormod(number(rng, of, 2), rng.randint(2, 4)), constant(1))
    bound = rng.choice([value < rng.randint(1, 20), value >= rng.randint(1, 20)])
    return tirx.And(bound, other) if rng.random() < 0.5 else tirx.Or(bound, other)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_derived_holds_for_every_iteration(seed: int) -> None:
    var = tirx.Var("i", "int32")
    expr = condition(random.Random(seed), var)
    found = Repeats({var}, {}, {})
    found.decide(expr)
    assert repeats(expr, found.after[var], found.every[var])


def test_a_period_that_is_too_short_is_seen() -> None:
    var = tirx.Var("i", "int32")
    expr = equal(tirx.floormod(tirx.floordiv(var, 3), 2), 1)
    found = Repeats({var}, {}, {})
    found.decide(expr)
    assert repeats(expr, found.after[var], found.every[var])
    assert not repeats(expr, 0, 3)


def test_a_comparison_settles_where_it_is_said_to() -> None:
    var = tirx.Var("i", "int32")
    expr = tirx.NE(var, constant(17))
    found = Repeats({var}, {}, {})
    found.decide(expr)
    assert repeats(expr, found.after[var], found.every[var])
    assert not repeats(expr, 16, 1)


LOOP = 7
"""The number of the statement of a loop."""


def to_go(rng: random.Random, var: Any, trips: Any) -> Any:
    """A random comparison of the variable of a loop with its trip count, and more."""
    factor, kind = rng.randint(1, 3), rng.choice([tirx.LT, tirx.LE, tirx.EQ, tirx.NE, tirx.GE])
    near = var * factor + rng.randint(-4, 12)
    if rng.random() < 0.5:
        near = near + tirx.floormod(var, rng.randint(2, 4))
    far = trips * (factor + rng.choice((0, 0, 1, 4))) + rng.randint(-3, 3)
    if rng.random() < 0.2:
        near, far = near + trips, far + trips * rng.randint(1, 2)
    compared = kind(near, far) if rng.random() < 0.5 else kind(far, near)
    if rng.random() < 0.5:
        return compared
    return rng.choice([tirx.And, tirx.Or])(compared, condition(rng, var))


@pytest.mark.parametrize("seed", range(30))
def test_iterations_to_go_decide_alike_where_there_are_enough(seed: int) -> None:
    var = tirx.Var("i", "int32")
    trips = tirx.call_pure_extern("int32", TRIP_COUNT, constant(LOOP), constant(100))
    expr = to_go(random.Random(seed), var, trips)
    found = Repeats({var}, {}, {}, {LOOP: var})
    found.decide(expr)
    assert holds_far(expr, found.after[var], found.every[var], found.horizon[var])


def test_a_horizon_that_is_too_near_is_seen() -> None:
    var = tirx.Var("i", "int32")
    trips = tirx.call_pure_extern("int32", TRIP_COUNT, constant(LOOP), constant(100))
    expr = var + 5 < trips
    found = Repeats({var}, {}, {}, {LOOP: var})
    found.decide(expr)
    assert found.horizon[var] == 6
    assert holds_far(expr, 0, 1, 6)
    assert not holds_far(expr, 0, 1, 5)
