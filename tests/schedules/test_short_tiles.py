"""Persistent tiles of few steps: their rings run on from one tile to the next."""

from __future__ import annotations

import numpy as np

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

SHORT = Gemm(m=384, n=256, k=128)


def test_rings_are_deeper_than_a_tile_has_steps():
    """With 2 slots for 2 steps nothing of the next tile would be copied under its stores."""
    tile = GemmTile(64, 64, 64, persistent=3)
    kernel = pipeliner.build(schedule_gemm(SHORT, tile), "h100", prove=False)
    (loop,) = [found for found in kernel.plan.loops if found.pipelined]
    assert str(loop.trip) == "2"
    assert [channel.depth for channel in kernel.plan.mbarriers] == [6]
    inputs = SHORT.inputs()
    done = kernel.emulate(*inputs, np.zeros((SHORT.m, SHORT.n), np.float16))
    assert not done.hazards
    error = np.abs(done.outputs["C"].astype(np.float64) - SHORT.reference(*inputs)).max()
    assert error < 0.1


def test_no_deeper_than_all_that_a_cta_does():
    lone = schedule_gemm(SHORT, GemmTile(64, 64, 64))
    plan = pipeliner.plan_of(pipeliner.pipeline(lone, "h100", mechanism="tma"))
    assert [channel.depth for channel in plan.mbarriers] == [2]
