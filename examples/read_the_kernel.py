"""What does the generated kernel look like, and what does it cost?

The steady state of the loop as CUDA, and what ptxas reports where nvcc is installed.
"""

import pipeliner
from pipeliner.explain.inspect import condense, find_loop, kernel_source
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

schedule = schedule_gemm(Gemm(1024, 1024, 1024), GemmTile(128, 128, 32))
kernel = pipeliner.build(schedule, "a100")

loop = kernel.plan.loops[0].name
print(condense(find_loop(kernel_source(kernel.cuda), loop) or "not pipelined"))
try:
    used = kernel.resources
    print(f"{used.registers} registers, {used.spills} bytes spilled, {used.shared} bytes shared")
except pipeliner.errors.ToolError as missing:
    print(missing)
