"""Find what a statement reads and writes: its accesses, in the order in which it makes them.

    S[i] = A[k] + f(B.data)     =>   read A[k], read and write B, write S[i]

The result is sound for every statement. Loads and stores are exact. What happens through a pointer
depends on who gets it. An instruction reads or writes it as TVM's own PTX table says. Any other
opaque call does what the enclosing block's signature says of the buffer (TVM's contract for opaque
blocks), or else the pointer's access mask, or else both; buffers that such a signature lists are
touched too, even if the call does not name them.

A *fence* is what nothing may move across: an opaque call that touches no buffer (a barrier, an
extern without pointers), a call that ``fences`` names, and a loop that ends when others write
(``polled``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx.buffer import is_buffer_var

from ...diagnostics import Reason
from ..ir.calls import ACCESS_PTR, ADDRESS_OF, POINTERS, called
from ..ir.nodes import CONSTANTS, Buffer, Expr, Stmt, i32, literal, walk
from .effect_values import Effect, Effects, Use
from .fences import callee, fence_of, polled_by
from .memory import Memories, byte_span
from .operands import BOTH, READ, WRITE, InstructionEffects, instruction_of

_OPAQUE_EFFECT: Final = 2
"""Largest ``TCallEffectKind`` without effect on memory; UpdateState is above it."""

# Values that the lanes of a warp exchange: opaque to TVM, which must keep the lanes together.
_EXCHANGES: Final = (
    *(f"tirx.tvm_warp_shuffle{kind}" for kind in ("", "_up", "_down", "_xor")),
    *(f"tirx.cuda.__shfl{kind}_sync" for kind in ("", "_up", "_down", "_xor")),
)
_TRANSPARENT: Final = ("tirx.cuda.cvta_generic_to_shared", "tirx.ptx.addr")

__all__ = ["BOTH", "READ", "WRITE", "Effect", "Effects", "effects"]


def effects(stmt: Stmt, on: Callable[[Buffer], bool] | None = None) -> Effects:
    """Return the effects of ``stmt``; with ``on``, those on buffers that it is true of."""
    found = _Collector(on)
    found.visit(stmt)
    return found.result


class _Collector:
    """Visits a statement in execution order and collects its effects.

    ``signatures``: of the enclosing blocks, inner last; ``calls``: whether each has an opaque call
    of its own. ``call`` and ``instruction``: the innermost call, but one that multiplies by
    descriptors around those that encode them. ``unused``: the value of an Evaluate, which no
    statement uses.
    """

    def __init__(self, on: Callable[[Buffer], bool] | None) -> None:
        self.on = on
        self.result = Effects()
        self.signatures: list[dict[Buffer, tuple[str, Any]]] = []
        self.calls: list[bool] = []
        self.guards: list[Expr] = []
        self.buffers: dict[Buffer, Buffer] = {}
        self.wanted: dict[Buffer, bool] = {}
        self.memories = Memories()
        self.call: Any = None
        self.instruction: InstructionEffects | None = None
        self.unused: Any = None
        self.callbacks = [
            (tirx.For, self._for),
            (SBlockRealize, self._realize),
            (SBlock, self._block),
            (tirx.BufferStore, self._store),
            (TensorLoad, self._load),
            (Call, self._call),
            (tirx.IfThenElse, self._if),
            (tirx.Bind, self._bind),
            (tirx.Let, self._let),
            (tirx.AllocBuffer, self._alloc),
            (tirx.DeclBuffer, self._declare),
            (tirx.While, self._while),
            (tirx.Evaluate, self._evaluate),
            ((tirx.Break, tirx.Continue, tirx.Return), self._leave),
        ]

    def visit(self, node: Any) -> None:
        tvm_ffi.structural_visit(node, self.callbacks)

    def _for(self, node: Any, visitor: Any) -> None:
        visitor.visit(node.min)
        visitor.visit(node.extent)
        for bound in (node.min, node.extent):
            if type(bound) not in CONSTANTS:
                walk(bound, TensorLoad, lambda load: self.result.bounds.add(load.source))
        low, extent = literal(node.min), literal(node.extent)
        bounds = None
        if low is not None and extent is not None:
            bounds = (low, low + max(extent, 1) - 1)
        self.result.locals[node.loop_var] = bounds
        visitor.visit(node.body)

    def _realize(self, node: Any, visitor: Any) -> None:
        guarded = literal(node.predicate) != 1
        if guarded:
            visitor.visit(node.predicate)
            self.guards.append(node.predicate)
        visitor.visit(node.block)
        if guarded:
            self.guards.pop()

    def _block(self, node: Any, visitor: Any) -> None:
        self.result.allocated.update(node.alloc_buffers)
        for var in node.iter_vars:
            self.result.locals[var.var] = None
        signature: dict[Buffer, tuple[str, Any]] = {}
        for mode, regions in ((READ, node.reads), (WRITE, node.writes)):
            for region in regions:
                old = signature.get(region.source)
                merged = (mode, region) if old is None else (BOTH, None)
                signature[region.source] = merged
        self.signatures.append(signature)
        self.calls.append(False)
        before = len(self.result.accesses)
        if node.init is not None:
            visitor.visit(node.init)
        visitor.visit(node.body)
        self.signatures.pop()
        if self.calls.pop():
            self._signed(signature, before)

    def _signed(self, signature: Mapping[Buffer, tuple[str, Any]], before: int) -> None:
        """Add what the block around an opaque call lists and no statement in it touches."""
        seen = {access.buffer for access in self.result.accesses[before:]}
        for buf, (mode, region) in signature.items():
            if buf not in seen and buf not in self.result.allocated:
                self._access(buf, mode, _region_box(region))

    def _store(self, node: Any, visitor: Any) -> None:
        indices = node.indices[:]
        self._values([node.value, *indices], visitor)
        self._access(node.buffer, WRITE, _point(indices))
        if not _is_moved(node.value):
            self.result.is_move = False

    def _load(self, node: Any, visitor: Any) -> None:
        self._element(node, READ, visitor)

    def _element(self, load: Any, mode: str, visitor: Any, pointer: Any = None) -> None:
        """Add an access of an element: a load, or an operand passed by reference."""
        indices = load.indices[:]
        self._values(indices, visitor)
        if self.on is None or self._is_wanted(load.source):
            self._access(load.source, mode, _point(indices), pointer)

    def _values(self, exprs: Sequence[Any], visitor: Any) -> None:
        for expr in exprs:
            if type(expr) not in CONSTANTS:
                visitor.visit(expr)

    def _if(self, node: Any, visitor: Any) -> None:
        self._either(node.condition, node.then_case, node.else_case, visitor)

    def _either(self, condition: Any, then: Any, other: Any, visitor: Any) -> None:
        """Visit two branches of which one runs; the second may be None."""
        visitor.visit(condition)
        self.guards.append(condition)
        visitor.visit(then)
        self.guards.pop()
        if other is not None:
            self.guards.append(tirx.Not(condition))
            visitor.visit(other)
            self.guards.pop()

    def _while(self, node: Any, visitor: Any) -> None:
        self.result.is_opaque = True
        self.result.polled |= polled_by(node)
        visitor.visit(node.condition)
        visitor.visit(node.body)

    def _leave(self, node: Any, visitor: Any) -> None:
        leaves = Reason("fence.leaves", by=type(node).__name__.lower())
        self.result.fence = self.result.fence or leaves

    def _evaluate(self, node: Any, visitor: Any) -> None:
        self.unused = node.value
        self._values([node.value], visitor)

    def _bind(self, node: Any, visitor: Any) -> None:
        self.result.locals[node.var] = None
        visitor.visit(node.value)

    def _let(self, node: Any, visitor: Any) -> None:
        self.result.locals[node.var] = None
        visitor.visit(node.value)
        visitor.visit(node.body)

    def _alloc(self, node: Any, visitor: Any) -> None:
        self.result.allocated.add(node.buffer)

    def _declare(self, node: Any, visitor: Any) -> None:
        if self.memories.declare(node):
            self.result.viewed.add(self.memories.place(node.buffer).root)
        else:
            for buf in _pointed(node.data):  # its place in them is unknown
                self.result.viewed.add(buf)
                self._access(buf, BOTH, None)
        self.result.locals[node.buffer] = None

    def _call(self, node: Any, visitor: Any) -> None:
        name, instruction = called(node), instruction_of(node)
        unused = self.unused is not None and node.same_as(self.unused)
        self.result.fence = self.result.fence or fence_of(node, unused=unused)
        if name in POINTERS:
            self._pointer(node, READ if self._reads_by_descriptor() else None, visitor)
        elif name.endswith("if_then_else"):
            condition, value, other = node.args
            self._either(condition, value, other, visitor)
        elif name in (*_TRANSPARENT, *_EXCHANGES) or (
            instruction is None and name and _is_pure(node.op)
        ):
            visitor.default_visit(node)
        elif self._reads_by_descriptor():
            self._unknown(node, visitor)
        else:
            around = self.call, self.instruction
            self.call, self.instruction = node, instruction
            if instruction is None:
                self._unknown(node, visitor)
            else:
                self._instruction(instruction, node, visitor)
            self.call, self.instruction = around

    def _reads_by_descriptor(self) -> bool:
        return self.instruction is not None and self.instruction.by_descriptor

    def _instruction(self, instruction: InstructionEffects, node: Any, visitor: Any) -> None:
        self.result.is_mma |= instruction.is_mma
        if instruction.roles is None:
            self._unknown(node, visitor)
            return
        self.result.is_move &= instruction.is_move
        self.result.is_async |= instruction.is_async
        self.result.is_mma_wait |= instruction.is_mma_wait
        runs = self.result.in_flight or instruction.by_descriptor
        self.result.in_flight = runs and not instruction.is_mma_wait
        if instruction.guard is not None:
            guard = node.args[instruction.guard]
            is_bool = str(guard.ty.dtype) == "bool"
            self.guards.append(guard if is_bool else tirx.NE(guard, i32(0)))
        self._operands(node.args, instruction, visitor)
        if instruction.guard is not None:
            self.guards.pop()

    def _operands(self, args: Any, instruction: InstructionEffects, visitor: Any) -> None:
        """Visit the operands, inputs first: an accumulator is read before it is written."""
        roles, args = instruction.roles or {}, args[:]
        if not instruction.only_roles:
            self._values([arg for at, arg in enumerate(args) if at not in roles], visitor)
        for mode in (READ, BOTH, WRITE):
            for position, role in roles.items():
                if role == mode:
                    self._pointer(args[position], role, visitor)

    def _unknown(self, node: Any, visitor: Any) -> None:
        """Add any effect on what the arguments reach; on everything if they reach nothing."""
        before = len(self.result.accesses)
        for arg in node.args:
            if isinstance(arg, TensorLoad):
                self._element(arg, BOTH, visitor, arg)
            else:
                visitor.visit(arg)
        self.result.is_opaque = True
        self.result.is_move = False
        if self.signatures:
            self.calls[-1] = True
        if len(self.result.accesses) == before:
            why = Reason("fence.calls", function=callee(node))
            self.result.fence = self.result.fence or why

    def _pointer(self, arg: Any, role: str | None, visitor: Any) -> None:
        """Add an access as ``role`` through an address, or to an element by reference."""
        while type(arg) is Call and called(arg) in _TRANSPARENT:
            arg = arg.args[0]
        if type(arg) is TensorLoad:
            self._element(arg, role or BOTH, visitor)
            return
        if called(arg) not in POINTERS:
            visitor.visit(arg)
            return
        if called(arg) == ADDRESS_OF:
            target = arg.args[0]
            if isinstance(target, TensorLoad):  # not a tensor map
                self._values(target.indices[:], visitor)
                self._access(target.source, *self._role(target.source, role), arg)
        elif called(arg) == ACCESS_PTR:
            mask = literal(arg.args[4])
            masked = {1: READ, 2: WRITE}.get(mask or 0, BOTH)
            visitor.visit(arg.args[2])
            for buf in _pointed(arg.args[1]):
                self._access(buf, *self._role(buf, role or masked), arg)
        else:
            self._access(arg.args[0], *self._role(arg.args[0], role), arg)

    def _role(self, buf: Buffer, role: str | None) -> tuple[str, Any]:
        """Return mode and box of a pointer: by the instruction, or else the innermost signature."""
        for signature in reversed(self.signatures):
            if buf in signature:
                mode, region = signature[buf]
                if role is None or role == mode:
                    return mode, _region_box(region)
                return role, None
        return role or BOTH, None

    def _access(self, buf: Buffer, mode: str, box: Any, pointer: Any = None) -> None:
        span = None
        if buf in self.memories.places:
            span, box = byte_span(self.memories, buf, box), None
            buf = self.memories.place(buf).root
        if self.on is None or self._is_wanted(buf):
            buf = self.buffers.setdefault(buf, buf)  # one object each: comparing them is cheap then
            use = None if pointer is None else Use(self.call, self.instruction, pointer)
            self.result.accesses.append(Effect(buf, mode, box, tuple(self.guards), span, use))

    def _is_wanted(self, buf: Buffer) -> bool:
        if buf not in self.wanted:
            self.wanted[buf] = self.on is None or self.on(buf)
        return self.wanted[buf]


def _is_pure(op: Any) -> bool:
    effect = op.get_attr("TCallEffectKind")
    return effect is not None and int(effect) <= _OPAQUE_EFFECT


def _is_moved(value: Any) -> bool:
    if isinstance(value, tirx.Cast):
        return _is_moved(value.value)
    if called(value).endswith("if_then_else"):
        return _is_moved(value.args[1])
    if isinstance(value, tirx.Select):
        return _is_moved(value.true_value)
    return isinstance(value, TensorLoad)


def _point(indices: Sequence[Expr]) -> tuple[tuple[Expr, int], ...]:
    return tuple((index, 1) for index in indices)


def _region_box(region: Any) -> tuple[tuple[Expr, int], ...] | None:
    if region is None:
        return None
    extents = [literal(dim.extent) for dim in region.region]
    if any(extent is None for extent in extents):
        return None
    return tuple((dim.min, extent or 0) for dim, extent in zip(region.region, extents, strict=True))


def _pointed(expr: Any) -> list[Buffer]:
    found: list[Buffer] = []
    tvm_ffi.structural_walk(expr, (Var, lambda v: found.append(v) if is_buffer_var(v) else None))
    return found
