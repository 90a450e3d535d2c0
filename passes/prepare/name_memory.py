"""Make every access name the memory that it touches, whatever buffer it is written with.

    Yv = T.decl_buffer((20, 128), data=Y.data)
    Yv[t // 2, t % 2 * 64 + tx] = ..                 =>    Y[t, tx] = ..

A view with elements as large as those of its memory is inlined, so that all later passes see one
buffer. If its type is another one, the values loaded and stored are reinterpreted.

Any other view (of elements of another size, one passed by pointer with its own type, or of a memory
with padding) keeps its accesses. It is declared anew beside each statement that uses it, so that
the statement itself says whose memory that is:

    Yb = T.decl_buffer((40, 256), "int8", data=Y.data)
    for t:                                                 for t:
        Yb[t, tx] = ..                               =>        Yb = T.decl_buffer(.., data=Y.data)
                                                               Yb[t, tx] = ..
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range, Var

from ..analysis.memory import (
    Memories,
    first_element,
    is_pointer,
    memories,
    pointed,
    pointer_to,
    rooted,
)
from ..ir import nodes as ir
from ..ir.calls import ADDRESS_OF, REINTERPRET, called
from ..ir.kernels import bodies, on_host, with_bodies
from ..ir.moved import MovedWhole, Mover
from ..ir.named_pass import named_pass
from ..ir.nodes import Buffer, Expr, ForKind, Stmt, const_int

_REINTERPRETED: Final = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64"),
}
"""Types of one element that ``T.reinterpret`` takes and gives."""


@named_pass("NameMemory")
def name_memory(func: Any) -> Any:
    """Return ``func`` without inlinable views, the others declared where they are used."""
    if not ir.has(func.body, tirx.DeclBuffer) and not ir.has(func.body, tirx.Bind, _names_pointer):
        return func
    body = tvm_ffi.structural_mutate(func.body, [(tirx.Bind, _settled)])
    named = memories(body)
    if not named.places:
        return func
    views = _Views(body, named)
    body = views.sink(views.inline(body))
    body = on_host(views.hoisted, body)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _names_pointer(bind: Any) -> bool:
    return is_pointer(bind.var)


def _settled(bind: Any, mutator: Any) -> Any:
    """Return a named pointer whose indices are loaded first, so that it can be inlined."""
    value = bind.value
    if not is_pointer(bind.var) or called(value) != ADDRESS_OF:
        return bind
    load = value.args[0]
    if not isinstance(load, ir.TensorLoad) or not ir.has(list(load.indices), ir.TensorLoad):
        return bind
    names = [Var(f"{bind.var.name}_{n}", index.ty) for n, index in enumerate(load.indices)]
    at = tirx.address_of(tirx.BufferLoad(load.source, names))
    loaded = [tirx.Bind(name, index) for name, index in zip(names, load.indices)]
    return ir.seq(*loaded, tirx.Bind(bind.var, at))


@dataclass
class _Views:
    """The views of one function, and what becomes of each.

    ``inlined``: those that have no accesses of their own from here on. ``pointers``: named pointers
    with their values. ``kept``: the other views, each with the data that it is declared over.
    ``hoisted``: declarations over raw pointers of which there are views.
    """

    body: Stmt
    named: Memories
    inlined: set[Buffer] = field(default_factory=set)
    pointers: dict[Var, Expr] = field(default_factory=dict)
    kept: dict[Buffer, Expr] = field(default_factory=dict)
    hoisted: list[Stmt] = field(default_factory=list)
    ranges: sym.Analyzer = field(default_factory=sym.Analyzer)
    mover: Mover = field(default_factory=lambda: Mover({}))

    def __post_init__(self) -> None:
        """Decide for each view what becomes of it."""
        ir.walk(self.body, (tirx.For, ir.SBlock), self._bound)
        vectors: set[Buffer] = set()

        def access(node: Any) -> None:
            if any("x" in str(index.ty) for index in node.indices):
                vectors.add(node.source if isinstance(node, ir.TensorLoad) else node.buffer)

        ir.walk(self.body, (ir.TensorLoad, tirx.BufferStore), access)
        reached = pointed(self.body)

        def declared(stmt: Any) -> None:
            if isinstance(stmt, tirx.Bind):
                if stmt.var in self.named.places:
                    self.pointers[stmt.var] = stmt.value
            elif stmt.buffer in self.named.places:
                view, root = stmt.buffer, self.named.place(stmt.buffer).root
                typed = str(view.dtype) != str(root.dtype) and view in reached
                if view not in vectors and not typed and self._may_inline(view):
                    self.inlined.add(stmt.buffer)
                else:
                    self.kept[stmt.buffer] = stmt.data

        ir.walk(self.body, (tirx.DeclBuffer, tirx.Bind), declared)

    def _bound(self, node: Any) -> None:
        if isinstance(node, tirx.For):
            self.ranges.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
            return
        for axis in node.iter_vars:
            self.ranges.bind(axis.var, axis.dom)

    def _may_inline(self, view: Buffer) -> bool:
        root = self.named.place(view).root
        kinds = {str(root.dtype), str(view.dtype)}
        alike = len(kinds) == 1 or kinds <= _REINTERPRETED
        return (
            alike
            and root.scope() == view.scope()
            and first_element(self.named, view, self.ranges) is not None
        )

    # Inlined views, and named pointers.

    def inline(self, body: Stmt) -> Stmt:
        """Return ``body`` with accesses of inlined views made through their memory."""
        self.mover = Mover({view: _Inlined(self, view) for view in self.inlined})
        rewriters = [
            (ir.TensorLoad, _behind(self.mover.load)),
            (tirx.BufferStore, _behind(self.mover.store)),
            (ir.TensorRegion, self._region),
            (ir.Call, self._call),
            (ir.SBlock, self._block),
            (tirx.DeclBuffer, self._drop),
            (tirx.Bind, self._bind),
            (Var, self._var),
        ]
        return tvm_ffi.structural_mutate(body, rewriters)

    def _var(self, node: Any, mutator: Any) -> Any:
        value = self.pointers.get(node)
        return node if value is None else mutator.mutate(value)

    def _region(self, node: Any, mutator: Any) -> Any:
        """Return the whole memory: a region of a view need not be a region of it."""
        if node.source not in self.named.places:
            return mutator.default_mutate(node)
        root = self.named.place(node.source).root
        whole = [Range.from_min_extent(ir.i32(0), extent) for extent in root.shape]
        return tirx.BufferRegion(root, whole)

    def _block(self, node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        reads, writes = _united(node.reads), _united(node.writes)
        if len(reads) == len(node.reads) and len(writes) == len(node.writes):
            return node
        return ir.SBlock(
            node.iter_vars,
            reads,
            writes,
            node.name_hint,
            node.body,
            node.init,
            node.alloc_buffers,
            node.match_buffers,
            node.annotations,
        )

    def _call(self, node: Any, mutator: Any) -> Any:
        node = self.mover.call(mutator.default_mutate(node))
        if called(node) == REINTERPRET:
            return _as_type(str(node.ty.dtype), node.args[0])
        return node

    def _drop(self, node: Any, mutator: Any) -> Any:
        if node.buffer in self.kept:
            raw = {pointer: root.data for pointer, root in self.named.roots.items()}
            self.kept[node.buffer] = ir.substitute(mutator.mutate(node.data), raw)
        if node.buffer in self.named.places:
            return ir.seq()
        if any(place.root.same_as(node.buffer) for place in self.named.places.values()):
            self.hoisted.append(node)  # where it stands not all views need be in its scope
            return ir.seq()
        return mutator.default_mutate(node)

    def _bind(self, node: Any, mutator: Any) -> Any:
        return ir.seq() if node.var in self.pointers else mutator.default_mutate(node)

    # Views that stay.

    def sink(self, stmt: Stmt) -> Stmt:
        """Return ``stmt`` with each kept view declared beside every statement that uses it."""
        inner = bodies(stmt)
        if not ir.uses(stmt, self.kept):
            return stmt
        one = getattr(stmt, "kind", None) == ForKind.VECTORIZED
        if not inner or one or ir.uses(_own(stmt), self.kept):
            return self._declared(stmt)
        return with_bodies(stmt, [self.sink(part) for part in inner])

    def _declared(self, stmt: Stmt) -> Stmt:
        wanted = self._with_sources(ir.variables(stmt) & self.kept.keys())
        fresh: dict[Any, Any] = {view: Var(view.name, view.ty) for view in wanted}
        made = [
            tirx.DeclBuffer(fresh[view], data=ir.substitute(self.kept[view], fresh))
            for view in wanted
        ]
        return ir.block("", ir.seq(*made, ir.substitute(stmt, fresh)))

    def _with_sources(self, wanted: set[Buffer] | frozenset[Buffer]) -> list[Buffer]:
        """Return the views ``wanted`` and those over whose data they are declared, in order."""
        found = set(wanted)
        for view in reversed(list(self.kept)):
            if view in found:
                found |= ir.variables(self.kept[view]) & self.kept.keys()
        return [view for view in self.kept if view in found]


def _behind(rule: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return ``rule`` applied to a node when all in it is rewritten."""
    return lambda node, mutator: rule(mutator.default_mutate(node))


class _Inlined(MovedWhole):
    """A view that is inlined, as the memory that it is a view of."""

    def __init__(self, views: _Views, view: Buffer) -> None:
        self.named, self.ranges, self.view = views.named, views.ranges, view
        self.buffer = views.named.place(view).root

    def at(self, indices: Sequence[Expr]) -> Sequence[Expr]:
        return rooted(self.named, self.view, indices, self.ranges) or indices

    def loaded(self, load: Any) -> Expr:
        return _as_type(str(self.view.dtype), load)

    def stored(self, value: Expr) -> Expr:
        return _as_type(str(self.buffer.dtype), value)

    def ahead(self, unit: Any) -> Expr:
        start = first_element(self.named, self.view, self.ranges)
        return ir.i32(0) if start is None else start

    def pointer(self, rank: int) -> Expr:
        return pointer_to(self.buffer, self.ahead(self.view.dtype), self.ranges)


def _as_type(dtype: str, value: Expr) -> Expr:
    """Return the bits of ``value`` as a value of type ``dtype``, which has the same size."""
    while str(value.ty.dtype) != dtype and called(value) == REINTERPRET:
        value = value.args[0]
    return value if str(value.ty.dtype) == dtype else tirx.reinterpret(dtype, value)


def _own(stmt: Stmt) -> list[Expr]:
    """Return the expressions of a compound statement, without those of its inner statements."""
    kind = type(stmt)
    if kind is tirx.For:
        return [stmt.min, stmt.extent]
    if kind in (tirx.IfThenElse, tirx.While):
        return [stmt.condition]
    if kind is ir.SBlockRealize:
        block = stmt.block
        matched = [match.source for match in block.match_buffers]
        return [stmt.predicate, *stmt.iter_values, *matched, *filter(None, [block.init])]
    return [stmt.value] if kind is tirx.AttrStmt else []


def _united(regions: Sequence[Any]) -> list[Any]:
    """Return ``regions`` with one region of each memory: the largest of several."""
    found: dict[Buffer, Any] = {}
    for region in regions:
        old = found.get(region.source)
        if old is None or _is_whole(region):
            found[region.source] = region
        elif not _is_whole(old):
            found[region.source] = tirx.BufferRegion(
                region.source,
                [Range.from_min_extent(ir.i32(0), extent) for extent in region.source.shape],
            )
    return list(found.values())


def _is_whole(region: Any) -> bool:
    return all(
        const_int(dim.min) == 0 and dim.extent.same_as(size)
        for dim, size in zip(region.region, region.source.shape)
    )
