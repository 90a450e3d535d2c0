"""cuBLASLt by ctypes: descriptors, heuristics and the matmul, as its documentation has them.

https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...errors import ToolError
from .products import Matrix, Product

MOST: Final = 60
"""Algorithms that the heuristic is asked for."""

_MAPS: Final = Path("/proc/self/maps")
_LIBRARY: Final = "libcublasLt.so"

_POINTER: Final = ctypes.c_void_p

# cublasLtMatmulDescAttributes_t
_TRANS_A, _TRANS_B, _FAST_ACCUM = 3, 4, 25
# cublasLtMatrixLayoutAttribute_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
# cublasLtMatmulPreferenceAttributes_t
_WORKSPACE: Final = 1

_CONFIG: Final = {
    "algorithm": 0,
    "tile": 1,
    "stages": 6,
    "inner": 7,
    "cluster": 8,
    "split-K": 2,
    "reduction": 3,
    "swizzle": 4,
    "custom": 5,
}
"""cublasLtMatmulAlgoConfigAttributes_t: what tells algorithms apart, in the order of a name."""

_SHORT: Final = ("inner", "cluster")
"""Those that are 16 bits wide."""


class _Opaque(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", _Opaque),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to multiply: cuBLASLt's own record of it, and what it is called."""

    record: HeuristicResult
    name: str


@functools.cache
def loaded() -> CublasLt:
    """The cuBLASLt that torch has loaded, which is to be imported; ToolError: there is none."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        lines = []
    paths = [line.split(maxsplit=5)[-1] for line in lines if _LIBRARY in line]
    if not paths:
        raise ToolError("peer.cublaslt_missing", library=_LIBRARY)
    return CublasLt(ctypes.CDLL(paths[0]))


class CublasLt:
    """The library with a handle of its own, which lasts as long as the process."""

    def __init__(self, library: Any) -> None:
        self._library, self._handle = library, _POINTER()
        self._call("cublasLtCreate", ctypes.byref(self._handle))

    def plan(self, product: Product, workspace: int, most: int = MOST) -> PlannedProduct:
        """The product's descriptors and algorithms, the heuristic's first choice first.

        ``workspace``: bytes that each may use. ToolError: cuBLASLt has no such product.
        """
        operation = self._made("cublasLtMatmulDescCreate", product.compute, product.scale)
        for attribute, matrix in ((_TRANS_A, product.a), (_TRANS_B, product.b)):
            self._set("cublasLtMatmulDesc", operation, attribute, ctypes.c_int32(matrix.transposed))
        if product.fast:
            self._set("cublasLtMatmulDesc", operation, _FAST_ACCUM, ctypes.c_int8(1))
        layouts = tuple(
            self._layout(matrix, product.batch) for matrix in (product.a, product.b, product.d)
        )
        preference = self._made("cublasLtMatmulPreferenceCreate")
        limit = ctypes.c_uint64(workspace)
        self._set("cublasLtMatmulPreference", preference, _WORKSPACE, limit)
        results, count = (HeuristicResult * most)(), ctypes.c_int()
        a, b, d = layouts
        self._call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(self._handle, operation, a, b, d, d, preference),
            *(ctypes.c_int(most), results, ctypes.byref(count)),
        )
        self._call("cublasLtMatmulPreferenceDestroy", preference)
        usable = [one for one in results[: count.value] if not one.state]
        algorithms = tuple(Algorithm(one, self._name(one)) for one in usable)
        return PlannedProduct(self, product, operation, layouts, algorithms)

    def multiply(
        self,
        plan: PlannedProduct,
        algorithm: Algorithm,
        pointers: tuple[int, int, int],
        workspace: tuple[int, int],
        stream: int,
    ) -> None:
        """Start ``D = A B`` on ``stream``; ``pointers``: of A, B and D; ToolError: it refuses."""
        one, zero = plan.product.factors
        a, b, d = map(_POINTER, pointers)
        of_a, of_b, of_d = plan.layouts
        self._call(
            "cublasLtMatmul",
            *(self._handle, plan.operation, ctypes.byref(one)),
            *(a, of_a, b, of_b, ctypes.byref(zero), d, of_d, d, of_d),
            ctypes.byref(algorithm.record.algorithm),
            *(_POINTER(workspace[0]), ctypes.c_size_t(workspace[1]), _POINTER(stream)),
        )

    def release(self, plan: PlannedProduct) -> None:
        """Destroy the descriptors of a plan."""
        for layout in plan.layouts:
            self._call("cublasLtMatrixLayoutDestroy", layout)
        self._call("cublasLtMatmulDescDestroy", plan.operation)

    def _layout(self, matrix: Matrix, batch: int) -> ctypes.c_void_p:
        sizes = (ctypes.c_uint64(matrix.rows), ctypes.c_uint64(matrix.columns))
        leading = ctypes.c_int64(matrix.leading)
        layout = self._made("cublasLtMatrixLayoutCreate", matrix.dtype, *sizes, leading)
        if batch > 1:
            which = "cublasLtMatrixLayout"
            self._set(which, layout, _BATCH_COUNT, ctypes.c_int32(batch))
            self._set(which, layout, _BATCH_STRIDE, ctypes.c_int64(matrix.stride))
        return layout

    def _name(self, record: HeuristicResult) -> str:
        """``algorithm 66 tile 593 stages 36``: what the configuration has that is not zero."""
        return ", ".join(f"{name} {value}" for name, value in self._configuration(record) if value)

    def _configuration(self, record: HeuristicResult) -> Iterator[tuple[str, int]]:
        for name, attribute in _CONFIG.items():
            value = ctypes.c_uint16() if name in _SHORT else ctypes.c_int32()
            self._call(
                "cublasLtMatmulAlgoConfigGetAttribute",
                *(ctypes.byref(record.algorithm), ctypes.c_int(attribute), ctypes.byref(value)),
                *(ctypes.c_size_t(ctypes.sizeof(value)), ctypes.byref(ctypes.c_size_t())),
            )
            yield name, value.value

    def _made(self, create: str, *arguments: Any) -> ctypes.c_void_p:
        made = _POINTER()
        self._call(create, ctypes.byref(made), *arguments)
        return made

    def _set(self, of: str, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        wanted = ctypes.c_int(attribute)
        self._call(f"{of}SetAttribute", descriptor, wanted, ctypes.byref(value), size)

    def _call(self, name: str, *arguments: Any) -> None:
        status: int = getattr(self._library, name)(*arguments)
        if status:
            raise ToolError("peer.cublaslt_status", call=name, status=status)


@dataclass(frozen=True, slots=True)
class PlannedProduct:
    """A product as cuBLASLt was told of it, with the algorithms that it has for it."""

    library: CublasLt
    product: Product
    operation: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]
    algorithms: tuple[Algorithm, ...]
