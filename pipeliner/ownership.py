"""Which CTA writes which element of each argument, and whether CTAs meet in any.

The index of every access of the un-pipelined function is evaluated for the whole grid, so what is
known of CTAs that are not run is exact: no two write one element, and none reads what another
writes. Where an index is not known without running (it is loaded, or memory is reached through a
pointer or a view), the reason is kept in place of an answer.
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

from .diagnostics import Reason, Why
from .passes.indexing import evaluate
from .passes.ir import const_int, substitute, variables, walk
from .passes.kernels import kernels_of, thread_tag

Block: TypeAlias = "tuple[int, int, int]"
Array: TypeAlias = "np.ndarray[Any, Any]"

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


@dataclass(frozen=True, slots=True)
class Ownership:
    """``owners``: for each argument that is written, the CTA of each element, or -1.

    CTAs are counted through, x fastest, over ``grid``. ``unknown``: why nothing more is known, or
    ``meeting``: where two CTAs meet; both empty where every CTA is on its own.
    """

    grid: Block = (1, 1, 1)
    owners: Mapping[str, Array] = field(default_factory=dict)
    unknown: Why = ""
    meeting: Why = ""

    @property
    def disjoint(self) -> bool:
        """Whether no CTA depends on another."""
        return not self.unknown and not self.meeting

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return math.prod(self.grid)

    def block(self, cta: int) -> Block:
        """BlockIdx of the CTA with that number."""
        return _block(cta, self.grid)

    def number(self, block: Sequence[int]) -> int:
        """The number of the CTA at ``block``."""
        x, y, _ = self.grid
        return int(block[0] + x * (block[1] + y * block[2]))

    def counts(self) -> Array:
        """Elements that each CTA writes."""
        found = np.zeros(self.ctas, np.int64)
        for owner in self.owners.values():
            found += np.bincount(owner[owner >= 0].ravel(), minlength=self.ctas)
        return found

    def kinds(self) -> Array:
        """For each CTA how many elements it writes, and in how many runs of neighbours."""
        runs = np.zeros(self.ctas, np.int64)
        for owner in self.owners.values():
            rows = owner.reshape(-1, owner.shape[-1] if owner.ndim else 1)
            starts = np.ones(rows.shape, bool)
            starts[:, 1:] = rows[:, 1:] != rows[:, :-1]
            runs += np.bincount(rows[starts & (rows >= 0)], minlength=self.ctas)
        return np.stack([self.counts(), runs], 1)


def ownership(func: Any, names: Sequence[str], arrays: Sequence[Any]) -> Ownership:
    """Who writes what of ``arrays``, the arguments of the PrimFunc ``func``, called ``names``."""
    try:
        return _Reader(func, names, arrays).read()
    except _UnknownError as err:
        return Ownership(unknown=err.reason)


class _UnknownError(Exception):
    """Nothing is known, for the reason given."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class _Loop:
    var: Any
    first: Any
    extent: int
    tag: str = ""


@dataclass(frozen=True)
class _Access:
    name: str
    indices: Sequence[Any]
    writes: bool
    loops: tuple[_Loop, ...]
    conditions: tuple[Any, ...]


@dataclass(frozen=True)
class _Scope:
    """What is around a statement."""

    loops: tuple[_Loop, ...] = ()
    conditions: tuple[Any, ...] = ()


class _Reader:
    def __init__(self, func: Any, names: Sequence[str], arrays: Sequence[Any]) -> None:
        self._func = func
        self._arrays = dict(zip(names, arrays))
        self._names: dict[Any, str] = {}
        self._known: dict[Any, Any] = {}
        self._found: list[_Access] = []
        self._extents: dict[str, int] = {}
        for param, name, array in zip(func.params, names, arrays):
            if not is_buffer_var(param):
                if _is_int(array):
                    self._known[param] = tirx.const(int(array), str(param.ty.dtype))
                continue
            self._names[param] = name
            for extent, size in zip(param.shape, np.shape(array)):
                if isinstance(extent, ir.Var):
                    self._known[extent] = tirx.const(size, str(extent.ty.dtype))
            if len(param.strides) or const_int(param.elem_offset) != 0:
                raise _UnknownError(Reason("ownership.strides", buffer=name))

    def read(self) -> Ownership:
        count = len(kernels_of(self._func.body))
        if count != 1:
            raise _UnknownError(Reason("ownership.kernels", count=count))
        self._visit(self._func.body, _Scope())
        grid = self._grid()
        owners: dict[str, Array] = {}
        written = {access.name for access in self._found if access.writes}
        for name in sorted(written):
            owners[name] = np.full(np.shape(self._arrays[name]), -1, np.int32)
        for access in sorted(self._found, key=lambda access: not access.writes):
            if access.name not in written:
                continue
            meeting = self._enter(access, grid, owners[access.name])
            if meeting:
                return Ownership(grid, owners, meeting=meeting)
        return Ownership(grid, owners)

    def _grid(self) -> Block:
        x, y, z = (self._extents.get(f"blockIdx.{axis}", 1) for axis in "xyz")
        return x, y, z

    # What there is.

    def _visit(self, stmt: Any, scope: _Scope) -> None:
        kind = type(stmt)
        if kind is tirx.SeqStmt:
            for part in stmt.seq:
                self._visit(part, scope)
        elif kind is tirx.For:
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
            self._loads(stmt.condition, scope)
            self._visit(stmt.body, scope)
        elif kind is tirx.DeclBuffer:
            if not variables(stmt.data).isdisjoint(self._names):
                raise _UnknownError(Reason("ownership.view", buffer=stmt.buffer.name))
        elif kind is not tirx.AllocBuffer:
            raise _UnknownError(Reason("ownership.statement", kind=kind.__name__))

    def _block(self, realize: Any, scope: _Scope) -> None:
        block = realize.block
        for match in block.match_buffers:
            if match.source.source in self._names:
                raise _UnknownError(Reason("ownership.view", buffer=match.buffer.name))
        for axis, value in zip(block.iter_vars, realize.iter_values):
            self._known[axis.var] = self._put(value)
        inner = _Scope(scope.loops, (*scope.conditions, self._put(realize.predicate)))
        if block.init is not None:
            self._visit(block.init, inner)
        self._visit(block.body, inner)

    def _loads(self, expr: Any, scope: _Scope) -> None:
        calls: list[Any] = []
        walk(expr, ir.Call, calls.append)
        for call in calls:
            taken = [arg for arg in call.args if arg in self._names or _is_pointer_to(arg)]
            name = str(getattr(call.op, "name", call.op))
            if taken or "address_of" in name or "access_ptr" in name:
                reached = [self._names[v] for v in variables(list(call.args)) if v in self._names]
                if reached:
                    raise _UnknownError(Reason("ownership.pointer", buffer=reached[0]))
        loads: list[Any] = []
        walk(expr, ir.TensorLoad, loads.append)
        for load in loads:
            self._keep(load.source, load.indices, False, scope)

    def _keep(self, buffer: Any, indices: Sequence[Any], writes: bool, scope: _Scope) -> None:
        name = self._names.get(buffer)
        if name is None:
            return
        put = [self._put(index) for index in indices]
        self._found.append(_Access(name, put, writes, scope.loops, scope.conditions))

    def _put(self, expr: Any) -> Any:
        """``expr`` with what is bound put in."""
        return substitute(expr, self._known) if self._known else expr

    def _loop(self, var: Any, first: Any, extent: Any, tag: str) -> _Loop:
        size = const_int(self._put(extent))
        if size is None:
            raise _UnknownError(Reason("ownership.extent", extent=str(self._put(extent))))
        size = max(size, 0)  # from 9 to 4 there is no iteration
        self._extents[tag] = max(size, self._extents.get(tag, 1))
        return _Loop(var, first, size, tag)

    # Who does it.

    def _enter(self, access: _Access, grid: Block, owner: Array) -> Why:
        """Enter who writes what ``access`` does, or say who reads what another writes."""
        flat = owner.reshape(-1)
        for ctas, place in self._places(access, grid, owner.shape):
            if not access.writes:
                before = flat[place]
                wrong = (before >= 0) & (before != ctas)
            else:
                before = flat[place]
                taken = (before >= 0) & (before != ctas)
                flat[place] = ctas
                before = np.where(taken, before, flat[place])
                wrong = taken | (flat[place] != ctas)
            if wrong.any():
                at = int(np.argmax(wrong))
                index = tuple(int(i) for i in np.unravel_index(int(place[at]), owner.shape))
                pair = [int(before[at]), int(ctas[at])]
                pair = sorted(pair) if access.writes else pair
                first, second = (_block(cta, grid) for cta in pair)
                return _meeting(access, first, second, index)
        return ""

    def _places(
        self, access: _Access, grid: Block, shape: tuple[int, ...]
    ) -> Iterator[tuple[Array, Array]]:
        """CTAs and flat places in the array, of all points, some CTAs at a time."""
        used = set(variables(list(access.indices)))
        for condition in access.conditions:
            used |= variables(condition)
        inner = [
            loop
            for loop in access.loops
            if not loop.tag.startswith("blockIdx") and loop.var in used
        ]
        each = math.prod(loop.extent for loop in inner)
        ctas = math.prod(grid)
        if each * ctas > MOST:
            raise _UnknownError(Reason("ownership.many", buffer=access.name, count=each * ctas))
        step = max(1, POINTS // max(each, 1))
        for start in range(0, ctas, step):
            numbers = np.arange(start, min(ctas, start + step), dtype=np.int64)
            values = self._values(access.loops, inner, numbers, grid)
            yield from _evaluated(access, values, numbers, [loop.extent for loop in inner], shape)

    @staticmethod
    def _values(
        loops: Sequence[_Loop], inner: Sequence[_Loop], numbers: Array, grid: Block
    ) -> dict[Any, Array]:
        """The value of each variable, along an axis of its own behind that of CTAs."""
        rank = 1 + len(inner)
        values: dict[Any, Array] = {}
        digits = (numbers % grid[0], numbers // grid[0] % grid[1], numbers // (grid[0] * grid[1]))
        places = {loop.var: at for at, loop in enumerate(inner, 1)}
        for loop in loops:  # outermost first: the first value may depend on those before
            if loop.tag.startswith("blockIdx"):
                own = digits["xyz".index(loop.tag[-1])].reshape(-1, *[1] * (rank - 1))
            elif loop.var in places:
                at = places[loop.var]
                own = np.arange(loop.extent, dtype=np.int64)
                own = own.reshape(*[1] * at, -1, *[1] * (rank - 1 - at))
            else:
                continue
            first = evaluate(loop.first, values)
            if first is None:
                raise _UnknownError(Reason("ownership.first", first=str(loop.first)))
            values[loop.var] = own + first
        return values


def _evaluated(
    access: _Access,
    values: Mapping[Any, Array],
    numbers: Array,
    extents: Sequence[int],
    shape: tuple[int, ...],
) -> Iterator[tuple[Array, Array]]:
    whole = (len(numbers), *extents)
    holds = np.ones((), bool)
    for condition in access.conditions:
        found = _holds(condition, values)
        holds = holds if found is None else holds & found  # what is not known may hold
    place: Any = np.zeros((), np.int64)
    for index, size in zip(access.indices, shape, strict=True):
        value = evaluate(index, values)
        if value is None:
            raise _UnknownError(Reason("ownership.index", buffer=access.name, index=str(index)))
        holds = holds & (value >= 0) & (value < size)
        place = place * size + value
    ctas = np.broadcast_to(numbers.reshape(-1, *[1] * len(extents)), whole)
    where = np.broadcast_to(holds, whole)
    yield ctas[where], np.broadcast_to(place, whole)[where]


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
        return _holds(condition.args[0], values)
    return None


def _meeting(access: _Access, first: Block, second: Block, index: tuple[int, ...]) -> Reason:
    """Return where two CTAs meet in an element."""
    if access.writes:
        return Reason(
            "ownership.both_write", first=first, second=second, buffer=access.name, index=index
        )
    return Reason(
        "ownership.write_and_read", first=first, second=second, buffer=access.name, index=index
    )


def _block(cta: int, grid: Block) -> Block:
    """Return blockIdx of the CTA with that number."""
    x, y, _ = grid
    return cta % x, cta // x % y, cta // (x * y)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_pointer_to(arg: Any) -> bool:
    return isinstance(arg, ir.Var) and isinstance(arg.ty, ir.PointerType)
