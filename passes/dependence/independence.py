"""Prove that iterations of a nest may be made by different threads at the same time.

    for i, j in T.grid(32, 16): h[i] = h[i] + S[i, j]       # i: each row is one thread's
    for i, j in T.grid(32, 16): C[J[i], j] = S[i, j]        # j: two values of i may be one row

A block with the attribute ``pipeliner.distinct`` promises what nobody can prove of ``J``: no two
iterations that store do so to one element. A promise that is broken is a race, which the emulator
reports.

Iterations that store one element stay together, in order, in the thread that makes it: those of
``j`` in the first nest. A variable is shared out over threads if each of its iterations stores
another element and reads none that another iteration stores. If that is proven of some variables
only, iterations are shared out along those; LoweringError says what is not proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...errors import LoweringError
from ...values.facts import DISTINCT
from ..ir.linear import affine, terms_of
from ..ir.nodes import Expr, TensorLoad, Var, const_int, has, i32, substitute, uses, walk
from ..ir.patterns import Nest

MOST: Final = 1 << 31
"""Of a number whose digits are told apart."""


def repeated(nest: Nest) -> list[Var]:
    """Return the loop variables of ``nest`` on which the element that it stores does not depend."""
    return [var for var in nest.vars if not uses(list(nest.store.indices), [var])]


def check_independent(nest: Nest, variables: Sequence[Var]) -> None:
    """Raise LoweringError if iterations of ``variables`` may depend on each other."""
    target, indices = nest.store.buffer, list(nest.store.indices)
    others = [load for load in _reloads(nest) if not _same(load.indices, indices)]
    if others and variables:
        why = Reason("share.reads", read=_text(others[0]), stored=_text(nest.store))
        raise LoweringError("block.unmapped", block=nest.name, why=why)
    if not (nest.annotations.get(DISTINCT) or _are_distinct(nest, variables)):
        loaded = any(has(index, TensorLoad) for index in indices)
        code = "share.loaded_index" if loaded else "share.same_element"
        why = Reason(code, buffer=str(target.name), stored=_text(nest.store))
        raise LoweringError("block.unmapped", block=nest.name, why=why)


def shareable(nest: Nest) -> tuple[list[Var], Reason | None]:
    """Return the loop variables that different threads may run, and why not all are among them.

    Threads that differ in one of those variables store to different places, and read of what is
    stored only their own, whatever the other variables are. Each thread runs the others in the
    order of the nest.
    """
    again = repeated(nest)
    free = [var for var in nest.vars if var not in again]
    try:
        check_independent(nest, free)
    except LoweringError as err:
        return _proven(nest, free), err.reason.why
    return free, None


def _proven(nest: Nest, variables: Sequence[Var]) -> list[Var]:
    """Return those of ``variables`` that index dimensions in which no two iterations meet."""
    indices, own = list(nest.store.indices), _reloads(nest)
    found: list[Var] = []
    for dims, walked in _parts(nest, variables):
        here = [indices[n] for n in dims]
        same = all(_same([load.indices[n] for n in dims], here) for load in own)
        if same and _meet_nowhere(nest, dims, walked):
            found += walked
    return [var for var in variables if var in found]


def _reloads(nest: Nest) -> list[Any]:
    """Return the loads, also in conditions, of the buffer that ``nest`` stores into."""
    loads = [*nest.loads(), *nest.deciding_loads()]
    return [load for load in loads if load.source.same_as(nest.store.buffer)]


def _are_distinct(nest: Nest, variables: Sequence[Var]) -> bool:
    """Whether each iteration of ``variables`` provably stores an element of its own.

    The other variables are fixed. Dimensions that share variables are taken together.
    """
    parts = _parts(nest, variables)
    return all(_meet_nowhere(nest, dims, walked) for dims, walked in parts)


def _meet_nowhere(nest: Nest, dims: Sequence[int], walked: Sequence[Var]) -> bool:
    """Whether the elements differ in ``dims`` for each two values of ``walked``."""
    total, analyzer = _flat(nest, dims)
    if _counts(total, walked, nest):
        return True
    for var in walked:
        analyzer.bind(var, Range(0, nest.extent_of[var]))
    return _counts(_packed(total, walked, analyzer), walked, nest)


def _packed(total: Expr, walked: Sequence[Var], analyzer: sym.Analyzer) -> Expr:
    """Return a number of which ``total`` is a function that differs where the number does.

    ``x // 8 * 32 + x % 8 * 2 + b % 2`` is ``x`` with gaps: each term of ``walked`` goes further by
    one step than all finer ones reach together, so they are the digits of a number, which has none.
    Where that is not so, ``total``.
    """
    terms = [term for term in terms_of(total).terms if uses(term[1], walked)]
    reach, weight, number = 0, 1, i32(0)
    for step, term in sorted(terms, key=lambda one: one[0]):
        bound = analyzer.const_int_bound(term)
        if step <= reach or weight > MOST:
            return total
        number = number + term * weight
        span = int(bound.max_value) - int(bound.min_value)
        reach, weight = reach + step * span, weight * (span + 1)
    return analyzer.simplify(number)


def _parts(nest: Nest, variables: Sequence[Var]) -> list[tuple[list[int], list[Var]]]:
    """Return groups of stored dimensions that share ``variables``, with those variables."""
    indices = list(nest.store.indices)
    left = list(variables)
    parts: list[tuple[list[int], list[Var]]] = []
    while left:
        walked, dims = [left[0]], list[int]()
        while found := [n for n, i in enumerate(indices) if n not in dims and uses(i, walked)]:
            dims = sorted([*dims, *found])
            walked = [var for var in left if uses([indices[n] for n in dims], [var])]
        parts.append((dims, walked))
        left = [var for var in left if var not in walked]
    return parts


def _flat(nest: Nest, dims: Sequence[int]) -> tuple[Expr, sym.Analyzer]:
    """Return the stored element's offset if its buffer had only the dimensions ``dims``.

    Quotient and modulo of one position in neighbouring dimensions are joined again. Behind it
    stands the analyzer of ``_split``.
    """
    indices, analyzer = _split(nest)
    total, stride, around = i32(0), i32(1), None
    for n in reversed(dims):
        index = analyzer.simplify(indices[n])
        if n == dims[0] and isinstance(index, tirx.FloorMod):
            # What lies below is less than the stride: the whole goes round where this does.
            index, around = index.a, const_int(index.b * stride)
        total = total + index * stride
        stride = stride * nest.store.buffer.shape[n]
    total = analyzer.simplify(total)
    return (total if around is None else tirx.FloorMod(total, i32(around))), analyzer


def _split(nest: Nest) -> tuple[list[Expr], sym.Analyzer]:
    """Return the indices stored by ``nest``, with outer variables split where they are divided.

    The analyzer returned knows the parts. An image of 112 x 112 pixels is 49 tiles of 256: row ``(b
    % 49 * 256 + i) // 112`` and column ``(b * 256 + i) % 112`` belong to one pixel, which can be
    proven once ``b`` is ``whole * 49 + rest``.
    """
    divisors: dict[Var, int] = {}

    def note(found: tirx.FloorMod) -> None:
        divisor = const_int(found.b)
        if isinstance(found.a, Var) and found.a not in nest.vars and divisor:
            divisors.setdefault(found.a, divisor)

    walk(list(nest.store.indices), tirx.FloorMod, note)
    analyzer = sym.Analyzer()
    parts: dict[Var, Expr] = {}
    for var, divisor in divisors.items():
        rest = Var(f"{var.name}_rest", var.ty)
        analyzer.bind(rest, Range(0, divisor))
        parts[var] = Var(f"{var.name}_whole", var.ty) * divisor + rest
    return [substitute(index, parts) for index in nest.store.indices], analyzer


def _counts(index: Expr, variables: Sequence[Var], nest: Nest) -> bool:
    """Whether ``index`` has a different value for each value of ``variables``.

    That is so if each step of one variable exceeds all that the finer ones reach together. It is so
    of a modulo of such an index if all of them together do not wrap around.
    """
    modulus = const_int(index.b) if isinstance(index, tirx.FloorMod) else None
    known = affine(index if modulus is None else index.a, variables)
    if known is None or len(known.coefficients) != len(variables):
        return False
    reach = 0
    for var, step in sorted(known.coefficients.items(), key=lambda item: abs(item[1])):
        if abs(step) <= reach:
            return False
        reach += abs(step) * (nest.extent_of[var] - 1)
    return modulus is None or reach < modulus


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return bool(tvm_ffi.structural_equal(list(a), list(b)))


def _text(access: Any) -> str:
    buf = access.buffer if hasattr(access, "buffer") else access.source
    return f"{buf.name}[{', '.join(map(str, access.indices))}]"
