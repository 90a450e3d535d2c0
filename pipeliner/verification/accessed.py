"""Every access of a function's arguments and workspaces, kernel by kernel, and where it goes.

The function is the one before it was pipelined. An access keeps the loops and conditions around
it, so that the elements that CTAs reach by it are computed, not run: ``places``. What cannot be
read off (an index that is loaded, memory behind a pointer or a view) is an ``UnknownError``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from tvm import ir, tirx
from tvm.ir import prim
from tvm.s_tir import SBlockRealize
from tvm.tirx.buffer import is_buffer_var

from ..diagnostics import Reason, Why
from ..passes.ir.indexing import evaluate
from ..passes.ir.kernels import kernels_of, thread_tag
from ..passes.ir.nodes import collect, const_int, substitute, variables
from .arrays import Array

Block: TypeAlias = "tuple[int, int, int]"

POINTS: Final = 1 << 20
"""Accesses that are evaluated at a time."""

MOST: Final = 1 << 27
"""Accesses of one statement beyond which they are not counted through: minutes of work."""

_COMPARE: Final = {
    prim.LT: np.less,
    prim.LE: np.less_equal,
    prim.GT: np.greater,
    prim.GE: np.greater_equal,
    prim.EQ: np.equal,
    prim.NE: np.not_equal,
}


class UnknownError(Exception):
    """Nothing is known, for the reason given."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class Loop:
    """A loop around an access; ``tag``: of the thread axis that it is bound to, if any."""

    var: Any
    first: Any
    extent: int
    tag: str = ""


@dataclass(frozen=True)
class GlobalAccess:
    """A load or a store of an element of ``name``."""

    name: str
    indices: Sequence[Any]
    writes: bool
    loops: tuple[Loop, ...]
    conditions: tuple[Any, ...]


@dataclass
class KernelAccesses:
    """The accesses of one kernel; ``unknown``: why they are not known."""

    found: list[GlobalAccess] = field(default_factory=list)
    extents: dict[str, int] = field(default_factory=dict)
    unknown: Why = ""

    @property
    def grid(self) -> Block:
        """CTAs along x, y and z."""
        x, y, z = (self.extents.get(f"blockIdx.{axis}", 1) for axis in "xyz")
        return x, y, z


@dataclass(frozen=True)
class Accesses:
    """The kernels of a function in order, and the shapes of its arguments and workspaces."""

    kernels: tuple[KernelAccesses, ...]
    shapes: Mapping[str, tuple[int, ...]]


def accesses_of(func: Any, names: Sequence[str], arrays: Sequence[Any]) -> Accesses:
    """The accesses of the PrimFunc ``func``, whose arguments ``arrays`` are called ``names``.

    UnknownError: nothing is known of any kernel.
    """
    return _Reader(func, names, arrays).read()


def places(
    access: GlobalAccess, grid: Block, shape: tuple[int, ...], ctas: Array | None = None
) -> Iterator[tuple[Array, Array]]:
    """CTAs and flat places in the array, of all points, some CTAs at a time.

    ``ctas``: numbers of those that are asked for, None for the whole grid. UnknownError: an index
    is not known.
    """
    used = set(variables(list(access.indices)))
    for condition in access.conditions:
        used |= variables(condition)
    inner = [
        loop for loop in access.loops if not loop.tag.startswith("blockIdx") and loop.var in used
    ]
    each = math.prod(loop.extent for loop in inner)
    asked = np.arange(math.prod(grid), dtype=np.int64) if ctas is None else ctas
    if each * len(asked) > MOST:
        raise UnknownError(Reason("ownership.many", buffer=access.name, count=each * len(asked)))
    step = max(1, POINTS // max(each, 1))
    for start in range(0, len(asked), step):
        numbers = asked[start : start + step]
        values = _values(access.loops, inner, numbers, grid)
        yield _evaluated(access, values, numbers, [loop.extent for loop in inner], shape)


@dataclass(frozen=True)
class _Scope:
    """What is around a statement."""

    loops: tuple[Loop, ...] = ()
    conditions: tuple[Any, ...] = ()


class _Reader:
    def __init__(self, func: Any, names: Sequence[str], arrays: Sequence[Any]) -> None:
        self._func = func
        self._names: dict[Any, str] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._known: dict[Any, Any] = {}
        self._kernels: list[KernelAccesses] = []
        self._inside: KernelAccesses | None = None
        self._count = len(kernels_of(func.body))
        for param, name, array in zip(func.params, names, arrays):
            if not is_buffer_var(param):
                if _is_int(array):
                    self._known[param] = tirx.const(int(array), str(param.ty.dtype))
                continue
            self._names[param] = name
            self._shapes[name] = np.shape(array)
            for extent, size in zip(param.shape, np.shape(array)):
                if isinstance(extent, ir.Var):
                    self._known[extent] = tirx.const(size, str(extent.ty.dtype))
            if len(param.strides) or const_int(param.elem_offset) != 0:
                raise UnknownError(Reason("ownership.strides", buffer=name))

    def read(self) -> Accesses:
        if not self._count:
            raise UnknownError(Reason("ownership.no_kernel"))
        self._visit(self._func.body, _Scope())
        return Accesses(tuple(self._kernels), self._shapes)

    def _visit(self, stmt: Any, scope: _Scope) -> None:
        kind = type(stmt)
        if self._inside is None and thread_tag(stmt) is not None:
            self._kernel(stmt, scope)
        elif kind is tirx.SeqStmt:
            for part in stmt.seq:
                self._visit(part, scope)
        elif kind is tirx.For:
            self._check_around(kind)
            tag = thread_tag(stmt) or ""
            loop = self._loop(stmt.loop_var, self._put(stmt.min), stmt.extent, tag)
            self._visit(stmt.body, _Scope((*scope.loops, loop), scope.conditions))
        elif kind is tirx.AttrStmt:
            tag = thread_tag(stmt) or ""
            if tag:
                loop = self._loop(stmt.node.var, tirx.const(0, "int32"), stmt.value, tag)
                scope = _Scope((*scope.loops, loop), scope.conditions)
            self._visit(stmt.body, scope)
        elif kind is tirx.IfThenElse:
            self._check_around(kind)
            self._loads(stmt.condition, scope)
            condition = self._put(stmt.condition)
            self._visit(stmt.then_case, _Scope(scope.loops, (*scope.conditions, condition)))
            if stmt.else_case is not None:
                other = (*scope.conditions, tirx.Not(condition))
                self._visit(stmt.else_case, _Scope(scope.loops, other))
        elif kind is SBlockRealize:
            self._block(stmt, scope)
        elif kind is tirx.BufferStore:
            self._loads(stmt.value, scope)
            for index in stmt.indices:
                self._loads(index, scope)
            self._keep(stmt.buffer, stmt.indices, True, scope)
        elif kind is tirx.Evaluate:
            self._loads(stmt.value, scope)
        elif kind is tirx.Bind:
            self._loads(stmt.value, scope)
            self._known[stmt.var] = self._put(stmt.value)
        elif kind is tirx.While:
            self._check_around(kind)
            self._loads(stmt.condition, scope)
            self._visit(stmt.body, scope)
        elif kind is tirx.DeclBuffer:
            if not variables(stmt.data).isdisjoint(self._names):
                raise UnknownError(Reason("ownership.view", buffer=stmt.buffer.name))
        elif kind is tirx.AllocBuffer:
            self._workspaces([stmt.buffer])
        else:
            raise UnknownError(Reason("ownership.statement", kind=kind.__name__))

    def _kernel(self, stmt: Any, scope: _Scope) -> None:
        self._inside = KernelAccesses()
        self._kernels.append(self._inside)
        try:
            self._visit(stmt, scope)
        except UnknownError as err:
            self._inside.unknown = err.reason
        self._inside = None

    def _check_around(self, kind: type) -> None:
        """UnknownError: what is around some of several kernels says which are launched."""
        if self._inside is None and self._count > 1:
            raise UnknownError(Reason("ownership.around", kind=kind.__name__))

    def _block(self, realize: Any, scope: _Scope) -> None:
        block = realize.block
        for match in block.match_buffers:
            if match.source.source in self._names:
                raise UnknownError(Reason("ownership.view", buffer=match.buffer.name))
        for axis, value in zip(block.iter_vars, realize.iter_values):
            self._known[axis.var] = self._put(value)
        self._workspaces(block.alloc_buffers)
        inner = _Scope(scope.loops, (*scope.conditions, self._put(realize.predicate)))
        if block.init is not None:
            self._visit(block.init, inner)
        self._visit(block.body, inner)

    def _workspaces(self, buffers: Sequence[Any]) -> None:
        """Enter what the function, not a CTA, allocates in global memory."""
        for buffer in buffers:
            if self._inside is not None or str(buffer.scope()) not in ("", "global"):
                continue
            sizes = [const_int(self._put(extent)) for extent in buffer.shape]
            shape = tuple(size for size in sizes if size is not None)
            if len(shape) < len(sizes):
                raise UnknownError(Reason("ownership.workspace", buffer=buffer.name))
            name = str(buffer.name)
            while name in self._shapes:
                name += "_"
            self._names[buffer] = name
            self._shapes[name] = shape

    def _loads(self, expr: Any, scope: _Scope) -> None:
        calls = collect(expr, ir.Call)
        for call in calls:
            taken = [arg for arg in call.args if arg in self._names or _is_pointer_to(arg)]
            name = str(getattr(call.op, "name", call.op))
            if taken or "address_of" in name or "access_ptr" in name:
                reached = [self._names[v] for v in variables(list(call.args)) if v in self._names]
                if reached:
                    raise UnknownError(Reason("ownership.pointer", buffer=reached[0]))
        loads = collect(expr, ir.TensorLoad)
        for load in loads:
            self._keep(load.source, load.indices, False, scope)

    def _keep(self, buffer: Any, indices: Sequence[Any], writes: bool, scope: _Scope) -> None:
        name = self._names.get(buffer)
        if name is None or self._inside is None:
            return
        put = [self._put(index) for index in indices]
        access = GlobalAccess(name, put, writes, scope.loops, scope.conditions)
        self._inside.found.append(access)

    def _put(self, expr: Any) -> Any:
        """``expr`` with what is bound put in."""
        return substitute(expr, self._known) if self._known else expr

    def _loop(self, var: Any, first: Any, extent: Any, tag: str) -> Loop:
        size = const_int(self._put(extent))
        if size is None:
            raise UnknownError(Reason("ownership.extent", extent=str(self._put(extent))))
        size = max(size, 0)  # from 9 to 4 there is no iteration
        if self._inside is not None:
            extents = self._inside.extents
            extents[tag] = max(size, extents.get(tag, 1))
        return Loop(var, first, size, tag)


def _values(
    loops: Sequence[Loop], inner: Sequence[Loop], numbers: Array, grid: Block
) -> dict[Any, Array]:
    """The value of each variable, along an axis of its own behind that of CTAs."""
    rank = 1 + len(inner)
    values: dict[Any, Array] = {}
    digits = (numbers % grid[0], numbers // grid[0] % grid[1], numbers // (grid[0] * grid[1]))
    axes = {loop.var: at for at, loop in enumerate(inner, 1)}
    for loop in loops:  # outermost first: the first value may depend on those before
        if loop.tag.startswith("blockIdx"):
            own = digits["xyz".index(loop.tag[-1])].reshape(-1, *[1] * (rank - 1))
        elif loop.var in axes:
            at = axes[loop.var]
            own = np.arange(loop.extent, dtype=np.int64)
            own = own.reshape(*[1] * at, -1, *[1] * (rank - 1 - at))
        else:
            continue
        first = evaluate(loop.first, values)
        if first is None:
            raise UnknownError(Reason("ownership.first", first=str(loop.first)))
        values[loop.var] = own + first
    return values


def _evaluated(
    access: GlobalAccess,
    values: Mapping[Any, Array],
    numbers: Array,
    extents: Sequence[int],
    shape: tuple[int, ...],
) -> tuple[Array, Array]:
    whole = (len(numbers), *extents)
    holds = np.ones((), bool)
    for condition in access.conditions:
        found = _holds(condition, values)
        holds = holds if found is None else holds & found  # what is not known may hold
    place: Any = np.zeros((), np.int64)
    for index, size in zip(access.indices, shape, strict=True):
        value = evaluate(index, values)
        if value is None:
            raise UnknownError(Reason("ownership.index", buffer=access.name, index=str(index)))
        holds = holds & (value >= 0) & (value < size)
        place = place * size + value
    ctas = np.broadcast_to(numbers.reshape(-1, *[1] * len(extents)), whole)
    where = np.broadcast_to(holds, whole)
    return ctas[where], np.broadcast_to(place, whole)[where]


def _holds(condition: Any, values: Mapping[Any, Array], exact: bool = False) -> Any | None:
    """Where ``condition`` holds, at least, or exactly; None: that is not known."""
    kind = type(condition)
    if kind is prim.Not:
        inner = _holds(condition.a, values, exact=True)
        return None if inner is None else ~inner
    if kind in (prim.And, prim.Or):
        sides = [_holds(side, values, exact) for side in (condition.a, condition.b)]
        known = [side for side in sides if side is not None]
        if len(known) == 2:
            return known[0] | known[1] if kind is prim.Or else known[0] & known[1]
        return known[0] if known and kind is prim.And and not exact else None
    if kind in _COMPARE:
        left, right = evaluate(condition.a, values), evaluate(condition.b, values)
        return None if left is None or right is None else _COMPARE[kind](left, right)
    if kind is tirx.IntImm:
        return np.asarray(bool(condition.value))
    if kind is ir.Call and str(getattr(condition.op, "name", "")) == "prim.likely":
        return _holds(condition.args[0], values, exact)
    return None


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_pointer_to(arg: Any) -> bool:
    return isinstance(arg, ir.Var) and isinstance(arg.ty, ir.PointerType)
