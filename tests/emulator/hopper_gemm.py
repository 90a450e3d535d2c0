"""A persistent, warp-specialised GEMM of sm_90 written by hand: the form that roles lower to.

C = A B^T in bf16 with fp32 accumulators.  One producer thread loads tiles by TMA into a ring of
``depth`` slots; two consumer warpgroups multiply them by wgmma.  The CTAs of a cluster are
neighbours along M: each loads its own A, and its share of B for all of them.  Every slot has an
mbarrier that the copies fill (full) and one that the consumers of all CTAs release (empty).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from tvm.script import tirx as T

ROWS: Final = 128  # of a tile: 64 for each consumer warpgroup
K: Final = 64  # elements of a step: one 128-byte swizzle atom
THREADS: Final = 384
_LOAD: Final = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"


@dataclass(frozen=True)
class Form:
    """One kernel; the fields after ``ctas`` are for making it wrong.

    Attributes
    ----------
    m, n, k, columns, depth, cluster, ctas
        Problem; columns of a tile; slots; CTAs of a cluster and of the grid.
    surplus
        Bytes expected of a slot beyond those that are copied.
    full_parity, empty_parity
        Added to the parity of the waits.
    full_slot, empty_slot, release_slot, expect_slot, a_slot, b_slot, a_read, b_read
        Added to the slot that is waited for, released, expected, written or multiplied.
    full_count, empty_count
        Added to the arrivals that the mbarriers expect.
    mask
        Multicast mask of B; None: the whole cluster.
    """

    m: int = 256
    n: int = 64
    k: int = 256
    columns: int = 32
    depth: int = 2
    cluster: int = 1
    ctas: int = 2
    surplus: int = 0
    full_parity: int = 0
    empty_parity: int = 0
    full_slot: int = 0
    empty_slot: int = 0
    release_slot: int = 0
    expect_slot: int = 0
    a_slot: int = 0
    b_slot: int = 0
    a_read: int = 0
    b_read: int = 0
    full_count: int = 0
    empty_count: int = 0
    mask: int | None = None

    def inputs(self) -> list[np.ndarray]:
        """Small integers, exact in any order of summation, and an output of NaN."""
        rng = np.random.default_rng(0)
        a, b = (
            rng.integers(-4, 5, (rows, self.k)).astype(ml_dtypes.bfloat16)
            for rows in (self.m, self.n)
        )
        return [a, b, np.full((self.m, self.n), np.nan, np.float32)]


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What C must become."""
    return a.astype(np.float32) @ b.astype(np.float32).T


def gemm(form: Form) -> Any:
    """The PrimFunc of a form."""
    m, n, k, columns, depth, cluster = (
        form.m,
        form.n,
        form.k,
        form.columns,
        form.depth,
        form.cluster,
    )
    registers = 64 * columns // 128
    share = columns // cluster
    steps, across = k // K, n // columns
    tiles = m // ROWS * across // cluster
    groups = form.ctas // cluster
    rounds = -(-tiles // groups)
    multiply = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16"
    a_map = [k, m, 2 * k, K, ROWS, 1, 1, 0, 3, 2, 0]
    b_map = [k, n, 2 * k, K, share, 1, 1, 0, 3, 2, 0]
    nbytes = (ROWS + columns) * K * 2 + form.surplus
    mask = (1 << cluster) - 1 if form.mask is None else form.mask
    b_at, b_bytes = 2 * depth * ROWS * K, 2 * depth * columns * K
    f = form

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), "bfloat16"),
        B: T.Buffer((n, k), "bfloat16"),
        C: T.Buffer((m, n), "float32"),
    ):
        A_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.evaluate(
            T.call_packed("runtime.cuTensorMapEncodeTiled", A_map, "bfloat16", 2, A.data, *a_map)
        )
        B_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.evaluate(
            T.call_packed("runtime.cuTensorMapEncodeTiled", B_map, "bfloat16", 2, B.data, *b_map)
        )
        for cx in T.thread_binding(cluster, thread="clusterCtaIdx.x"):
            for bx in T.thread_binding(f.ctas, thread="blockIdx.x"):
                for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                    arena = T.alloc_buffer(
                        (b_at + b_bytes + 16 * depth,), "uint8", scope="shared.dyn", align=1024
                    )
                    A_s = T.decl_buffer(
                        (depth, ROWS, K), "bfloat16", data=arena.data, scope="shared.dyn"
                    )
                    B_s = T.decl_buffer(
                        (depth, columns, K),
                        "bfloat16",
                        data=arena.data,
                        scope="shared.dyn",
                        elem_offset=b_at // 2,
                    )
                    full = T.decl_buffer(
                        (depth,),
                        "uint64",
                        data=arena.data,
                        scope="shared.dyn",
                        elem_offset=(b_at + b_bytes) // 8,
                    )
                    empty = T.decl_buffer(
                        (depth,),
                        "uint64",
                        data=arena.data,
                        scope="shared.dyn",
                        elem_offset=(b_at + b_bytes) // 8 + depth,
                    )
                    acc = T.alloc_buffer((registers,), "float32", scope="local")
                    desc = T.alloc_buffer((2,), "uint64", scope="local")
                    remote = T.alloc_buffer((1,), "uint32", scope="local")
                    if tx == 0:
                        for s in T.unroll(depth):
                            T.ptx.mbarrier.init.shared.b64(
                                T.address_of(full[s]), T.uint32(1 + f.full_count)
                            )
                            T.ptx.mbarrier.init.shared.b64(
                                T.address_of(empty[s]), T.uint32(2 * cluster + f.empty_count)
                            )
                    T.ptx.fence.mbarrier_init.release.cluster()
                    T.cuda.cluster_sync()
                    if tx // 128 == 0:
                        T.ptx["setmaxnreg.dec.sync.aligned.u32"](40)
                        if tx == 0:
                            for i in T.serial(rounds):
                                if i * groups + bx // cluster < tiles:
                                    for j in T.serial(steps):
                                        at: T.let[T.int32] = i * steps + j
                                        tile: T.let[T.int32] = i * groups + bx // cluster
                                        T.cuda.mbarrier_wait(
                                            T.address_of(empty[(at + f.empty_slot) % depth]),
                                            (at // depth + 1 + f.empty_parity) % 2,
                                        )
                                        T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                                            T.address_of(full[(at + f.expect_slot) % depth]),
                                            T.uint32(nbytes),
                                        )
                                        T.ptx[_LOAD](
                                            T.address_of(A_s[(at + f.a_slot) % depth, 0, 0]),
                                            T.address_of(A_map),
                                            j * K,
                                            (tile // across * cluster + cx) * ROWS,
                                            T.address_of(full[at % depth]),
                                        )
                                        T.ptx[_LOAD + ".multicast::cluster"](
                                            T.address_of(
                                                B_s[(at + f.b_slot) % depth, cx * share, 0]
                                            ),
                                            T.address_of(B_map),
                                            j * K,
                                            tile % across * columns + cx * share,
                                            T.address_of(full[at % depth]),
                                            T.uint16(mask),
                                        )
                    else:
                        T.ptx["setmaxnreg.inc.sync.aligned.u32"](232)
                        for i in T.serial(rounds):
                            if i * groups + bx // cluster < tiles:
                                for j in T.serial(steps):
                                    at: T.let[T.int32] = i * steps + j
                                    T.cuda.mbarrier_wait(
                                        T.address_of(full[(at + f.full_slot) % depth]),
                                        (at // depth + f.full_parity) % 2,
                                    )
                                    T.ptx.wgmma.fence.sync.aligned()
                                    for kk in T.unroll(K // 16):
                                        T.cuda.wgmma.encode_matrix_descriptor(
                                            T.address_of(desc[0]),
                                            T.address_of(
                                                A_s[
                                                    (at + f.a_read) % depth,
                                                    (tx // 128 - 1) * 64,
                                                    kk * 16,
                                                ]
                                            ),
                                            1,
                                            64,
                                            3,
                                        )
                                        T.cuda.wgmma.encode_matrix_descriptor(
                                            T.address_of(desc[1]),
                                            T.address_of(B_s[(at + f.b_read) % depth, 0, kk * 16]),
                                            1,
                                            64,
                                            3,
                                        )
                                        T.ptx[multiply](
                                            *[acc[r] for r in range(registers)],
                                            desc[0],
                                            desc[1],
                                            T.Or(j != 0, kk != 0),
                                            1,
                                            1,
                                            0,
                                            0,
                                        )
                                    T.ptx.wgmma.commit_group.sync.aligned()
                                    T.ptx.wgmma.wait_group.sync.aligned(0)
                                    if tx % 128 < cluster:
                                        T.ptx.mapa.shared__cluster.u32(
                                            remote[0],
                                            T.cuda.cvta_generic_to_shared(
                                                T.address_of(empty[(at + f.release_slot) % depth])
                                            ),
                                            T.Cast("uint32", tx % 128),
                                        )
                                        T.ptx.mbarrier.arrive.shared__cluster.b64(remote[0])
                                for r in T.unroll(registers // 4):
                                    for h in T.unroll(2):
                                        for v in T.vectorized(2):
                                            C[
                                                (
                                                    (i * groups + bx // cluster) // across * cluster
                                                    + cx
                                                )
                                                * ROWS
                                                + (tx // 128 - 1) * 64
                                                + tx % 128 // 32 * 16
                                                + h * 8
                                                + tx % 32 // 4,
                                                (i * groups + bx // cluster) % across * columns
                                                + r * 8
                                                + tx % 4 * 2
                                                + v,
                                            ] = acc[r * 4 + h * 2 + v]
                    T.cuda.cluster_sync()

    return main
