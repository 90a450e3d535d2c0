"""How do I tune a function of my own?

What makes the schedule takes its tile as knobs: parameters that default to lists of values. The
choices of the plan, such as the depth, are searched beside them. With a GPU and PyTorch,
``pipeliner tune examples/tune_your_own.py:scheduled`` measures what the model ranks here.
"""

from tvm import s_tir
from tvm.script import tirx as T

import pipeliner
from pipeliner.targets import gpu
from pipeliner.tuning import ranked

M = N = K = 512


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


def scheduled(threads=[8, 16], rows=[4, 8], step=[8, 16]):  # noqa: B006
    """``threads``² threads of ``rows``² elements each, ``step`` of K in shared memory at a time."""
    sch = s_tir.Schedule(matmul)
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    by, ty, yi = sch.split(i, [None, threads, rows])
    bx, tx, xi = sch.split(j, [None, threads, rows])
    ko, ki = sch.split(k, [None, step])
    sch.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tx)
    for loop, thread in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y")):
        sch.bind(loop, thread)
    sch.bind(tx, "threadIdx.x")
    for operand in (0, 1):
        copy = sch.cache_read(block, operand, "shared")
        sch.compute_at(copy, ko)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, y, x, vector = sch.split(fused, [None, threads, threads, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(vector)
    sch.decompose_reduction(block, ko)
    return sch


if __name__ == "__main__":
    for point in ranked(scheduled, "a100")[:4]:
        knobs, asked = point.candidate.tile, point.candidate.request
        print(f"{point.predicted_us:.2f} us predicted:", dict(knobs.values), asked.as_dict())
    if gpu() is not None:
        tuned = pipeliner.tune(scheduled, trials=16, db="tuned.sqlite")
        print(tuned.candidate, tuned.best.us, "us")
