"""How do I use it inside a TVM build that I already have?

As one TVM pass among others, and as the name of a lowering for ``tvm.compile``. Functions that are
not for it, or that it declines to pipeline, come out right all the same.
"""

import tvm

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
mod = schedule_gemm(Gemm(256, 256, 256), GemmTile(64, 64, 32)).mod

with target:
    mod = pipeliner.passes.SoftwarePipeline(depth=3)(mod)
    executable = tvm.compile(mod, target, tir_pipeline="pipeliner")

cuda = executable.mod.imports[0].inspect_source()
print("cp.async groups committed:", cuda.count("commit_group();"))
print("the plan travels on the function:", pipeliner.plan_of(mod).loops[0].rings[0])
