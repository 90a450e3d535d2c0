"""How cuBLASLt sees a workload: matrices by columns, of which ours are the transposed ones.

    C[m, n] = A[m, k] B[k, n] by rows  ==  C'[n, m] = B'[n, k] A'[k, m] by columns

So its first operand is our B, its second our A, and nothing is copied.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from ...errors import WorkloadError
from ...schedules import Conv, ConvInputGrad, ConvWeightGrad, GatedGemm, Gemm
from ...schedules.workloads import Spec
from ...values.elements import element

CUDA_TYPES: Final = {
    "float32": 0,
    "float16": 2,
    "int8": 3,
    "int32": 10,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
    "float8_e5m2": 29,
}
"""cudaDataType_t."""

COMPUTE_32F: Final = 68
COMPUTE_32I: Final = 72
COMPUTE_TF32: Final = 77
"""cublasComputeType_t: sums of float32, of int32, and of float32 multiplied as tf32."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix by columns; ``leading``: elements from one to the next, ``stride``: of a batch.

    ``transposed``: it is multiplied so.
    """

    dtype: int
    rows: int
    columns: int
    leading: int
    stride: int
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """``D = A B``, where A is our second input and B our first; ``fast``: fp8 sums as they come.

    ``compute`` and ``scale``: what it sums in, and the type of the factors before and behind.
    """

    a: Matrix
    b: Matrix
    d: Matrix
    compute: int
    scale: int
    batch: int = 1
    fast: bool = False

    @property
    def factors(self) -> tuple[Any, Any]:
        """One and zero, in the type that they have to have."""
        kind = ctypes.c_int32 if self.scale == CUDA_TYPES["int32"] else ctypes.c_float
        return kind(1), kind(0)


def product_of(spec: Spec) -> Product:
    """A plain product, or a convolution that is one, as cuBLASLt is told of it.

    WorkloadError: it is another.
    """
    gemm = spec if isinstance(spec, Gemm) else as_gemm(spec)
    plain = gemm is not None and not isinstance(gemm, GatedGemm)
    if gemm is None or not plain or gemm.epilogue or gemm.weights or gemm.m is None:
        raise WorkloadError("peer.product", workload=spec.name)
    kinds = (gemm.storage, gemm.out)
    if any(kind not in CUDA_TYPES for kind in kinds):
        raise WorkloadError("peer.product", workload=spec.name)
    stored, out = (CUDA_TYPES[kind] for kind in kinds)
    m, n, k = gemm.m, gemm.n, gemm.k
    integer = element(gemm.storage).integer
    compute = COMPUTE_32I if integer else COMPUTE_32F
    tf32 = gemm.dtype == "tfloat32"
    return Product(
        a=_operand(stored, k, n, gemm.layout[1] == "T"),
        b=_operand(stored, m, k, gemm.layout[0] == "T"),
        d=Matrix(out, n, m, n, m * n),
        compute=COMPUTE_TF32 if tf32 else compute,
        scale=CUDA_TYPES["int32" if integer else "float32"],
        batch=gemm.batch or 1,
        fast=gemm.storage.startswith("float8"),
    )


def as_gemm(spec: Spec) -> Gemm | None:
    """The product that a convolution of 1 x 1, channels innermost, is; None: it is none.

    Its operands lie as the convolution's do, in the same order.
    """
    conv = spec.forward if isinstance(spec, (ConvInputGrad, ConvWeightGrad)) else spec
    if not isinstance(conv, Conv) or not conv.channels_last or conv.groups > 1 or conv.epilogue:
        return None
    if {*conv.kernel, *conv.stride} != {1} or any(low or high for low, high in conv.pad):
        return None
    if isinstance(spec, ConvInputGrad):  # dX[pixel, c] = dY[pixel, k] W[k, c]
        sizes, layout = (conv.pixels, conv.c, conv.k), "NN"
    elif isinstance(spec, ConvWeightGrad):  # dW[k, c] = dY[pixel, k] X[pixel, c]
        sizes, layout = (conv.k, conv.c, conv.pixels), "TN"
    else:
        sizes, layout = (conv.pixels, conv.k, conv.c), "NT"
    return Gemm(*sizes, None, conv.dtype, layout, conv.accumulator, conv.out)


def _operand(dtype: int, rows: int, columns: int, transposed: bool) -> Matrix:
    """Ours of ``rows`` by ``columns``, by rows; ``transposed``: it lies so."""
    if transposed:  # columns x rows by rows: rows x columns by columns, multiplied transposed
        return Matrix(dtype, rows, columns, rows, rows * columns, True)
    return Matrix(dtype, columns, rows, columns, rows * columns)
