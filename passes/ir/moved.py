"""Move the accesses of buffers into other buffers, in every form that an access has.

    S[i]                                       =>   ring[slot, i]
    tvm_access_ptr(type, data of S, at, n)     =>   tvm_access_ptr(type, data of ring, at + .., n)
    ldmatrix(.., data of S, at)                =>   ldmatrix(.., data of ring, at + ..)
    f(data of S)                               =>   f(address_of(ring[slot, 0]))

Who moves a buffer says where its elements go (a ``Moved``), and whether pointers to it move too (a
``MovedWhole``); what an access looks like stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, TensorRegion

from .calls import ACCESS_PTR, BUFFER_DATA, called
from .nodes import Buffer, Expr, i32


class Moved(ABC):
    """Where the elements of a buffer go: into ``buffer``. Pointers to its data stay."""

    buffer: Buffer

    @abstractmethod
    def at(self, indices: Sequence[Expr]) -> Sequence[Expr]:
        """Return the indices in ``buffer`` of the element that was at ``indices``."""

    def region(self, region: Any) -> Any:
        """Return a region of ``buffer`` in place of one of the buffer that was."""
        return region

    def loaded(self, load: Any) -> Expr:
        """Return the value of an element, loaded from ``buffer``."""
        return load

    def stored(self, value: Expr) -> Expr:
        """Return what ``buffer`` holds for a value."""
        return value


class MovedWhole(Moved):
    """Where the elements of a buffer go, and the pointers to its data."""

    @abstractmethod
    def ahead(self, unit: Any) -> Expr:
        """Return how many elements of type ``unit`` stand in ``buffer`` before the first."""

    def beside(self, name: str, position: int) -> tuple[int, Expr] | None:
        """Return which operand of a call ``name`` is the offset of the pointer at ``position``.

        With what is added to it. None if there is none: the pointer itself moves.
        """
        return None

    def pointer(self, rank: int) -> Expr:
        """Return the address of the first element; ``rank``: dimensions of the buffer that was."""
        return tirx.address_of(tirx.BufferLoad(self.buffer, list(self.at([i32(0)] * rank))))


@dataclass(frozen=True, slots=True)
class MovedTo(Moved):
    """The elements go into ``buffer``, at the indices that ``where`` returns."""

    buffer: Buffer
    where: Callable[[Sequence[Expr]], Sequence[Expr]] | None = None

    def at(self, indices: Sequence[Expr]) -> Sequence[Expr]:
        """Return the indices in ``buffer``."""
        return indices if self.where is None else self.where(indices)


class Mover:
    """Callbacks of a post-order map that move accesses as ``moves`` says."""

    def __init__(self, moves: Mapping[Buffer, Moved]) -> None:
        self.moves = moves
        self.pointers: dict[Expr, MovedWhole] = {}
        self.rules = [
            (TensorLoad, self.load),
            (tirx.BufferStore, self.store),
            (TensorRegion, self.region),
            (Call, self.call),
        ]

    def moved(self, node: Any) -> Any:
        """Return ``node``, a statement or an expression, with its accesses moved."""
        return tvm_ffi.structural_map(node, self.rules, order="post")

    def load(self, node: Any) -> Any:
        move = self.moves.get(node.source)
        if move is None:
            return node
        return move.loaded(tirx.BufferLoad(move.buffer, list(move.at(node.indices[:]))))

    def store(self, node: Any) -> Any:
        move = self.moves.get(node.buffer)
        if move is None:
            return node
        value, indices = move.stored(node.value), list(move.at(node.indices[:]))
        return tirx.BufferStore(move.buffer, value, indices)

    def region(self, node: Any) -> Any:
        move = self.moves.get(node.source)
        return node if move is None else move.region(node)

    def call(self, node: Any) -> Any:
        name = called(node)
        if name == BUFFER_DATA:
            return self._pointer(node)
        if not self.pointers:
            return node
        args = node.args[:]
        moved = {n: move for n, arg in enumerate(args) if (move := self.pointers.get(arg))}
        for position, move in moved.items():
            unit = args[0].ty if hasattr(args[0], "ty") else move.buffer.dtype
            beside = (2, move.ahead(unit)) if name == ACCESS_PTR else move.beside(name, position)
            if beside is not None:
                offset, more = beside
                args[position], args[offset] = tirx.buffer_data(move.buffer), args[offset] + more
        return Call(node.op, args, node.attrs, ret_ty=node.ty) if moved else node

    def _pointer(self, data: Any) -> Any:
        """Return the address of a moved buffer, for a call that moves no offset instead."""
        buf = data.args[0]
        move = self.moves.get(buf)
        if not isinstance(move, MovedWhole):
            return data
        pointer = move.pointer(len(buf.shape))
        self.pointers[pointer] = move
        return pointer
