"""Depthwise convolutions and gradients: no matmul, each thread on its own. Their schedule.

    for blockIdx.x, thread in outputs / (pixels x vector):
      acc: the thread's outputs, neighbouring pixels of neighbouring channels = 0
      for step in positions of the kernel:
        acc += X[step's pixels] * W[step]    # vectors of channels, zero outside X
      Y = epilogue(acc)

Nothing is shared: a thread needs of X and W what no other multiplies with the same. Neighbouring
pixels of one thread read a weight once; a tile of ``rows`` is cut into regions instead, which read
an input once ([channelwise/regions.py](channelwise/regions.py)). There is no tile of a matmul that
the passes could map to an instruction, so the schedule says which thread has which output.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import s_tir

from .channelwise import DepthwiseSpec, has_planes, schedule_planes, schedule_regions
from .matmul import inline_epilogue
from .tiles import DepthwiseTile
from .workloads import MATMUL

LANES: Final = "threadIdx.x"


def schedule_depthwise(spec: DepthwiseSpec, tile: DepthwiseTile) -> Any:
    """``spec`` with ``tile`` outputs for each thread, as a TVM schedule.

    WorkloadError: it is not depthwise, or cannot be cut so.
    """
    if tile.rows:
        by = schedule_planes if has_planes(spec) else schedule_regions
        return by(spec, tile)
    sch = s_tir.Schedule(spec.by_channel().function())
    update = sch.get_sblock(MATMUL)
    store = inline_epilogue(sch, update)
    i, j, *positions, c = sch.get_loops(update)
    i_out, i_in = sch.split(i, [None, tile.pixels])
    j_out, j_in = sch.split(j, [None, tile.vector])
    sch.reorder(i_out, j_out, *positions, c, i_in, j_in)
    step = sch.fuse(*positions, c)
    cta, thread = sch.split(sch.fuse(i_out, j_out), [None, tile.threads])
    sch.bind(cta, "blockIdx.x")
    sch.bind(thread, LANES)

    sch.reverse_compute_at(store, thread, preserve_unit_loops=True)
    sch.set_scope(update, 0, "local")
    for block in (update, store):
        *_, pixel, lane = sch.get_loops(block)
        sch.unroll(pixel)
        sch.vectorize(lane)
    sch.decompose_reduction(update, step)
    return sch
