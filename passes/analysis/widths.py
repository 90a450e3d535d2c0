"""Compute how aligned the pointers of a kernel must be: the widest access through each.

    A[Ramp(x * 8, 1, 8)] of float16                16 bytes at once: A must be aligned to 16
    cp.async 16 bytes from address_of(A[y * 4])    the same
    A[Ramp(x * 8 + 1, 1, 8)]                       TVM loads each element: aligned to its size

Only what certainly faults counts: an access whose index is a multiple of its width.

Source: CUDA C++ Programming Guide, device memory accesses: size and alignment requirement.
"""

from __future__ import annotations

import re
from typing import Any, Final

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, TensorLoad

from ...machine import VECTOR_BYTES
from ..ir.calls import ADDRESS_OF, BULK_COPY, PTX, called, passed_buffer, uncast
from ..ir.nodes import Buffer, Expr, const_int, dtype_bytes

_COPIES: Final = re.compile(r"tirx\.ptx\.cp(_async_(ca|cg|bulk).*)?|tirx\.s_tir\.cp_async_raw")
_VECTOR: Final = re.compile(r"v([248])")
_ELEMENT: Final = re.compile(r"[bsuf]f?(8|16|32|64)|bf?16")


def widths(kernel: Any) -> list[int]:
    """Return the bytes to which each parameter of a device function must be aligned; 1 for any."""
    found = _Widths()
    found.visit(kernel.body)
    return [found.of(param) for param in kernel.params]


class _Widths:
    """Visits a device function and collects the widest access to each buffer."""

    def __init__(self) -> None:
        self.root: dict[Any, Any] = {}
        self.least: dict[Any, int] = {}
        self.known = sym.Analyzer()

    def of(self, param: Any) -> int:
        return min(self.least.get(param, 1), VECTOR_BYTES)

    def visit(self, body: Any) -> None:
        callbacks = [
            (tirx.DeclBuffer, self._declare),
            (tirx.Bind, self._bind),
            (tirx.BufferStore, self._store),
            (TensorLoad, self._load),
            (Call, self._call),
        ]
        tvm_ffi.structural_walk(body, callbacks, order="pre")

    def _declare(self, node: Any) -> None:
        data = passed_buffer(node.data) if isinstance(node.data, Call) else node.data
        self.root[node.buffer] = self.root.get(data, data)

    def _bind(self, node: Any) -> None:
        if str(getattr(node.value.ty, "dtype", "")).startswith("int"):
            self.known.bind(node.var, node.value)

    def _store(self, node: Any) -> None:
        self._touch(node.buffer, list(node.indices))

    def _load(self, node: Any) -> None:
        self._touch(node.source, list(node.indices))

    def _touch(self, buf: Buffer, indices: list[Expr]) -> None:
        size = dtype_bytes(buf.dtype)
        last = indices[-1]
        if isinstance(last, tirx.Ramp) and const_int(last.stride) == 1:
            lanes = const_int(last.lanes) or 1
            self._need(buf, size * lanes, last.base, lanes)
        self._need(buf, size, last, 1)

    def _call(self, node: Any) -> None:
        name = called(node)
        bytes_at_once = _bytes(name, list(node.args)) if name.startswith("tirx.") else 0
        if not bytes_at_once:
            return
        for arg in map(uncast, node.args):
            if called(arg) == ADDRESS_OF and isinstance(arg.args[0], TensorLoad):
                load = arg.args[0]
                lanes = max(1, bytes_at_once // dtype_bytes(load.source.dtype))
                self._need(load.source, bytes_at_once, list(load.indices)[-1], lanes)

    def _need(self, buf: Buffer, size: int, first: Expr, lanes: int) -> None:
        """Record an access of ``size`` bytes at ``first``, if that is a multiple of it."""
        root = self.root.get(buf, buf)
        if size <= self.least.get(root, 1) or size & (size - 1) or size > 2 * VECTOR_BYTES:
            return
        if lanes > 1:
            multiple = self.known.modular_set(first)
            if multiple.coeff % lanes or multiple.base % lanes:
                return
        self.least[root] = size


def _bytes(name: str, args: list[Any]) -> int:
    """Return how many bytes a call moves at each address at once; 0 if unknown."""
    if _COPIES.fullmatch(name):
        sizes = [const_int(arg) for arg in args if type(arg) is tirx.IntImm]
        if name.startswith(BULK_COPY):
            return VECTOR_BYTES
        return max((size for size in sizes if size in (4, 8, VECTOR_BYTES)), default=0)
    if not name.startswith((f"{PTX}ld", f"{PTX}st")) or "matrix" in name:
        return 0
    tokens = [str(getattr(arg, "value", "")) for arg in args]
    lanes = next((int(m[1]) for t in tokens if (m := _VECTOR.fullmatch(t))), 1)
    bits = next((int(m[1] or 16) for t in tokens if (m := _ELEMENT.fullmatch(t))), 0)
    return lanes * bits // 8
