"""Prove that two indices into shared memory are never equal, whatever their variables are.

    (k + 3) % 4  and  k % 4              never equal
    i (in 0 .. 7)  and  j + 8 (j >= 0)   never equal

The first, slots of a ring, is what TVM's analyzer does not prove; the second follows from the
bounds of the variables that differ between the two sides.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import prim

from ..ir import nodes as ir


@dataclass(eq=False)
class _Index:
    """What is known of an index on its own; ``value``: the number, if it is a constant."""

    expr: Any
    prover: sym.Analyzer

    @cached_property
    def value(self) -> int | None:
        return int(self.expr.value) if type(self.expr) is tirx.IntImm else None

    @cached_property
    def variables(self) -> frozenset[Any]:
        return ir.variables(self.expr)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        bound = self.prover.const_int_bound(self.expr)
        return bound.min_value, bound.max_value

    @cached_property
    def residues(self) -> Sequence[tuple[Any, int | None]]:
        """What it may be: values, each with the modulus that it is known by (None: exactly)."""
        expr = self.prover.simplify(self.expr)
        modulus = _modulus(expr)
        inner = expr if modulus is None else expr.a
        return [(value, modulus) for value in _clamped(inner, self.prover)]


@dataclass(eq=False)
class _Found:
    """Results under some conditions: indices by expression and by structure, and pairs."""

    by_expr: dict[Any, _Index] = field(default_factory=dict)
    by_structure: dict[Any, _Index] = field(default_factory=dict)
    pairs: dict[tuple[_Index, _Index, bool], bool] = field(default_factory=dict)


class Differences:
    """Compares the indices of one kernel, each pair once.

    Unrolled code compares the same few slots and rows many times. ``prover``: knows the bounds of
    all variables.
    """

    def __init__(self, prover: sym.Analyzer) -> None:
        self._prover = prover
        self._conditions: tuple[Any, ...] = ()
        self._found: dict[tuple[Any, ...], _Found] = {(): _Found()}

    @contextmanager
    def assuming(self, condition: Any) -> Iterator[None]:
        """Compare under the assumption that ``condition`` holds."""
        outer = self._conditions
        self._conditions = (*outer, tvm_ffi.StructuralKey(condition))
        self._found.setdefault(self._conditions, _Found())
        try:
            with self._prover.constraint_scope(condition):
                yield
        finally:
            self._conditions = outer

    def differ(self, a: Any, b: Any, local: Iterable[Container[Any]]) -> bool:
        """Whether ``a`` and ``b`` are never equal; None is any index.

        ``local``: contains the variables that differ between the two sides, because threads differ
        or the position inside the access does.
        """
        if a is None or b is None:
            return False
        found = self._found[self._conditions]
        x, y = self._index(a, found), self._index(b, found)
        if x.value is not None and y.value is not None:
            return x.value != y.value  # most slots and rows, after unrolling
        moves = any(var in some for some in local for index in (x, y) for var in index.variables)
        pair = x, y, moves
        if pair not in found.pairs:
            found.pairs[pair] = _out_of_reach(x, y) if moves else _never_meet(x, y)
        return found.pairs[pair]

    def _index(self, expr: Any, found: _Found) -> _Index:
        """Return one object for all expressions of the same structure."""
        index = found.by_expr.get(expr)
        if index is None:
            key = tvm_ffi.StructuralKey(expr)
            index = found.by_structure.setdefault(key, _Index(expr, self._prover))
            found.by_expr[expr] = index
        return index


def _out_of_reach(x: _Index, y: _Index) -> bool:
    """Whether no value of one is a value of the other."""
    return x.bounds[1] < y.bounds[0] or y.bounds[1] < x.bounds[0]


def _never_meet(x: _Index, y: _Index) -> bool:
    """Whether the two, in the same variables, differ for every value of those."""
    return all(_residues_differ(a, b, x.prover) for a in x.residues for b in y.residues)


def _modulus(expr: Any) -> int | None:
    """Return ``n`` of ``x % n`` and of ``x & (n - 1)``."""
    if isinstance(expr, prim.FloorMod):
        return ir.const_int(expr.b)
    if isinstance(expr, prim.BitwiseAnd):
        mask = ir.const_int(expr.b)
        return mask + 1 if mask is not None and mask > 0 and mask & (mask + 1) == 0 else None
    return None


def _clamped(expr: Any, prover: sym.Analyzer) -> list[Any]:
    """Return ``expr`` with each ``min`` and ``max`` resolved, both ways if neither is proven."""
    found = ir.collect(expr, (prim.Min, prim.Max))
    if not found:
        return [expr]
    clamp = found[0]
    low_first = prover.can_prove(clamp.a <= clamp.b)
    low_last = not low_first and prover.can_prove(clamp.b <= clamp.a)
    if isinstance(clamp, prim.Max):
        low_first, low_last = low_last, low_first
    ways = [clamp.a] if low_first else [clamp.b] if low_last else [clamp.a, clamp.b]
    return [value for way in ways for value in _clamped(_replace(expr, clamp, way), prover)]


def _replace(expr: Any, old: Any, new: Any) -> Any:
    swap = (type(old), lambda node: new if node.same_as(old) else node)
    return tvm_ffi.structural_map(expr, [swap], order="pre")


def _residues_differ(
    a: tuple[Any, int | None], b: tuple[Any, int | None], prover: sym.Analyzer
) -> bool:
    (x, m), (y, n) = a, b
    gap = prover.simplify(y - x)
    if m is None and n is None:
        distance = ir.const_int(gap)
        return distance != 0 if distance is not None else bool(prover.can_prove(gap != 0))
    # Equal values would make x and y congruent by every divisor of both moduli.
    residue = ir.const_int(prover.simplify(tirx.floormod(gap, math.gcd(m or 0, n or 0))))
    if residue is not None:
        return residue != 0
    exact = ir.const_int(x if m is None else y) if m is None or n is None else None
    return exact is not None and not 0 <= exact < (m or n or 0)
