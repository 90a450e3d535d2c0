"""What our kernels are measured against: TVM's stock software pipeline, and cuBLAS through torch.

The tensor core schedule is TVM's own (``tvm.testing.tir.mma_schedule``) with the tiling, intrinsics
and pipeline annotations of TVM's test of InjectSoftwarePipeline. TVM ships no pipelined schedule
for SIMT, so that one is written here in its style: 128 x 128 tiles, 8 x 8 elements a thread in four
parts (virtual threads), vectorised copies, and the same annotations.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tvm import s_tir, te

from ..errors import WorkloadError
from ..kernel.compiled import Kernel, compile_kernel
from ..schedules.names import blockized, updating
from ..schedules.workloads import GatedGemm, Gemm, ScaledGemm, Spec
from ..values.elements import element

STOCK: Final = "s_tir"
"""The name of TVM's own lowering."""

ASYNC_COPY: Final = {"tirx.use_async_copy": True}
"""TVM's switch that turns asynchronous stages into cp.async."""

STAGES: Final = (1, 2, 3, 4)
"""Ring slots that the stock pipeline is tried with; 1 is no pipeline."""

NESTED: Final = 0
"""Stands for the two-level annotation of TVM's test: 4 slots of tiles, fragments a step ahead."""

_FROZEN: Final = ("importlib._bootstrap", "importlib._bootstrap_external")
_MMA_TILE: Final = (128, 2048, 32)  # what its factors need to divide M, N and K
_SIMT_TILE: Final = (128, 128, 8)
_STOCK_TILES: Final = {"float16": _MMA_TILE, "float32": _SIMT_TILE}


def require_stock(gemm: Gemm) -> None:
    """WorkloadError where TVM has no schedule of this product: ``stock_mma`` or ``stock_simt``."""
    if gemm.dtype not in _STOCK_TILES:
        raise WorkloadError("peer.stock_dtype", workload=gemm.name, choices=tuple(_STOCK_TILES))
    _whole_tiles(gemm, gemm.dtype, _STOCK_TILES[gemm.dtype])


def stock_mma(gemm: Gemm, target: Any, stages: int) -> Kernel:
    """TVM's own fp16 tensor core GEMM (NN, fp32 out), pipelined by TVM with ``stages`` slots.

    WorkloadError: TVM 0.27 registers mma intrinsics for fp16 but not bf16 or tf32, and its tiles
    must divide the problem.
    """
    rows, columns, depth = _whole_tiles(gemm, "float16", _MMA_TILE)
    from tvm.testing.tir import mma_schedule

    intrinsics = tensor_intrinsics()

    def fragment(i: Any, j: Any) -> Any:
        """Where ldmatrix leaves an element of a 16 x 16 fragment, by 16 x 16 tile."""
        lane = intrinsics.shared_16x16_to_ldmatrix_32x8_layout(i % 16, j % 16)
        return (i // 16, j // 16, *lane)

    sch = mma_schedule(
        _matmul(gemm, "float32"),
        16,
        "float16",
        False,
        [1, rows, 1, 4, 2],
        [16, columns, 4, 1, 2],
        [depth, 2, 1],
        fragment,
        fragment,
        fragment,
        intrinsics.LDMATRIX_f16_A_DYN_INTRIN,
        intrinsics.LDMATRIX_f16_B_DYN_INTRIN,
        intrinsics.MMA_f16f16f32_INTRIN,
        intrinsics.MMA_fill_16x16_f32_INTRIN,
        intrinsics.MMA_store_16x16_f32_global_INTRIN,
        "shared.dyn",
    )
    outer, inner = sch.get_loops(sch.get_sblock(updating(blockized("C"))))[3:5]
    if stages == NESTED:
        _annotate(sch, outer, [0, 0, 2, 3, 3], [0, 1, 3, 2, 4])
        sch.annotate(outer, "software_pipeline_async_stages", [0])
        _annotate(sch, inner, [0, 0, 1], [0, 1, 2])
    elif stages > 1:
        _annotate(sch, outer, [0, 0, stages - 1], [0, 1, 2])
        sch.annotate(outer, "software_pipeline_async_stages", [0])
    return compile_kernel(sch, target, STOCK, ASYNC_COPY)


def stock_simt(gemm: Gemm, target: Any, stages: int) -> Kernel:
    """A fp32 GEMM (NN) in TVM's style, pipelined by TVM with ``stages`` slots of cp.async.

    WorkloadError: its tiles must divide the problem.
    """
    _whole_tiles(gemm, "float32", _SIMT_TILE)
    sch = s_tir.Schedule(_matmul(gemm, "float32"))
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    by, vy, ty, yi = sch.split(i, [None, 2, 16, 4])
    bx, vx, tx, xi = sch.split(j, [None, 2, 16, 4])
    ko, ki = sch.split(k, [None, _SIMT_TILE[2]])
    sch.reorder(by, bx, vy, vx, ty, tx, ko, ki, yi, xi)
    local = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(local, tx)
    sch.vectorize(sch.get_loops(local)[-1])
    for loop, thread in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (vy, "vthread.y")):
        sch.bind(loop, thread)
    for loop, thread in ((vx, "vthread.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, thread)
    for operand in (0, 1):
        copy = sch.cache_read(block, operand, "shared")
        sch.compute_at(copy, ko)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, y, x, vector = sch.split(fused, [None, 16, 16, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(vector)
    sch.unroll(ki)
    sch.unroll(yi)
    sch.vectorize(xi)
    sch.decompose_reduction(block, ko)
    if stages > 1:
        _annotate(sch, ko, [0, 0, stages - 1], [0, 1, 2])
        sch.annotate(ko, "software_pipeline_async_stages", [0])
    return compile_kernel(sch, target, STOCK, ASYNC_COPY)


def cublas(gemm: Spec, *, fast: bool = True) -> Callable[[Any, Any, Any], Any]:
    """The same product by cuBLAS, as ``run(a, b, c)`` on torch tensors.

    fp32 runs without tf32, tf32 with it; fp8 by cuBLASLt with scales of one, its result returned.
    ``fast``: tensor cores sum all of fp8 by themselves, as ``wgmma`` does (``use_fast_accum``), or
    else sums of some are promoted. WorkloadError: cuBLAS through torch has no such product.
    """
    if not isinstance(gemm, Gemm) or isinstance(gemm, GatedGemm):
        raise WorkloadError("peer.cublas", workload=gemm.name)
    import torch

    if gemm.storage.startswith("float8"):
        return _cublas_fp8(gemm, fast)
    integer = gemm.storage == "int8" and gemm.out == "int32" and gemm.batch is None
    floats = gemm.out == gemm.storage and not element(gemm.storage).integer
    if gemm.epilogue or gemm.weights or not (integer or floats):
        raise WorkloadError("peer.cublas", workload=gemm.name)
    multiply = torch._int_mm if integer else torch.matmul
    tf32 = gemm.dtype == "tfloat32"

    def run(a: Any, b: Any, c: Any) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left = a if gemm.layout[0] == "N" else a.transpose(-1, -2)
        right = b if gemm.layout[1] == "N" else b.transpose(-1, -2)
        return multiply(left, right, out=c)

    return run


def _cublas_fp8(gemm: Gemm, fast: bool) -> Callable[[Any, Any, Any], Any]:
    """``torch._scaled_mm``: A with K innermost, B too, and not both of them e5m2."""
    import torch

    plain = not gemm.epilogue and not gemm.weights and gemm.batch is None
    if not plain or gemm.layout != "NT" or gemm.storage == "float8_e5m2":
        raise WorkloadError("peer.cublaslt", workload=gemm.name)
    one = torch.ones((), dtype=torch.float32, device="cuda")

    def run(a: Any, b: Any, c: Any) -> Any:
        right = b.transpose(-1, -2)
        return torch._scaled_mm(
            a, right, scale_a=one, scale_b=one, out_dtype=c.dtype, use_fast_accum=fast
        )

    return run


def blockwise(spec: Spec) -> Callable[[Any, Any, Any, Any, Any], Any]:
    """The same by ``torch._scaled_mm``, as ``run(a, b, of_a, of_b, c)`` on torch tensors.

    torch makes the output, which is returned; it raises where its cuBLASLt has no such scales.
    """
    if not isinstance(spec, ScaledGemm):
        raise WorkloadError("peer.cublaslt", workload=spec.name)
    import torch

    def run(a: Any, b: Any, of_a: Any, of_b: Any, c: Any) -> Any:
        right, columns = b.transpose(-1, -2), of_b.transpose(-1, -2)
        rows = of_a.transpose(-1, -2)
        return torch._scaled_mm(a, right, scale_a=rows, scale_b=columns, out_dtype=c.dtype)

    return run


def tensor_intrinsics() -> Any:
    """TVM's module of CUDA tensor core intrinsics, which registers them.

    It parses 248 functions, each after two looks at the whole stack, and for every frame of the
    import system Python 3.11's inspect.getmodule searches all modules: 9 to 20 seconds of CPU time,
    4 on the short stack of a thread that is told beforehand where such frames come from.
    """
    for name in _FROZEN:
        inspect.modulesbyfile.setdefault(os.path.abspath(f"<frozen {name}>"), name)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(importlib.import_module, "tvm.s_tir.tensor_intrin.cuda").result()


def _whole_tiles(gemm: Gemm, dtype: str, tile: tuple[int, int, int]) -> tuple[int, int, int]:
    """How many tiles the product has along M, N and K; WorkloadError where not in full."""
    if (gemm.dtype, gemm.layout, gemm.batch, gemm.epilogue) != (dtype, "NN", None, ()):
        raise WorkloadError("peer.stock", workload=gemm.name, dtype=dtype)
    m, n, k = tile
    if gemm.m is None or gemm.m % m or gemm.n % n or gemm.k % k:
        raise WorkloadError("peer.stock_multiples", workload=gemm.name, m=m, n=n, k=k)
    return gemm.m // m, gemm.n // n, gemm.k // k


def _matmul(gemm: Gemm, out: str) -> Any:
    """The product as TVM's tests write it: operands cast, one block called C."""
    a = te.placeholder((gemm.m, gemm.k), gemm.storage, name="A")
    b = te.placeholder((gemm.k, gemm.n), gemm.storage, name="B")
    k = te.reduce_axis((0, gemm.k), name="k")
    c = te.compute(
        (gemm.m, gemm.n),
        lambda i, j: te.sum(a[i, k].astype(out) * b[k, j].astype(out), axis=[k]),
        name="C",
    )
    return te.create_prim_func([a, b, c])


def _annotate(sch: Any, loop: Any, stage: list[int], order: list[int]) -> None:
    sch.annotate(loop, "software_pipeline_stage", stage)
    sch.annotate(loop, "software_pipeline_order", order)
