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
from ..ir.moved import MovedWhole, Mover
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


class _Matched(MovedWhole):
    """A match, as the region that it matches."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.buffer = source.source

    def at(self, indices: Sequence[Expr]) -> Sequence[Expr]:
        firsts = [dim.min for dim in self.source.region]
        outer = len(firsts) - len(indices)
        return [*firsts[:outer], *(low + index for low, index in zip(firsts[outer:], indices))]

    def region(self, region: Any) -> Any:
        return self.source

    def ahead(self, unit: Any) -> Expr:
        return flat(self.buffer, [dim.min for dim in self.source.region])


def _inlined(block: Any, inlined: Sequence[Any]) -> Any:
    matches = {match.buffer: _Matched(match.source) for match in inlined}
    inside = Mover(matches).moved
    return ir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        inside(block.body),
        None if block.init is None else inside(block.init),
        block.alloc_buffers,
        [match for match in block.match_buffers if match.buffer not in matches],
        block.annotations,
    )
