"""Kernels as values, for the tests of the cost model."""

from __future__ import annotations

from dataclasses import replace

from pipeliner.machine import H100
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.space.ranking import choose
from pipeliner.values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo

WGMMA = Request(instruction="wgmma")
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


def matmul(m=128, n=128, k=32, dtype="float16", acc="float32", **changes):
    values = {
        "op": "C_update",
        "acc": "acc",
        "a": "A_shared",
        "b": "B_shared",
        "m": m,
        "n": n,
        "k": k,
        "a_dtype": dtype,
        "b_dtype": dtype,
        "acc_dtype": acc,
        "a_k_major": True,
        "b_k_major": True,
    }
    return MatmulInfo(**{**values, **changes})


def copy(name="A", shape=(128, 32), dtype="float16", aligned=64, **changes):
    values = {
        "op": f"{name}_shared",
        "src": name,
        "dst": f"{name}_shared",
        "dst_scope": "shared",
        "dtype": dtype,
        "shape": shape,
        "src_dims": (0, 1),
        "src_strides": (4096, 1),
        "aligned": aligned,
        "masked": False,
        "bound": False,
    }
    return CopyInfo(**{**values, **changes})


def gemm(m=128, n=128, k=32, dtype="float16", trip=128, grid=(1024,), **changes):
    """One GEMM loop with both operands contiguous along K."""
    a, b = copy("A", (m, k), dtype), copy("B", (n, k), dtype)
    size = SIZES[dtype]
    acc = "int32" if dtype == "int8" else "float32"
    loop = LoopInfo(
        name="ko",
        trip=trip,
        trip_text="n" if trip is None else str(trip),
        ops=(a, b, matmul(m, n, k, dtype, acc)),
        rings=(("A_shared", "shared", m * k * size), ("B_shared", "shared", n * k * size)),
        depth=changes.pop("depth", None),
        annotated=changes.pop("annotated", False),
    )
    return KernelInfo("gemm", grid, 0, (loop,), **changes)


def stream(bytes_=4096, flops=1024, trip=1000):
    """A bound loop that reads global memory, computes a little, and keeps nothing shared."""
    op = StatementInfo("C", "compute", global_bytes=bytes_, flops=flops)
    loop = LoopInfo("i", trip, str(trip), (op,), ())
    return KernelInfo("stream", (264,), 256, (loop,))


def depths(plan):
    """Slots by buffer of the rings of a plan's first loop."""
    return {ring.buffer: ring.depth for ring in plan.loops[0].rings}


def by_wgmma(m=128, n=256, k=64, request=WGMMA, **changes) -> KernelPlan:
    """The plan of a product for an H100, by wgmma unless something else is asked for."""
    return choose(gemm(m, n, k, **changes), H100, request)


def with_copies(info, **changes):
    """``info`` with other copies."""
    (loop,) = info.loops
    ops = tuple(replace(op, **changes) if isinstance(op, CopyInfo) else op for op in loop.ops)
    return replace(info, loops=(replace(loop, ops=ops),))
