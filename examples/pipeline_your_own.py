"""How do I pipeline a function that I scheduled myself, threads and all?

Every split, thread and vector below is the user's, and stays. What pipeliner adds is the ring of
tiles, the asynchronous copies, the waits and the barriers.
"""

import numpy as np
from tvm import s_tir
from tvm.script import tirx as T

import pipeliner

M = N = K = 64


@T.prim_func(s_tir=True)
def matmul(
    A: T.Buffer((M, K), "float32"), B: T.Buffer((K, N), "float32"), C: T.Buffer((M, N), "float32")
):
    T.func_attr({"global_symbol": "matmul", "tirx.noalias": True})
    for i, j, k in T.grid(M, N, K):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def scheduled():
    """32 x 32 tiles of C, 8 x 8 threads, 8 steps of K in shared memory at a time."""
    sch = s_tir.Schedule(matmul)
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    by, ty, yi = sch.split(i, [None, 8, 4])
    bx, tx, xi = sch.split(j, [None, 8, 4])
    ko, ki = sch.split(k, [None, 8])
    sch.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tx)
    for loop, thread in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y")):
        sch.bind(loop, thread)
    sch.bind(tx, "threadIdx.x")
    for operand in (0, 1):
        copy = sch.cache_read(block, operand, "shared")
        sch.compute_at(copy, ko)
        y, x, vector = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [8, 8, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(vector)
    sch.decompose_reduction(block, ko)
    return sch


def reference(a, b, c):
    """What ``pipeliner verify examples/pipeline_your_own.py:scheduled`` compares with."""
    return a @ b


if __name__ == "__main__":
    fast = pipeliner.pipeline(scheduled(), "a100", depth=4)
    print(pipeliner.plan_of(fast).explain())

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, M, K)).astype("float32")
    result = pipeliner.build(fast).emulate(a, b, np.zeros((M, N), "float32"))
    assert not result.hazards
    assert np.allclose(result.outputs["C"], reference(a, b, None), atol=1e-4)
    print("right, without hazards")
