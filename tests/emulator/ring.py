"""Small pipelined kernels written by hand: cp.async rings for the tests to run and to break."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

DEPTH, COLUMNS = 3, 64


def reversing_ring(
    steps: int, wait: int = DEPTH - 2, rows: int | None = None, slots: int = DEPTH
) -> Any:
    """Row k of C is row k of A reversed, through a ring of shared rows loaded DEPTH - 1 ahead.

    ``rows`` of A are read; steps beyond them load nothing (src-size 0) and give zeros. Fewer
    ``slots`` than DEPTH make the kernel wrong.
    """
    rows = steps if rows is None else rows

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((rows, COLUMNS), "float32"), C: T.Buffer((steps, COLUMNS), "float32")):
        for tx in T.thread_binding(COLUMNS, thread="threadIdx.x"):
            S = T.alloc_buffer((slots, COLUMNS), "float32", scope="shared.dyn")
            for p in T.serial(DEPTH - 1):
                with T.attr("load", "pipeliner.op", "load"):
                    if p < steps:
                        T.ptx["cp.async.ca.shared.global"](
                            T.address_of(S[p % slots, tx]),
                            T.address_of(A[T.min(p, rows - 1), tx]),
                            4,
                            T.Cast("uint32", T.Select(p < rows, 4, 0)),
                        )
                T.ptx.cp.async_.commit_group()
            for k in T.serial(steps):
                T.ptx.cp.async_.wait_group(wait)
                T.tvm_storage_sync("shared")
                with T.attr("load", "pipeliner.op", "load"):
                    if k + (DEPTH - 1) < steps:
                        T.ptx["cp.async.ca.shared.global"](
                            T.address_of(S[(k + (DEPTH - 1)) % slots, tx]),
                            T.address_of(A[T.min(k + (DEPTH - 1), rows - 1), tx]),
                            4,
                            T.Cast("uint32", T.Select(k + (DEPTH - 1) < rows, 4, 0)),
                        )
                T.ptx.cp.async_.commit_group()
                with T.attr("store", "pipeliner.op", "store"):
                    C[k, tx] = S[k % slots, COLUMNS - 1 - tx]

    return main
