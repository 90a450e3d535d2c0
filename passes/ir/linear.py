"""Write an index as a linear form: terms with constant coefficients, and what is left.

    affine(i * 4 + b, [i])             =>  {i: 4} + b
    terms_of(i * 4 + b - 3)            =>  {i: 4, b: 1} - 3

One class for whoever asks. What is left is an expression if only some variables are terms, a number
if everything is, and bounds (``bounds.py``) if some variables are known only by them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import tvm_ffi
from tvm import sym, tirx

from .nodes import Expr, Var, const_int, uses
from .wide_indices import WIDE, widened

Term: TypeAlias = "tuple[int, Expr]"
"""An expression and its coefficient."""

Rest = TypeVar("Rest")
"""What can be added, and multiplied by a number."""


@dataclass(frozen=True, slots=True)
class Linear(Generic[Rest]):
    """``sum(coefficients[term] * term) + base``; no coefficient is 0."""

    coefficients: Mapping[Any, int]
    base: Rest

    def plus(self, other: Linear[Rest]) -> Linear[Rest]:
        """Return the sum of two forms."""
        base: Any = self.base
        if not other.coefficients:
            return Linear(self.coefficients, base + other.base)
        total = dict(self.coefficients)
        for term, by in other.coefficients.items():
            total[term] = total.get(term, 0) + by
        return Linear({term: by for term, by in total.items() if by}, base + other.base)

    def scaled(self, factor: int) -> Linear[Rest]:
        """Return this form times a number."""
        base: Any = self.base
        total = {term: by * factor for term, by in self.coefficients.items()} if factor else {}
        return Linear(total, base * factor)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms, each with its coefficient first."""
        return tuple((by, term) for term, by in self.coefficients.items())

    def expr(self, dtype: str) -> Expr:
        """Return the sum of the terms as an expression; 0 for none."""
        parts = [term if by == 1 else term * tirx.const(by, dtype) for by, term in self.terms]
        return functools.reduce(operator.add, parts) if parts else tirx.const(0, dtype)


def affine(expr: Expr, variables: Sequence[Var]) -> Linear[Expr] | None:
    """Return ``expr`` as a linear form whose terms are ``variables``, or None."""
    narrow = {} if str(expr.ty.dtype) != WIDE else _in_64_bits(variables)
    if narrow:
        expr = _renamed(expr, narrow)
        if uses(expr, variables):
            return None
    names = [narrow.get(var, var) for var in variables]
    found = sym.detect_linear_equation(expr, names)
    if len(found) != len(variables) + 1:
        return None
    coefficients = {}
    for var, coefficient in zip(variables, found):
        value = const_int(coefficient)
        if value is None:
            return None
        if value:
            coefficients[var] = value
    return Linear(coefficients, sym.Analyzer().simplify(found[-1]))


def _in_64_bits(variables: Sequence[Var]) -> dict[Var, Var]:
    """Return a 64-bit variable for each of ``variables`` that has fewer bits."""
    narrow = [var for var in variables if str(var.ty.dtype) != WIDE]
    return {var: Var(str(var.name), WIDE) for var in narrow}


def _renamed(expr: Expr, names: Mapping[Var, Var]) -> Expr:
    """Return ``expr`` with 64-bit variables in place of those that are widened in it."""

    def visit(cast: Any) -> Any:
        if str(cast.ty.dtype) != WIDE:
            return cast
        if type(cast.value) is Var:
            return names.get(cast.value, cast)
        pushed = widened(cast.value)
        return cast if isinstance(pushed, tirx.Cast) else _renamed(pushed, names)

    return tvm_ffi.structural_map(expr, [(tirx.Cast, visit)], order="post")


def terms_of(
    expr: Expr, opened: Callable[[Expr], Linear[int] | None] = lambda _: None
) -> Linear[int]:
    """Return ``expr`` as terms with their coefficients, and a constant; no term is a sum.

    ``opened``: the form that an expression of another kind has, if it has one.
    """
    if isinstance(expr, (tirx.Add, tirx.Sub)):
        sign = 1 if isinstance(expr, tirx.Add) else -1
        return terms_of(expr.a, opened).plus(terms_of(expr.b, opened).scaled(sign))
    if isinstance(expr, tirx.Mul) and (factor := _literal(expr.b)) is not None:
        return terms_of(expr.a, opened).scaled(factor)
    known = _literal(expr)
    if known is not None:
        return Linear({}, known)
    return opened(expr) or Linear({expr: 1}, 0)


def _literal(expr: Expr) -> int | None:
    """Return the value of a constant, also a cast one; without simplifying anything else."""
    return const_int(expr) if isinstance(expr, (int, tirx.IntImm, tirx.Cast)) else None
