"""Inline the buffers that a block matches to a region: their accesses become the region's.

    Ym = T.match_buffer(Y[t + 1, 0:64], (64,))
    Ym[tx] = ..                                 =>    Y[t + 1, tx] = ..

TVM's LowerMatchBuffer binds the symbols of a match. If a match has no symbols, it insists that the
region starts at the memory's first element. Such matches are inlined here; the others, which tensor
intrinsics are written with, are left to TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx

from ..analysis.memory import flat
from ..ir import nodes as ir
from ..ir.calls import ACCESS_PTR, called, data_of
from ..ir.named_pass import named_pass
from ..ir.nodes import Buffer, Expr, const_int


@named_pass("InlineMatches")
def inline_matches(func: Any) -> Any:
    """Return ``func`` with every match of known offset inlined; itself if there is none."""
    if not ir.has(func.body, ir.SBlock, _has_matches):
        return func

    def block(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        inlined = _matches(node)
        return _inlined(node, inlined) if inlined else node

    body = tvm_ffi.structural_mutate(func.body, [(ir.SBlock, block)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _has_matches(block: Any) -> bool:
    return bool(_matches(block))


def _matches(block: Any) -> list[Any]:
    """Return the matches of ``block`` that bind no symbol."""
    return [m for m in block.match_buffers if not _is_open(m.buffer)]


def _is_open(buf: Buffer) -> bool:
    """Whether a match of ``buf`` gives some symbol of it a value."""
    return any(const_int(part) is None for part in (buf.elem_offset, *buf.strides, *buf.shape))


def _inlined(block: Any, inlined: Sequence[Any]) -> Any:
    matches = {match.buffer: match.source for match in inlined}

    def at(buf: Buffer, indices: Sequence[Expr]) -> list[Expr]:
        region = matches[buf].region
        outer = len(region) - len(indices)
        inner = [dim.min + index for dim, index in zip(list(region)[outer:], indices)]
        return [*(dim.min for dim in list(region)[:outer]), *inner]

    def first(buf: Buffer) -> list[Expr]:
        return [dim.min for dim in matches[buf].region]

    def load(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.source not in matches:
            return node
        return tirx.BufferLoad(matches[node.source].source, at(node.source, list(node.indices)))

    def store(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.buffer not in matches:
            return node
        indices = at(node.buffer, list(node.indices))
        return tirx.BufferStore(matches[node.buffer].source, node.value, indices)

    def region(node: Any, mutator: Any) -> Any:
        return matches.get(node.source, node)

    def call(node: Any, mutator: Any) -> Any:
        name = called(node)
        if name == ACCESS_PTR and data_of(node.args[1]) in matches:
            buf = node.args[1].args[0]
            target = matches[buf].source
            kind, _, offset, extent, mask = (mutator.mutate(arg) for arg in node.args)
            start = offset + flat(target, first(buf))
            return ir.Call(node.op, [kind, target.data, start, extent, mask], ret_ty=node.ty)
        if data_of(node) in matches:
            buf = node.args[0]
            return tirx.address_of(tirx.BufferLoad(matches[buf].source, first(buf)))
        return mutator.default_mutate(node)

    rewriters = [
        (ir.TensorLoad, load),
        (tirx.BufferStore, store),
        (ir.TensorRegion, region),
        (ir.Call, call),
    ]

    def inside(stmt: Any) -> Any:
        return None if stmt is None else tvm_ffi.structural_mutate(stmt, rewriters)

    return ir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        inside(block.body),
        inside(block.init),
        block.alloc_buffers,
        [match for match in block.match_buffers if match.buffer not in matches],
        block.annotations,
    )
