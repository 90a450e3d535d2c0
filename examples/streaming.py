"""Does it help a loop that has no shared memory and no matmul?

Yes: the loads of iterations ahead are issued into registers while this one computes.
"""

import numpy as np
from tvm.script import tirx as T

import pipeliner

BLOCKS, THREADS, STEPS = 4, 128, 16
SIZE = BLOCKS * THREADS * STEPS


@T.prim_func(s_tir=True)
def add(
    A: T.Buffer((SIZE,), "float32"),
    B: T.Buffer((SIZE,), "float32"),
    C: T.Buffer((SIZE,), "float32"),
):
    T.func_attr({"global_symbol": "add", "tirx.noalias": True})
    for bx in T.thread_binding(BLOCKS, thread="blockIdx.x"):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            for i in T.serial(STEPS):
                with T.sblock("add"):
                    v = T.axis.spatial(SIZE, (bx * STEPS + i) * THREADS + tx)
                    C[v] = A[v] + B[v]


if __name__ == "__main__":
    fast = pipeliner.pipeline(add, "a100", depth=4)
    print(pipeliner.plan_of(fast).explain())

    rng = np.random.default_rng(0)
    a, b = rng.random(SIZE, "float32"), rng.random(SIZE, "float32")
    result = pipeliner.build(fast).emulate(a, b, np.zeros(SIZE, "float32"))
    assert not result.hazards
    assert np.array_equal(result.outputs["C"], a + b)
    print("right, without hazards")
