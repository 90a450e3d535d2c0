"""What if I want it otherwise?

Ask for it, or edit the plan and hand it back. A plan is checked like one of ours: what would break
a dependence or does not fit is refused in one line.
"""

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

schedule = schedule_gemm(Gemm(512, 512, 512), GemmTile(128, 64, 32))

asked = pipeliner.pipeline(schedule, "a100", depth=2, mechanism="register")
print("asked: ", [(copy.op, copy.mechanism) for copy in pipeliner.plan_of(asked).copies])

plan = pipeliner.plan_of(pipeliner.pipeline(schedule, "a100"))
for ring in plan.loops[0].rings:
    if ring.scope.startswith("shared"):
        plan = plan.with_depth(ring.buffer, 5)
obeyed = pipeliner.plan_of(pipeliner.pipeline(schedule, "a100", plan=plan))
print("edited:", [(ring.buffer, ring.depth) for ring in obeyed.loops[0].rings if ring.depth > 1])

loop = plan.loops[0]
late = plan.with_op(loop.name, loop.rings[0].producers[0], stage=9, order=0)
for wrong in ({"plan": late}, {"depth": 99}):
    try:
        pipeliner.pipeline(schedule, "a100", **wrong)
    except pipeliner.PipelinerError as refusal:
        print("refused:", refusal)
