"""How does one elected thread broadcast the next weights while the matrix unit uses the last ones?

The design is known from matrix accelerators: two buffers, a flag that says which one is which, a
handle to wait for a copy that nobody looks after. Nobody writes it here: the schedule is the plain
one of every convolution, and what is asked for is the instruction, two slots, and clusters of CTAs
that share a filter tile. The table below is read off the plan, flag and handle included.
"""

import pipeliner
from pipeliner.schedules import ConvTile, conv1d, schedule_conv
from pipeliner.verification.verdict import verify_workload

conv = conv1d(1, 512, 64, 64, 3, pad=1)
asked = {"instruction": "wgmma", "mechanism": "tma", "depth": 2, "cluster": 2}
fast = pipeliner.pipeline(schedule_conv(conv, ConvTile(128, 64, 32)), "h100", **asked)
plan = pipeliner.plan_of(fast)

(loop,), (channel,) = plan.loops, plan.mbarriers
weights = next(ring for ring in loop.rings if ring.buffer == "filters_shared")
broadcast = loop.op("filters_shared")
multiply = next(op for op in loop.ops if op.kind == "mma")
print(f"{broadcast.name}: one thread of the {broadcast.role}, for {plan.cluster} CTAs at once")
print(f"{multiply.name}: the {multiply.role}, {plan.role(multiply.role).threads} threads")


def state(op, step):
    """The tile that ``op`` works on at ``step``, its buffer, and the flag that its handle shows."""
    tile = step - op.stage
    if not 0 <= tile < int(loop.trip):
        return ("", "", "")
    return (f"tile {tile}", f"buffer {tile % weights.depth}", tile // weights.depth % 2)


row = "{:>4}  {:7} {:9}  {:>16}  {:7} {:9}  {}"
print(row.format("step", "arrives", "in", f"wait {channel.full}, flag", "is used", "from", "then"))
for step in range(int(loop.trip) + loop.stages - 1):
    sent, used = state(broadcast, step), state(multiply, step)
    free = f"release it: {channel.empty}" if used[0] else ""
    print(row.format(step, *sent[:2], used[2], *used[:2], free).rstrip())
print(channel.reason)

verdict = verify_workload(pipeliner.build(fast), conv)
print("right" if verdict.ok else "wrong", "in every timing, against", verdict.against)
