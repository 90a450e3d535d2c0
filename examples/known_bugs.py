"""How does a proof show a bug?

Three that other pipeliners have had, each as a kernel:

    python examples/known_bugs.py
    pipeliner verify examples/known_bugs.py:lost_parity --target h100 --prove

Each kernel is walked through for every trip count. What comes out is one execution that is wrong:
its trip counts, two statements, and what was done in which order before the second of them.
"""

from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.proof.running.drawn import drawing
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

DEPTH, COLUMNS, WARP = 3, 64, 32


@T.prim_func(s_tir=True)
def lost_parity(A: T.Buffer((12, WARP), "int32"), C: T.Buffer((12, WARP), "int32")):
    """A phase counted in steps, which is right with one slot; with three it changes every third."""
    for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
        S = T.alloc_buffer((DEPTH, WARP), "int32", scope="shared")
        full = T.alloc_buffer((DEPTH,), "uint64", scope="shared")
        empty = T.alloc_buffer((DEPTH,), "uint64", scope="shared")
        if tx == 0:
            for s in T.serial(DEPTH):
                T.ptx.mbarrier.init.shared.b64(T.address_of(full[s]), T.uint32(WARP))
                T.ptx.mbarrier.init.shared.b64(T.address_of(empty[s]), T.uint32(WARP))
        T.tvm_storage_sync("shared")
        if tx < WARP:
            for k in T.serial(12):
                T.cuda.mbarrier_wait(T.address_of(full[k % DEPTH]), k % 2)
                C[k, tx] = S[k % DEPTH, WARP - 1 - tx]
                T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[k % DEPTH]))
        else:
            for k in T.serial(12):
                T.cuda.mbarrier_wait(T.address_of(empty[k % DEPTH]), k % 2 ^ 1)
                S[k % DEPTH, tx - WARP] = A[k, tx - WARP]
                T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[k % DEPTH]))


@T.prim_func(s_tir=True)
def waited_before_commit(
    A: T.Buffer((8, COLUMNS), "float32"), C: T.Buffer((8, COLUMNS), "float32")
):
    """A wait that is placed before the commit of the copy counts one group too many."""
    for tx in T.thread_binding(COLUMNS, thread="threadIdx.x"):
        S = T.alloc_buffer((DEPTH, COLUMNS), "float32", scope="shared.dyn")
        for p in T.serial(DEPTH - 1):
            T.ptx["cp.async.ca.shared.global"](T.address_of(S[p, tx]), T.address_of(A[p, tx]), 4)
            T.ptx.cp.async_.commit_group()
        for k in T.serial(8):
            if k + DEPTH - 1 < 8:
                T.ptx["cp.async.ca.shared.global"](
                    T.address_of(S[(k + DEPTH - 1) % DEPTH, tx]),
                    T.address_of(A[k + DEPTH - 1, tx]),
                    4,
                )
            T.ptx.cp.async_.wait_group(DEPTH - 1)
            T.ptx.cp.async_.commit_group()
            T.tvm_storage_sync("shared")
            C[k, tx] = S[k % DEPTH, COLUMNS - 1 - tx]
            T.tvm_storage_sync("shared")


def released_before_read() -> Any:
    """A slot is released while the tensor cores still read it: the wait leaves one group more."""

    def one_more(wait: Any, _mutator: Any) -> Any:
        call = wait.value
        if not isinstance(call, ir.Call) or str(call.op.name) != "tirx.ptx.wgmma_wait_group":
            return wait
        return tirx.Evaluate(ir.Call(call.op, [call.args[0] + 1, *call.args[1:]]))

    schedule = schedule_gemm(Gemm(m=64, n=16, k=256), GemmTile(64, 16, 64))
    func = pipeliner.pipeline(schedule, "h100", depth=2, instruction="wgmma", roles=1)
    body = tvm_ffi.structural_mutate(func.body, [(tirx.Evaluate, one_more)])
    return func.with_body(body)


if __name__ == "__main__":
    for kernel in (lost_parity, waited_before_commit, released_before_read()):
        proof = pipeliner.build(kernel, "h100").proof
        print(*proof.statement, sep="\n")
        print(*drawing(proof.refuted.order), sep="\n", end="\n\n")
