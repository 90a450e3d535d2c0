"""Construct and visit TVM 0.27's TensorIR nodes: small functions that the passes share.

TVM 0.27 has no Python statement functors. Rewriting is ``tvm_ffi.structural_map`` (replace nodes)
or ``structural_mutate`` (full control). A buffer is a ``Var`` whose type is a buffer type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, Op, StringImm, TensorLoad, TensorRegion, Var
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import ForKind, IterVar
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.buffer import is_buffer_var

from ...values.op import Op as LoopOp
from ...values.origin import ORIGIN_ATTR, Origin
from .calls import called

OP_ATTR: Final = "pipeliner.op"
"""Key of the AttrStmt around each op of a pipelined body; its value is what the op prints as."""

CONSTANTS: Final = frozenset({tirx.IntImm, tirx.FloatImm, StringImm})
"""Types of nodes without children, which visitors meet most often and need not enter."""

_STOP: Final = tvm_ffi.VisitInterrupt(None)

_WALK: Final = tvm_ffi.get_global_func("ffi.StructuralWalk")
"""What ``tvm_ffi.structural_walk`` calls, after it has looked at its arguments for three times as
long as most expressions take."""

_PARENTS_FIRST: Final = int(tvm_ffi.WalkOrder.PREORDER)

Expr = Any
Stmt = Any
Buffer = Any


def i32(value: int) -> Expr:
    """Return an int32 constant."""
    return tirx.const(value, "int32")


def simplify(expr: Expr) -> Expr:
    """Return ``expr`` simplified without any knowledge of ranges."""
    return sym.Analyzer().simplify(expr)


def const_int(expr: Expr) -> int | None:
    """Return the integer that ``expr`` simplifies to, or None."""
    kind = type(expr)
    if kind is int:
        return cast(int, expr)
    if kind is tirx.IntImm:
        return int(expr.value)
    if kind is Var:
        return None
    value = getattr(simplify(expr), "value", None)  # a cast has one too, an expression
    return int(value) if isinstance(value, int) else None


def literal(expr: Expr) -> int | None:
    """Return the integer that is written as ``expr``; None for what would have to be computed."""
    value = getattr(expr, "value", expr)
    return value if isinstance(value, int) else None


def is_among(expr: Expr, others: Iterable[Expr]) -> bool:
    """Whether ``expr`` is one of ``others``, written alike."""
    return any(tvm_ffi.structural_equal(expr, other) for other in others)


def substitute(node: Any, values: Mapping[Var, Expr]) -> Any:
    """Return ``node`` (statement or expression) with free variables replaced."""
    if not values or type(node) in CONSTANTS:
        return node
    return tvm_ffi.structural_map(node, [(Var, lambda v: values.get(v, v))], order="post")


def seq(*stmts: Stmt | None) -> Stmt:
    """Return the statements in sequence, flattened; None is skipped; empty gives a no-op."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if stmt is not None:
            flat.extend(stmt.seq if isinstance(stmt, tirx.SeqStmt) else [stmt])
    if not flat:
        return tirx.Evaluate(i32(0))
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def statements(stmt: Stmt) -> list[Stmt]:
    """Return the statements of a sequence, or the one statement."""
    return list(stmt.seq) if isinstance(stmt, tirx.SeqStmt) else [stmt]


def loop(
    name: str,
    extent: int | Expr,
    body: Callable[[Var], Stmt],
    kind: Any = ForKind.SERIAL,
    annotations: Mapping[str, Any] | None = None,
) -> Stmt:
    """Return ``for name in range(extent): body(name)``."""
    var = Var(name, "int32")
    bound = i32(extent) if isinstance(extent, int) else extent
    return tirx.For(var, i32(0), bound, kind, body(var), None, dict(annotations or {}))


def unrolled(name: str, extent: int, body: Callable[[Var], Stmt]) -> Stmt:
    """Return a loop that TVM unrolls."""
    return loop(name, extent, body, ForKind.UNROLLED)


def vectorized(name: str, extent: int, body: Callable[[Var], Stmt]) -> Stmt:
    """Return a loop that becomes one vector access; with extent 1 it is no loop."""
    return body(i32(0)) if extent == 1 else loop(name, extent, body, ForKind.VECTORIZED)


def thread_loop(var: Var, extent: int, tag: str, body: Stmt) -> Stmt:
    """Return ``body`` with ``var`` bound to the thread axis ``tag``."""
    axis = IterVar(None, Var("iter", "int32"), IterVar.ThreadIndex, tag)
    return tirx.For(var, i32(0), i32(extent), ForKind.THREAD_BINDING, body, axis)


def block(
    name: str,
    body: Stmt,
    allocs: Sequence[Buffer] = (),
    reads: Sequence[TensorRegion] = (),
    writes: Sequence[TensorRegion] = (),
    annotations: Mapping[str, Any] | None = None,
) -> Stmt:
    """Return an opaque SBlock, realized."""
    regions = list(reads), list(writes)
    attrs = dict(annotations or {})
    return SBlockRealize([], True, SBlock([], *regions, name, body, None, list(allocs), [], attrs))


def buffer(
    shape: Sequence[int | Expr], dtype: str, name: str, scope: str, align: int = -1
) -> Buffer:
    """Return a new buffer without a layout (what S-TIR expects)."""
    return tirx.decl_buffer(
        list(shape), dtype, name, scope=scope, layout=None, data_alignment=align
    )


def op_stmt(op: LoopOp, body: Stmt) -> Stmt:
    """Return ``body`` marked as the op ``op`` of a pipelined loop."""
    return tirx.AttrStmt(StringImm(str(op)), OP_ATTR, StringImm(str(op)), body)


def with_origin(origin: Origin, body: Stmt) -> Stmt:
    """Return ``body`` marked as coming from ``origin``."""
    return tirx.AttrStmt(StringImm(str(origin.op)), ORIGIN_ATTR, StringImm(origin.text), body)


def origin_of(stmt: Stmt) -> Origin | None:
    """Return the origin that ``stmt`` is marked with, else None."""
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ORIGIN_ATTR:
        return Origin.parse(str(stmt.value.value))
    return None


def op_of(stmt: Stmt) -> LoopOp | None:
    """Return the op that ``stmt`` is marked as, else None."""
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == OP_ATTR:
        return LoopOp.parse(str(stmt.value.value))
    return None


def walk(node: Any, kind: type | tuple[type, ...], visit: Callable[[Any], Any]) -> None:
    """Call ``visit`` on every node of ``kind`` below ``node``, itself included, parents first."""
    if type(node) in CONSTANTS:
        if isinstance(node, kind):
            visit(node)
        return

    def visitor(found: Any) -> None:
        visit(found)

    _WALK(node, [(index, visitor) for index in _type_indices(kind)], [], _PARENTS_FIRST)


def collect(
    node: Any, kind: type | tuple[type, ...], wanted: Callable[[Any], bool] | None = None
) -> list[Any]:
    """Return the nodes of ``kind`` in ``node`` that are ``wanted``, in the order of ``walk``."""
    found: list[Any] = []
    walk(node, kind, lambda one: found.append(one) if wanted is None or wanted(one) else None)
    return found


def has(
    node: Any, kind: type | tuple[type, ...], holds: Callable[[Any], bool] | None = None
) -> bool:
    """Whether ``node`` contains, or is, a node of ``kind`` of which ``holds`` is true."""
    if type(node) in CONSTANTS:
        return isinstance(node, kind) and (holds is None or holds(node))

    def stop(found: Any) -> Any:
        return _STOP if holds is None or holds(found) else None

    entries = [(index, stop) for index in _type_indices(kind)]
    return _WALK(node, entries, [], _PARENTS_FIRST) is not None


@cache
def _type_indices(kind: type | tuple[type, ...]) -> tuple[int, ...]:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return tuple(tvm_ffi.core.TypeSchema.from_annotation(one).origin_type_index for one in kinds)


def variables(node: Any) -> frozenset[Var]:
    """Return the variables (buffers too) in ``node``."""
    if type(node) in CONSTANTS:
        return frozenset()
    value = isinstance(node, tvm.ir.Expr) and isinstance(node.ty, tvm.ir.PrimType)
    if value or type(node) in (tirx.BufferStore, tirx.Evaluate):
        return frozenset(undefined_vars(node)[:])  # it defines none of its own
    found: set[Var] = set()
    _WALK(node, [(index, found.add) for index in _type_indices(Var)], [], _PARENTS_FIRST)
    return frozenset(found)


def uses(node: Any, wanted: Iterable[Var]) -> bool:
    """Whether any of ``wanted`` (buffers too) occurs in ``node``."""
    return not variables(node).isdisjoint(wanted)


def operators(node: Any) -> frozenset[str]:
    """Return the names of the operators that are called in ``node``."""
    return frozenset(map(called, collect(node, Call)))


def dtype_bytes(dtype: Any) -> int:
    """Return the bytes of one element (sub-byte types round up)."""
    kind = tvm.DataType(str(dtype))
    return max(1, int(kind.bits) * int(kind.lanes) // 8)


def buffer_bytes(buf: Buffer) -> int | None:
    """Return the bytes of a buffer with a static shape, else None."""
    total = dtype_bytes(buf.dtype)
    for extent in buf.shape:
        size = const_int(extent)
        if size is None:
            return None
        total *= size
    return total


def is_shared(buf: Buffer) -> bool:
    """Whether a buffer lives in shared memory, static or dynamic."""
    return str(buf.scope()).startswith("shared")


def is_global(buf: Buffer) -> bool:
    """Whether a buffer lives in global memory."""
    return str(buf.scope()) in ("", "global")


def is_private(buf: Buffer) -> bool:
    """Whether a buffer lives in registers, of a thread or of a warp."""
    return not is_shared(buf) and not is_global(buf)


__all__ = [
    "OP_ATTR",
    "ORIGIN_ATTR",
    "Buffer",
    "Call",
    "Expr",
    "ForKind",
    "Op",
    "SBlock",
    "SBlockRealize",
    "Stmt",
    "StringImm",
    "TensorLoad",
    "TensorRegion",
    "Var",
    "block",
    "buffer",
    "buffer_bytes",
    "const_int",
    "dtype_bytes",
    "has",
    "i32",
    "is_buffer_var",
    "is_global",
    "is_private",
    "is_shared",
    "loop",
    "op_of",
    "op_stmt",
    "operators",
    "origin_of",
    "seq",
    "simplify",
    "statements",
    "substitute",
    "thread_loop",
    "unrolled",
    "uses",
    "vectorized",
    "walk",
    "with_origin",
]
