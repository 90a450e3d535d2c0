"""Why was my loop left alone?

The plan names the requirement that failed; nothing is declined without a reason.
"""

from tvm.script import tirx as T

import pipeliner


@T.prim_func(s_tir=True)
def scan(A: T.Buffer((64, 128), "float32")):
    T.func_attr({"global_symbol": "scan"})
    for tx in T.thread_binding(128, thread="threadIdx.x"):
        for i in T.serial(63):
            with T.sblock("step"):
                row, column = T.axis.remap("SS", [i, tx])
                A[row + 1, column] = A[row + 1, column] + A[row, column]


if __name__ == "__main__":
    plan = pipeliner.plan_of(pipeliner.pipeline(scan, "a100"))
    for loop in plan.loops:
        print(
            f"{loop.name}: pipelined"
            if loop.pipelined
            else f"{loop.name}: {'; '.join(map(str, loop.reasons))}"
        )
    print(*plan.reasons, sep="\n")
