"""How do I get a pipelined kernel out of a plain tiled function?

The schedule says tiles and nothing else. ``pipeline`` decides who copies, how wide, how early, and
which instruction multiplies; the plan says what it decided and why.
"""

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

gemm = Gemm(m=256, n=256, k=512, dtype="float16")
schedule = schedule_gemm(gemm, GemmTile(m=128, n=128, k=32))

fast = pipeliner.pipeline(schedule, "h100")
print(pipeliner.plan_of(fast).explain())

kernel = pipeliner.build(fast)
a, b = gemm.inputs()
result = kernel.emulate(a, b, gemm.reference(a, b).astype("float16") * 0)
print("hazards:", len(result.hazards))
print("largest error:", abs(result.outputs["C"] - gemm.reference(a, b)).max())
