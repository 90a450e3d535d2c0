"""How is a convolution pipelined, with its padding, its odd channels and what is fused into it?

As a matmul whose copies gather: a plain schedule says which window each output reads, the passes
turn that into asynchronous copies in which the hardware fills the halo with zeros.
"""

import pipeliner
from pipeliner.machine import H100
from pipeliner.schedules import conv2d, default_tile, schedule_conv
from pipeliner.verification.verdict import verify_workload

layer = conv2d(32, 56, 56, 64, 64, 3, 3, pad=1, epilogue=("bias", "relu"))
stem = conv2d(32, 224, 224, 3, 64, 7, 7, stride=2, pad=3)
for conv in (layer, stem):
    tile = default_tile(conv, H100)
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule_conv(conv, tile), "h100"))
    print(f"{conv.title}: {tile}")
    for copy in plan.copies:
        print(f"  {copy.op}: {copy.mechanism}, {copy.reason}")

small = conv2d(1, 8, 8, 32, 32, 3, 3, pad=1, epilogue=("bias", "relu"))
tile = default_tile(small, H100)
kernel = pipeliner.build(schedule_conv(small, tile), "h100")
verdict = verify_workload(kernel, small)
print("right" if verdict.ok else "wrong", "in every timing, against", verdict.against)
