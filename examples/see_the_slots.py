"""What runs when, which slot holds what, and what is everything waiting for?

Model time shows it: the plan's latencies on the plan's machine, for one CTA that has its SM to
itself. Below, two slots leave some of the latency of a copy exposed and four hide it.
"""

from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.timeline import text, timeline

schedule = schedule_gemm(Gemm(256, 256, 1024), GemmTile(64, 64, 64))

for depth in (2, 4):
    drawn = timeline(schedule, "a100", iterations=6, depth=depth)
    print(f"{depth} slots: {drawn.speedup:.1f} times as fast as one; an iteration goes by with")
    for hold in drawn.pipelined.steady.holds:
        print(f"  {hold.cycles:5.0f} cycles: {hold.cause} {hold.culprit}")

print(text(drawn))

slots = drawn.pipelined.slots  # also: drawn.pipelined.trace.events, svg(drawn), chrome(drawn)
for slot, spans in slots.items():
    ready = sum(span.cycles for span in spans if span.state == "ready")
    print(f"{slot} is ready, and not yet read, for {ready} cycles")
