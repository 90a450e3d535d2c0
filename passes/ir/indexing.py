"""Answer questions about index expressions: what divides them, what is proven, where they point.

    alignment(x * 8 + 4)         =>  4
    x < 8 and y < 8              =>  x < 8, y < 8

Every answer is a proof or "unknown", never a guess: a vector access or a 16-byte copy is legal only
if it is proven so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range, prim

from .linear import affine
from .nodes import Buffer, Expr, Var, const_int, has, i32, simplify, substitute, uses, walk
from .wide_indices import is_large, widened

Numbers: TypeAlias = "npt.NDArray[np.int64]"

_BINARY: Final[Mapping[type, Any]] = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.FloorDiv: np.floor_divide,
    prim.FloorMod: np.mod,
    prim.Min: np.minimum,
    prim.Max: np.maximum,
    prim.BitwiseAnd: np.bitwise_and,
    prim.BitwiseOr: np.bitwise_or,
    prim.BitwiseXor: np.bitwise_xor,
    prim.LShift: np.left_shift,
    prim.RShift: np.right_shift,
}

UNBOUNDED_ALIGNMENT: Final = 1 << 20
"""Alignment of zero: more than any vector needs."""


def strides(buf: Buffer) -> list[Expr]:
    """Return the elements between neighbours along each dimension (row-major by default)."""
    if len(buf.strides) == len(buf.shape):
        return list(buf.strides)
    shape = list(buf.shape)
    return row_major([widened(extent) for extent in shape] if is_large(buf) else shape)


def row_major(shape: Sequence[Expr]) -> list[Expr]:
    """Return the elements between neighbours along each dimension of ``shape``."""
    result: list[Expr] = [i32(1)]
    for extent in reversed(shape[1:]):
        result.append(result[-1] * extent)
    return result[::-1]


def offset(buf: Buffer, indices: Sequence[Expr]) -> Expr:
    """Return the flat element offset of an access, the buffer's own offset included.

    Quotient and modulo of one position in neighbouring dimensions are joined again.
    """
    total: Expr = i32(0)
    if is_large(buf):
        indices = [widened(index) for index in indices]
    for index, stride in zip(indices, strides(buf)):
        total = total + index * stride
    if const_int(buf.elem_offset) != 0:
        total = total + buf.elem_offset
    return simplify(total) if any(map(_is_split, indices)) else total


def _is_split(index: Expr) -> bool:
    return has(index, (tirx.FloorMod, tirx.FloorDiv))


def together(expr: Expr, moving: Collection[Var], ranges: Any) -> Expr:
    """Return ``expr`` simplified, with quotient and modulo of one position joined again.

    If a number such as ``tile * 132 + blockIdx.x`` occurs in some terms by its quotient and in
    others by a modulo of another divisor, TVM joins them only if it is written as one quotient and
    one modulo throughout. ``moving``: variables of positions in a tile, of which TVM needs to know
    more than a number. ``ranges``: an analyzer that knows the bounds of all variables.
    """
    expr = ranges.simplify(expr)
    back: dict[Var, Expr] = {}
    for number, by in _divided(expr, moving):
        high, low = Var("high", "int32"), Var("low", "int32")
        most = int(ranges.const_int_bound(number).max_value)
        ranges.bind(high, Range(0, most // by + 1))
        ranges.bind(low, Range(0, by))
        expr = _replaced(expr, number, high * by + low)
        back |= {high: tirx.floordiv(number, by), low: tirx.floormod(number, by)}
    return ranges.simplify(substitute(ranges.simplify(expr), back)) if back else expr


def _divided(expr: Expr, moving: Collection[Var]) -> list[tuple[Expr, int]]:
    """Return what is divided by constants, not divided itself, with its largest divisor."""
    found: list[tuple[Expr, int]] = []

    def visit(node: Any) -> None:
        by = const_int(node.b)
        if by is None or _is_split(node.a) or uses(node.a, moving):
            return
        for n, (number, largest) in enumerate(found):
            if tvm_ffi.structural_equal(number, node.a):
                found[n] = number, max(by, largest)
                return
        found.append((node.a, by))

    walk(expr, (tirx.FloorDiv, tirx.FloorMod), visit)
    return found


def _replaced(expr: Expr, number: Expr, by: Expr) -> Expr:
    def visit(node: Any) -> Any:
        return by if tvm_ffi.structural_equal(node, number) else node

    return tvm_ffi.structural_map(expr, [(type(number), visit)], order="pre")


def alignment(expr: Expr, analyzer: Any | None = None) -> int:
    """Return the largest power of two that provably divides ``expr``."""
    known = (analyzer or sym.Analyzer()).modular_set(expr)
    divisor = math.gcd(int(known.coeff), int(known.base))
    return divisor & -divisor if divisor else UNBOUNDED_ALIGNMENT


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the terms of a conjunction; a constant true has none."""
    if isinstance(condition, tirx.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [] if const_int(condition) == 1 else [condition]


def conjunction(parts: Sequence[Expr]) -> Expr | None:
    """Return the conjunction of ``parts``, or None if there are none."""
    result = None
    for part in parts:
        result = part if result is None else tirx.And(result, part)
    return result


def disjuncts(condition: Expr) -> list[Expr]:
    """Return the terms of a disjunction."""
    if isinstance(condition, tirx.Or):
        return [*disjuncts(condition.a), *disjuncts(condition.b)]
    return [condition]


def is_proven(condition: Expr, analyzer: Any) -> bool:
    """Whether one disjunct of ``condition`` always holds by what ``analyzer`` knows."""
    return any(
        analyzer.can_prove(part, sym.ProofStrength.SYMBOLIC_BOUND) for part in disjuncts(condition)
    )


def unproven(condition: Expr, analyzer: Any) -> list[Expr]:
    """Return the conjuncts of ``condition`` that ``analyzer`` cannot prove."""
    return [part for part in conjuncts(condition) if not is_proven(part, analyzer)]


def is_uniform(condition: Expr, lane: Var, lanes: int) -> bool:
    """Whether a conjunct has one value for ``lane`` in ``0 .. lanes - 1``.

    It has if it does not mention the lane, or if it is ``base + lane < bound`` or ``base + lane >=
    bound``, in any spelling, and ``lanes`` divides ``bound - base``.
    """
    if not uses(condition, [lane]):
        return True
    if not isinstance(condition, (tirx.LT, tirx.LE, tirx.GT, tirx.GE)):
        return False
    left, right = condition.a, condition.b
    if isinstance(condition, (tirx.GT, tirx.GE)):
        left, right = right, left
    slack = right - left + (1 if isinstance(condition, (tirx.LE, tirx.GE)) else 0)
    known = affine(slack, [lane])
    if known is None or abs(known.coefficients.get(lane, 0)) != 1:
        return False
    # base - lane > 0, or base + lane > 0, which is base - 1 + lane >= 0
    first = known.base - (1 if known.coefficients[lane] == 1 else 0)
    return alignment(first) % lanes == 0


def outside_quotients(expr: Expr, lane: Var, lanes: int) -> Expr:
    """Return ``expr`` with ``lane`` taken out of quotients that are the same for all ``lanes``.

    ``(x * 8 + v) // 56`` is ``x * 8 // 56``, and the rest is ``x * 8 % 56 + v``, for ``v`` below 8.
    """

    def visit(node: Any) -> Any:
        by, known = const_int(node.b), affine(node.a, [lane])
        if by is None or by % lanes or known is None or known.coefficients != {lane: 1}:
            return node
        found = sym.Analyzer().modular_set(known.base)
        if math.gcd(int(found.coeff), int(found.base)) % lanes:
            return node
        if isinstance(node, tirx.FloorDiv):
            return tirx.floordiv(known.base, i32(by))
        return tirx.floormod(known.base, i32(by)) + lane

    if lanes == 1 or not (_is_split(expr) and uses(expr, [lane])):
        return expr
    kinds = [(tirx.FloorDiv, visit), (tirx.FloorMod, visit)]
    return tvm_ffi.structural_map(expr, kinds, order="post")


def at_lane(expr: Any, lane: Var, value: int | Expr) -> Any:
    """Return ``expr`` with ``lane`` fixed."""
    return substitute(expr, {lane: i32(value) if isinstance(value, int) else value})


def evaluate(expr: Expr, values: Mapping[Var, Numbers]) -> Any | None:
    """Return ``expr`` for all ``values``, or None if it contains something not known from them."""
    kind = type(expr)
    if kind is tirx.IntImm:
        return np.int64(int(expr.value))
    if kind is tirx.Cast:
        return evaluate(expr.value, values)
    combine = _BINARY.get(kind)
    if combine is not None:
        left, right = evaluate(expr.a, values), evaluate(expr.b, values)
        return None if left is None or right is None else combine(left, right)
    return values.get(expr) if kind is Var else None


_COMPARED: Final[Mapping[type, Any]] = {
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


def holding(condition: Expr, values: Mapping[Var, Numbers]) -> Any | None:
    """Return where a condition holds, or None if that is not known from ``values``."""
    if isinstance(condition, tirx.Not):
        inner = holding(condition.a, values)
        return None if inner is None else np.logical_not(inner)
    combine = _COMPARED.get(type(condition))
    if combine is None:
        return evaluate(condition, values)
    part = holding if isinstance(condition, tirx.And | tirx.Or) else evaluate
    left, right = part(condition.a, values), part(condition.b, values)
    return None if left is None or right is None else combine(left, right)


def comparison(part: Expr) -> tuple[Expr, Expr, int] | None:
    """Return ``a``, ``b`` and a slack of 0 or 1 with ``part`` as ``a < b + slack``, or None."""
    if isinstance(part, tirx.LT):
        return part.a, part.b, 0
    if isinstance(part, tirx.LE):
        return part.a, part.b, 1
    if isinstance(part, tirx.GT):
        return part.b, part.a, 0
    if isinstance(part, tirx.GE):
        return part.b, part.a, 1
    return None
