"""Match the statements that mapping knows: nests, tile copies and tile matmuls.

    for i, j in T.grid(128, 32):
        with T.sblock("A_shared"):
            A_shared[i, j] = T.if_then_else(mask, A[base + i, k * 32 + j], 0)
 => Copy(src=A, dst=A_shared, mask=(mask,), shape=(128, 32))

A *nest* is unbound loops around one store: which thread does what is not decided yet. Each matcher
returns None if the statement has another form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm_ffi
from tvm import tirx

from .calls import called
from .indexing import alignment, conjuncts, offset
from .kernels import bodies
from .linear import affine
from .nodes import (
    Buffer,
    Expr,
    ForKind,
    SBlockRealize,
    Stmt,
    TensorLoad,
    Var,
    collect,
    const_int,
    dtype_bytes,
    is_global,
    is_shared,
    uses,
)


@dataclass(frozen=True)
class Nest:
    """Unbound serial loops of constant extent, from 0, around one store.

    ``predicate``: conjuncts under which the store happens. ``annotations``: of its blocks, outer
    first.
    """

    name: str
    vars: tuple[Var, ...]
    extents: tuple[int, ...]
    predicate: tuple[Expr, ...]
    store: Any
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def extent_of(self) -> dict[Var, int]:
        """Extent of each loop variable."""
        return dict(zip(self.vars, self.extents))

    def loads(self) -> list[Any]:
        """Every load in the stored value and in the indices of the store."""
        return _loads(self.store.value, *self.store.indices)

    def deciding_loads(self) -> list[Any]:
        """Every load that decides where, and whether, something is stored."""
        return _loads(*self.store.indices, *self.predicate)


@dataclass(frozen=True)
class Copy:
    """A nest that copies ``src`` to ``dst``, and stores zero where ``mask`` does not hold.

    ``order``: the loop variables in the order of the dimensions of ``dst``; ``shape``: their
    extents.
    """

    nest: Nest
    src: Buffer
    src_indices: tuple[Expr, ...]
    dst: Buffer
    mask: tuple[Expr, ...]
    order: tuple[Var, ...]
    shape: tuple[int, ...]

    @property
    def src_dims(self) -> tuple[int | None, ...]:
        """For each source dimension the tile dimension that alone indexes it, by ones, or None.

        The last one is also indexed by a variable that counts over several dimensions as one.
        """
        dims = [dimension_of(index, self.order) for index in self.src_indices]
        if dims and dims[-1] is None:
            dims[-1] = self._runner()
        return tuple(dims)

    def _runner(self) -> int | None:
        """Return the tile dimension along which the source is contiguous, the innermost."""
        start = offset(self.src, self.src_indices)
        for dim in reversed(range(len(self.order))):
            known = affine(start, [self.order[dim]])
            if known is not None and known.coefficients.get(self.order[dim]) == 1:
                return dim
        return None

    def aligned(self) -> int:
        """Return the largest power of two, in elements, that divides each row's source offset.

        A row runs along the last dimension of ``dst``; 1 if the source is not contiguous there.
        """
        if not self.order:
            return 1
        lane = self.order[-1]
        start = offset(self.src, self.src_indices)
        known = affine(start, [lane])
        if known is None or known.coefficients.get(lane) != 1:
            return 1
        declared = int(self.src.data_alignment) // dtype_bytes(self.src.dtype)
        return min(alignment(known.base), declared)


@dataclass(frozen=True)
class MatmulOperand:
    """One side of a matmul tile: the load, and whether K is its contiguous dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    k_major: bool


@dataclass(frozen=True)
class Matmul:
    """A nest ``acc[m, n] += a[m, k] * b[k, n]`` over one tile.

    ``m``, ``n``, ``k``: the loop variables that make up each dimension, outer first.
    """

    nest: Nest
    acc: Buffer
    acc_indices: tuple[Expr, ...]
    a: MatmulOperand
    b: MatmulOperand
    m: tuple[Var, ...]
    n: tuple[Var, ...]
    k: tuple[Var, ...]

    def transposed(self) -> Matmul:
        """Return the same tile as ``acc^T[n, m] += b^T[n, k] * a^T[k, m]``."""
        return replace(self, a=self.b, b=self.a, m=self.n, n=self.m)

    def extent(self, variables: Sequence[Var]) -> int:
        """Return the product of the extents of ``variables``."""
        return math.prod(self.nest.extent_of[var] for var in variables)

    def split(self, variables: Sequence[Var], flat: Expr) -> dict[Var, Expr]:
        """Return values of ``variables`` at position ``flat`` of the dimension that they form."""
        values: dict[Var, Expr] = {}
        if len(variables) == 1:
            return {variables[0]: flat}
        stride = 1
        for var in reversed(variables):
            extent = self.nest.extent_of[var]
            values[var] = flat // stride % extent
            stride *= extent
        return values


def _loads(*exprs: Expr) -> list[Any]:
    return [load for expr in exprs for load in collect(expr, TensorLoad)]


def as_nest(stmt: Stmt) -> Nest | None:
    """Return ``stmt`` as loops around one store, through opaque blocks that allocate nothing."""
    loop_vars: list[Var] = []
    extents: list[int] = []
    predicate: list[Expr] = []
    annotations: dict[str, Any] = {}
    name = ""
    while True:
        if isinstance(stmt, tirx.For):
            extent = const_int(stmt.extent)
            if stmt.kind != ForKind.SERIAL or extent is None or const_int(stmt.min) != 0:
                return None
            loop_vars.append(stmt.loop_var)
            extents.append(extent)
            stmt = stmt.body
        elif isinstance(stmt, SBlockRealize):
            inner = stmt.block
            if inner.alloc_buffers or inner.match_buffers or inner.init is not None:
                return None
            predicate.extend(conjuncts(stmt.predicate))
            annotations = {**{str(k): v for k, v in inner.annotations.items()}, **annotations}
            name = name or str(inner.name_hint)
            stmt = inner.body
        elif isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
            predicate.extend(conjuncts(stmt.condition))
            stmt = stmt.then_case
        else:
            break
    if not isinstance(stmt, tirx.BufferStore):
        return None
    return Nest(
        name or str(stmt.buffer.name),
        tuple(loop_vars),
        tuple(extents),
        tuple(predicate),
        stmt,
        annotations,
    )


def nests_of(stmt: Stmt) -> Iterator[Nest]:
    """Return the outermost nests in ``stmt``, in program order."""
    nest = as_nest(stmt)
    if nest is not None:
        yield nest
        return
    for part in bodies(stmt):
        yield from nests_of(part)


def as_copy(nest: Nest) -> Copy | None:
    """Return ``nest`` as a copy of elements to a tile of shared memory, or None."""
    loaded = masked_load(nest.store.value)
    if loaded is None:
        return None
    load, mask = loaded
    if not is_global(load.source) or not is_shared(nest.store.buffer):
        return None
    order = box_order(nest.store.indices, nest.vars)
    if order is None or set(order) != set(nest.vars):
        return None
    sizes = nest.extent_of
    return Copy(
        nest,
        load.source,
        tuple(load.indices),
        nest.store.buffer,
        mask,
        tuple(order),
        tuple(sizes[var] for var in order),
    )


def dimension_of(index: Expr, order: Sequence[Var]) -> int | None:
    """Return which of ``order`` alone forms ``index``, up to a base, by ones; or None."""
    known = affine(index, order)
    if known is None or list(known.coefficients.values()) != [1]:
        return None
    return list(order).index(next(iter(known.coefficients)))


def masked_load(value: Expr) -> tuple[Any, tuple[Expr, ...]] | None:
    """Return ``value`` as a load and the conjuncts without which it is zero, or None."""
    if isinstance(value, TensorLoad):
        return value, ()
    if is_call(value, "if_then_else"):
        condition, inner, other = value.args
    elif isinstance(value, tirx.Select):
        condition, inner, other = value.condition, value.true_value, value.false_value
    else:
        return None
    if not isinstance(inner, TensorLoad) or not is_zero(other):
        return None
    return inner, tuple(conjuncts(condition))


def box_order(indices: Sequence[Expr], variables: Sequence[Var]) -> list[Var] | None:
    """Return the variable of each dimension, fixed dimensions skipped; None if they are mixed.

    Each variable must count by ones.
    """
    order: list[Var] = []
    for index in indices:
        known = affine(index, variables)
        if known is None:
            return None
        if not known.coefficients:
            continue
        if list(known.coefficients.values()) != [1]:
            return None
        order.append(next(iter(known.coefficients)))
    return order if len(set(order)) == len(order) else None


def as_matmul(nest: Nest) -> Matmul | None:
    """Return ``nest`` as an accumulation of products over a tile of M, N and K, or None."""
    store = nest.store
    factors = _accumulated_product(store)
    if factors is None or uses(list(nest.predicate), nest.vars):
        return None
    used = [[var for var in nest.vars if uses(load, [var])] for load in factors]
    out = [var for index in store.indices for var in nest.vars if uses(index, [var])]
    if box_order(store.indices, nest.vars) != out:
        return None
    (a, b), (a_vars, b_vars) = factors, used
    if any(var in a_vars and var in b_vars for var in out) or set(out) - {*a_vars, *b_vars}:
        return None
    if out and out[0] in b_vars:
        a, b, a_vars, b_vars = b, a, b_vars, a_vars
    m, n = [v for v in out if v in a_vars], [v for v in out if v in b_vars]
    k = [var for var in nest.vars if var not in out]
    if not m or not n or not k or any(v not in a_vars or v not in b_vars for v in k):
        return None
    if out != [*m, *n]:
        return None
    left, right = _operand(a, m, k), _operand(b, n, k)
    if left is None or right is None:
        return None
    return Matmul(
        nest, store.buffer, tuple(store.indices), left, right, tuple(m), tuple(n), tuple(k)
    )


def _operand(load: Any, outer: Sequence[Var], k: Sequence[Var]) -> MatmulOperand | None:
    """Return the operand, if one variable alone indexes its contiguous dimension, by ones."""
    known = affine(load.indices[-1], [*outer, *k])
    if known is None or list(known.coefficients.values()) != [1]:
        return None
    lane = next(iter(known.coefficients))
    if lane not in (outer[-1], k[-1]) or any(uses(x, [lane]) for x in list(load.indices)[:-1]):
        return None
    return MatmulOperand(load.source, tuple(load.indices), lane.same_as(k[-1]))


def _accumulated_product(store: Any) -> tuple[Any, Any] | None:
    """Return the loads ``a`` and ``b`` of ``acc = acc + cast(a) * cast(b)``."""
    if not isinstance(store.value, tirx.Add):
        return None
    for old, product in (
        (store.value.a, store.value.b),
        (store.value.b, store.value.a),
    ):
        if not isinstance(product, tirx.Mul) or not is_element_of(old, store):
            continue
        a, b = strip_cast(product.a), strip_cast(product.b)
        if isinstance(a, TensorLoad) and isinstance(b, TensorLoad):
            return a, b
    return None


def is_element_of(expr: Expr, store: Any) -> bool:
    """Whether ``expr`` loads the element that ``store`` stores."""
    return (
        isinstance(expr, TensorLoad)
        and expr.source.same_as(store.buffer)
        and tvm_ffi.structural_equal(list(expr.indices), list(store.indices))
    )


def strip_cast(expr: Expr) -> Expr:
    """Return ``expr`` without the casts around it."""
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return expr


def is_call(expr: Any, name: str) -> bool:
    """Whether ``expr`` calls the builtin ``name``, in any of TVM's namespaces."""
    return called(expr).split(".")[-1] == name


def is_zero(expr: Expr) -> bool:
    """Whether ``expr`` is the constant 0 of any type."""
    value = getattr(strip_cast(expr), "value", None)
    return isinstance(value, (int, float)) and value == 0
