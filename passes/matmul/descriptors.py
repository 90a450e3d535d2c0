"""Compute wgmma's matrix descriptors once, and add to them at each use.

    wgmma(.., encode(&A_shared[slot, ..]), ..)   =>   A_desc = encode(&A_shared[0, ..])   # once
                                                      wgmma(.., A_desc + slot * 1024 + 2, ..)

A descriptor has 64 bits (PTX ISA, wgmma matrix descriptor): the address of a tile, two strides, all
in units of 16 bytes, and a swizzle. Only the address differs between the slots of a ring and the
steps of K, and an address inside a slot never carries into the strides.

Barriers are placed by the buffers that descriptors are encoded from, so kernels that share memory
through barriers are rewritten after those have been placed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from ...machine import WARP
from ..copy.layouts import CHUNK_BYTES
from ..ir.calls import ADDRESS_OF, WGMMA_CALL, called
from ..ir.indexing import strides
from ..ir.kernels import map_kernels, thread_extents, with_block
from ..ir.named_pass import named_pass
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    SBlockRealize,
    Stmt,
    TensorLoad,
    Var,
    buffer,
    const_int,
    dtype_bytes,
    i32,
    is_shared,
    seq,
    uses,
    walk,
)

_SWIZZLES: Final = {128: 1, 64: 2, 32: 3}
"""Bits 62 and 63 of a descriptor, by how many bytes a swizzle spans."""

_ADDRESS: Final = 0x3FFFF


def encode(pointer: Expr, leading: int, stride: int, span: int) -> Expr:
    """Return the descriptor of a tile at ``pointer``; the other arguments are in bytes."""
    fields = _SWIZZLES[span] << 62 | stride // CHUNK_BYTES << 32 | leading // CHUNK_BYTES << 16
    address = tirx.bitwise_and(
        T.cuda.cvta_generic_to_shared(pointer), tirx.const(_ADDRESS, "uint32")
    )
    chunk = tirx.shift_right(address, tirx.const(4, "uint32"))
    return tirx.bitwise_or(tirx.Cast("uint64", chunk), tirx.const(fields, "uint64"))


@dataclass
class Descriptors:
    """Collects the descriptors of statements and replaces each by a base and an addend.

    A base contains the terms of an address that depend on ``thread``; slot and step are added.
    ``tiles``: rewrite only descriptors of these buffers; None: of any.
    """

    thread: Var
    tiles: Container[Buffer] | None = None
    _bases: dict[Buffer, tuple[Buffer, Expr]] = field(default_factory=dict)

    @property
    def buffers(self) -> list[Buffer]:
        """The registers that hold the bases."""
        return [base for base, _ in self._bases.values()]

    def definitions(self) -> list[Stmt]:
        """Return the statements that compute the bases."""
        return [tirx.BufferStore(base, value, [i32(0)]) for base, value in self._bases.values()]

    def rewrite(self, stmt: Stmt) -> Stmt:
        """Return ``stmt`` with every descriptor in it as a base and an addend."""
        return tvm_ffi.structural_map(stmt, [(Call, self._call)], order="post")

    def _call(self, call: Any) -> Any:
        if not called(call).startswith(WGMMA_CALL):
            return call
        args = [self._based(arg) for arg in call.args[:]]
        return Call(call.op, args, call.attrs, ret_ty=call.ty)

    def _based(self, arg: Any) -> Any:
        pointer = _pointer(arg)
        if pointer is None:
            return arg
        load = pointer.args[0]
        if self.tiles is not None and load.source not in self.tiles:
            return arg
        parts = [_terms(index) for index in load.indices]
        if load.source not in self._bases:
            own = [_sum(t for t in terms if uses(t, [self.thread])) for terms in parts]
            base = buffer([1], "uint64", f"{load.source.name}_desc", "local")
            self._bases[load.source] = base, _at(arg, load.source, [uniform(x) for x in own])
        base, _ = self._bases[load.source]
        per_chunk = CHUNK_BYTES // dtype_bytes(load.source.dtype)
        moving: Expr = i32(0)
        fixed = 0
        for terms, stride in zip(parts, strides(load.source)):
            pitch = const_int(stride) or 1
            for term in [t for t in terms if not uses(t, [self.thread])]:
                known = const_int(term)
                if known is None:
                    moving = moving + term * (pitch // per_chunk)
                else:
                    fixed += known * pitch // per_chunk
        # Unsigned, so that nothing is spent on signs.
        offset = tirx.Cast("uint64", tirx.Cast("uint32", moving))
        return tirx.BufferLoad(base, [i32(0)]) + offset + tirx.const(fixed, "uint64")


@named_pass("Descriptors")
def compute_once(func: Any) -> Any:
    """Return ``func`` with descriptors computed where the block allocates their tile.

    For kernels with one thread axis; without descriptors the same object is returned.
    """
    return map_kernels(func, _with_bases)


def _with_bases(kernel: Any) -> Any:
    threads = list(thread_extents(kernel))
    if len(threads) != 1:
        return kernel

    def block(realize: Any) -> Any:
        allocs = realize.block.alloc_buffers[:]
        found = Descriptors(threads[0], {buf for buf in allocs if is_shared(buf)})
        if not found.tiles:
            return realize
        body = found.rewrite(realize.block.body)
        if not found.buffers:
            return realize
        body = seq(*found.definitions(), body)
        return with_block(realize, body=body, allocs=[*allocs, *found.buffers])

    return tvm_ffi.structural_map(kernel, [(SBlockRealize, block)], order="post")


def uniform(value: Expr) -> Expr:
    """Return ``value``, equal in all threads of a warp, in a form that nvcc knows to be so.

    The hardware then keeps it once for the warp.
    """
    if const_int(value) is not None:
        return value
    full, first = tirx.const(0xFFFFFFFF, "uint32"), i32(0)
    return T.cuda.__shfl_sync(full, value, first, i32(WARP))


def _pointer(arg: Any) -> Any | None:
    """Return the pointer in what ``encode`` made, else None."""
    if type(arg) is not tirx.BitwiseOr:
        return None
    found: list[Any] = []

    def visit(call: Any) -> None:
        if called(call) == ADDRESS_OF:
            found.append(call)

    walk(arg, Call, visit)
    return found[0] if found else None


def _at(encoded: Expr, tile: Buffer, indices: list[Expr]) -> Expr:
    """Return ``encoded`` with the address of another element of ``tile``."""

    def moved(load: Any) -> Any:
        return tirx.BufferLoad(tile, indices) if load.source.same_as(tile) else load

    return tvm_ffi.structural_map(encoded, [(TensorLoad, moved)], order="post")


def _terms(expr: Expr) -> list[Expr]:
    return [*_terms(expr.a), *_terms(expr.b)] if isinstance(expr, tirx.Add) else [expr]


def _sum(terms: Iterable[Expr]) -> Expr:
    total: Expr = i32(0)
    for term in terms:
        total = total + term
    return total
