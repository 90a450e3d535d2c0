"""A schedule rule for reductions whose last axis stays: pooling, means over images.

    for n, c in grid(N, C):                  thread (n, c):
        for h, w: sum[n, c] += x[n, h, w, c]     sum in a register over all h, w
    for n, c: y[n, c] = sum[n, c] / (H * W)  =>  y[n, c] = sum / (H * W)

Neighbouring threads read neighbouring elements. TVM's rule for reductions gives a whole CTA to each
output, whose threads then read elements that lie far apart.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import s_tir, tirx
from tvm.s_tir.dlight import analysis, base

THREADS: Final = 128
"""Of a CTA."""

LEAST_OUTPUTS: Final = 1 << 13
"""Fewest outputs for which a thread each keeps a GPU busy."""


@base.ScheduleRule.from_callable("pipeliner.relax.ReduceByThread")
def reduce_by_thread(function: Any, target: Any, tunable: bool) -> Any | None:
    """The schedule of ``function``; None: it is no such reduction."""
    schedule = s_tir.Schedule(function)
    blocks = analysis.normalize_prim_func(schedule)
    if blocks is None:
        return None
    first, *rest = base.try_inline(schedule, blocks)
    if not _keeps_last_axis(schedule, first) or len(rest) > 1:
        return None
    if any("R" in block.dom_kind() or "O" in block.dom_kind() for block in rest):
        return None
    sums = first.block_rv
    if rest:
        schedule.set_scope(sums, 0, "local")
        out = rest[0].block_rv
    else:
        out = schedule.cache_write(sums, 0, "local")
    blocks_of_threads, threads = schedule.split(
        schedule.fuse(*schedule.get_loops(out)), factors=[None, THREADS]
    )
    schedule.bind(blocks_of_threads, "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")
    schedule.compute_at(sums, threads)
    reduced = schedule.get_loops(sums)[-first.dom_kind().count("R") :]
    schedule.decompose_reduction(sums, reduced[0])
    return schedule


def _keeps_last_axis(schedule: Any, block: Any) -> bool:
    """Whether ``block`` reduces, of static extents, into many elements, and not along its last."""
    kinds = block.dom_kind()
    if set(kinds) != {"S", "R"}:
        return False
    if not all(isinstance(one.dom, int) for one in block.iters):
        return False
    outputs = math.prod(one.dom for one in block.iters if one.kind == "S")
    reduced = [one.var for one in block.iters if one.kind == "R"]
    return outputs >= LEAST_OUTPUTS and not any(
        found.same_as(var)
        for region in schedule.get(block.block_rv).reads
        for found in tirx.analysis.undefined_vars(region.region[-1].min)
        for var in reduced
    )
