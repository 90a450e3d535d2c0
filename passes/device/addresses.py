"""Split each address into what the innermost loop changes, what it does not, and a constant.

    S[k % 3 * 8192 + x * 64 + (y + 2 ^ x) * 8 + 49152]
 => S[k % 3 * 8192 + (x * 64 + (y ^ x ^ 2) * 8) + 49152]     y has only bit 0

nvcc computes the part in the middle once, before the loop. Without the split it cannot: TVM's
simplifier sorts the terms of an index by size, and names of common subexpressions then keep nvcc
from reordering them. The constant becomes the immediate offset of the instruction, so accesses that
differ only in it share a register. Constants under the exclusive or of a swizzle are moved out
where the bits allow:

    S[((x + 8) ^ (y % 8)) * 4]      =>   S[(x ^ (y % 8)) * 4 + 32]

The index of a vector access, a sum or product of vectors, becomes a ramp from a scalar.

Global addresses stay 32-bit indices where 32 bits reach all of a buffer. ptxas gives an
asynchronous copy only 12 bits of immediate offset, less than a row of a tile, and adding a constant
costs two instructions in 64 bits as in 32.

This runs on device functions behind the last pass that simplifies. It leaves an index alone that
has a negative part and could overflow in another order.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ..ir import nodes as ir
from ..ir.bounds import RANGES, KnownBounds
from ..ir.kernels import thread_tag
from ..ir.linear import Linear, terms_of
from ..ir.named_pass import named_pass


@named_pass("SplitAddresses")
def split_addresses(func: Any) -> Any:
    """Return ``func`` (flat buffers) with the indices of its global and shared accesses split."""
    return tirx.PrimFunc(func.params, _Splitter().run(func.body), func.ret_type, func.attrs)


class _Splitter:
    """Splits the indices of one function; knows what varies in the innermost loop, and bounds."""

    def __init__(self) -> None:
        self._prover = sym.Analyzer()
        self._bounds = KnownBounds()
        self._varying: list[set[Any]] = [set()]
        self._addressed: dict[Any, bool] = {}

    def run(self, body: Any) -> Any:
        """``body`` with its indices split."""
        rewriters = [
            (tirx.AttrStmt, self._attribute),
            (tirx.For, self._loop),
            (tirx.Bind, self._bind),
            (ir.TensorLoad, self._load),
            (tirx.BufferStore, self._store),
        ]
        return tvm_ffi.structural_mutate(body, rewriters)

    # Scopes.

    def _attribute(self, node: Any, mutator: Any) -> Any:
        if thread_tag(node) is not None:
            self._know(node.node.var, ir.i32(0), node.value)
        return mutator.default_mutate(node)

    def _loop(self, node: Any, mutator: Any) -> Any:
        self._know(node.loop_var, node.min, node.extent)
        if node.kind != ir.ForKind.SERIAL:
            self._varying[-1].add(node.loop_var)
            return mutator.default_mutate(node)
        self._varying.append({node.loop_var})
        node = mutator.default_mutate(node)
        self._varying.pop()
        return node

    def _bind(self, node: Any, mutator: Any) -> Any:
        self._varying[-1].add(node.var)
        return mutator.default_mutate(node)

    def _know(self, var: Any, low: Any, extent: Any) -> None:
        self._prover.bind(var, Range.from_min_extent(low, extent))
        first, size = ir.const_int(low), ir.const_int(extent)
        if first is not None and size is not None:
            self._bounds.bind(var, first, first + size - 1)

    # Accesses.

    def _load(self, node: Any, mutator: Any) -> Any:
        if not self._is_addressed(node.source):
            return node
        node = mutator.default_mutate(node)
        index = self._index(node.source, node.indices)
        return node if index is None else tirx.BufferLoad(node.source, [index])

    def _store(self, node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        index = self._index(node.buffer, node.indices)
        return node if index is None else tirx.BufferStore(node.buffer, node.value, [index])

    def _is_addressed(self, buffer: Any) -> bool:
        """Whether accesses to ``buffer`` need an address: those to registers do not."""
        known = self._addressed.get(buffer)
        if known is None:
            known = self._addressed[buffer] = ir.is_global(buffer) or ir.is_shared(buffer)
        return known

    def _index(self, buffer: Any, indices: Any) -> Any | None:
        """The index split, or None to leave it."""
        if len(indices) != 1 or not self._is_addressed(buffer):
            return None
        index, lanes = indices[0], 1
        if int(index.ty.dtype.lanes) > 1:
            lanes = int(index.ty.dtype.lanes)
            first = scalar(index)
            if first is None or first[1] != 1:
                return None
            index = first[0]
        if str(index.ty.dtype) not in RANGES:
            return None
        dtype = str(index.ty.dtype)
        whole = terms_of(index, self._opened)
        if whole.base < 0 or not self._fits(whole, dtype):
            return None
        sides = [(term, self._varies(term[1])) for term in whole.terms]
        moving, fixed = (
            Linear({term: by for (by, term), moves in sides if moves is wanted}, 0)
            for wanted in (True, False)
        )
        parts = [part.expr(dtype) for part in (moving, fixed) if part.terms]
        parts += [tirx.const(whole.base, dtype)] if whole.base or not parts else []
        total = functools.reduce(operator.add, parts)
        return total if lanes == 1 else tirx.Ramp(total, tirx.const(1, dtype), lanes)

    def _varies(self, term: Any) -> bool:
        """Whether ``term`` has a variable of the innermost loop, or is read from memory."""
        varying = self._varying[-1]
        if isinstance(term, ir.Var):
            return term in varying
        return ir.has(
            term,
            (ir.TensorLoad, ir.Var),
            lambda found: found in varying if isinstance(found, ir.Var) else True,
        )

    def _fits(self, whole: Linear[int], dtype: str) -> bool:
        """Whether no partial sum can leave its type if the whole sum does not."""
        if all(coefficient > 0 and self._is_positive(term) for coefficient, term in whole.terms):
            return True
        bound = self._prover.const_int_bound(whole.expr(dtype))
        values = RANGES[dtype]
        return int(bound.min_value) in values and int(bound.max_value) in values

    def _is_positive(self, term: Any) -> bool:
        if self._bits(term) is not None:
            return True
        return int(self._prover.const_int_bound(term).min_value) >= 0

    def _bits(self, expr: Any) -> int | None:
        """The bits of ``expr`` that can be one; None if it may be negative."""
        known = self._bounds.of(expr)
        return None if known is None else known.bits

    # Sums.

    def _opened(self, expr: Any) -> Linear[int] | None:
        """An exclusive or as a sum, with constants moved out that no carry, no flipped bit reaches.

        None for anything else.
        """
        if not isinstance(expr, tirx.BitwiseXor):
            return None
        dtype = str(expr.ty.dtype)
        a, b = terms_of(expr.a, self._opened), terms_of(expr.b, self._opened)
        x, y = a.expr(dtype), b.expr(dtype)
        bits_x, bits_y = self._bits(x), self._bits(y)
        in_a, in_b, outside = a.base, b.base, 0
        # A multiple of 2 ** n does not reach the n low bits, and the other operand no more than n.
        if bits_y is not None and in_b >= 0:
            low = in_a % (1 << (bits_y | in_b).bit_length())
            outside, in_a = in_a - low, low
        if bits_x is not None and in_a >= 0:
            low = in_b % (1 << (bits_x | in_a).bit_length())
            outside, in_b = outside + in_b - low, low
        if (
            bits_x is None
            or bits_y is None
            or min(in_a, in_b) < 0
            or in_a & bits_x
            or in_b & bits_y
        ):
            kept = tirx.bitwise_xor(x + in_a if in_a else x, y + in_b if in_b else y)
            return Linear({kept: 1}, outside)
        # Without carries the constants meet: bits that neither x nor y has are added, the rest
        # stay under the exclusive or.
        flipped = in_a ^ in_b
        unmasked = flipped & ~(bits_x | bits_y)
        operands = [part.expr(dtype) for part in (a, b) if part.terms]
        operands += [tirx.const(flipped ^ unmasked, dtype)] if flipped != unmasked else []
        if not operands:  # of two constants
            return Linear({}, outside + unmasked)
        term = functools.reduce(tirx.bitwise_xor, operands)
        return Linear({term: 1}, outside + unmasked)


def scalar(index: Any) -> tuple[Any, int] | None:
    """Return the first element and stride of a vector index; None if it is not evenly spaced."""
    if isinstance(index, tirx.Ramp):
        stride = ir.const_int(index.stride)
        return None if stride is None else (index.base, stride)
    if isinstance(index, tirx.Broadcast):
        return index.value, 0
    if not isinstance(index, tirx.Add | tirx.Sub | tirx.Mul | tirx.BitwiseXor):
        return None
    a, b = scalar(index.a), scalar(index.b)
    if a is None or b is None:
        return None
    if isinstance(index, tirx.Add):
        return a[0] + b[0], a[1] + b[1]
    if isinstance(index, tirx.Sub):
        return a[0] - b[0], a[1] - b[1]
    if a[1] or b[1]:
        return None
    return (a[0] * b[0] if isinstance(index, tirx.Mul) else tirx.bitwise_xor(a[0], b[0])), 0
