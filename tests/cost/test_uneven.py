"""Kernels whose CTAs have different numbers of steps, and steps that nothing runs beside."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pipeliner.choice.mapped import map_kernel
from pipeliner.cost import predict, steps
from pipeliner.cost.busy import CHAIN_CYCLES, alone_chain, busy_and_bubble
from pipeliner.machine import H200
from pipeliner.plan.request import Request
from pipeliner.schedules import Attention, AttentionTile, Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info

CAUSAL = Attention(1, 16, 2048, 2048, 128, causal=True)
TILE = AttentionTile(128, 128)


def work_of(spec, tile):
    request = Request(instruction="wgmma", mechanism="tma")
    (loop,) = map_kernel(kernel_info(spec, tile), H200, request).loops
    return loop.work


def cycles(work, **grid):
    """Of the SMs, beside which memory works."""
    return predict(replace(work, grid=replace(work.grid, **grid)), H200, 2).cycles


def test_no_sm_is_done_before_the_cta_that_has_most():
    work = work_of(CAUSAL, TILE)
    assert (work.grid.trip, work.grid.most) == (8.5, 16)
    of_mean = {"most": None, "ctas": H200.sms}
    assert cycles(work, ctas=H200.sms) == cycles(work, trip=16, **of_mean) > cycles(work, **of_mean)


def test_a_long_cta_may_have_short_ones_beside_it():
    """Two CTAs of 8.5 steps as a mean are no fewer steps than one of 16."""
    work = work_of(CAUSAL, TILE)
    assert cycles(work, ctas=2 * H200.sms) == cycles(work, ctas=2 * H200.sms, most=None)


def test_where_all_have_as_many_there_is_no_longest():
    assert work_of(replace(CAUSAL, causal=False), TILE).grid.most is None
    assert work_of(Gemm(512, 512, 512), GemmTile(128, 128, 64)).grid.most is None


def test_the_last_step_of_a_chain_has_nothing_beside_it(monkeypatch):
    work = work_of(replace(CAUSAL, causal=False), TILE)
    usage = work.usage
    alone = usage.tensor + usage.sfu + usage.fma + usage.issue + CHAIN_CYCLES
    assert alone_chain(work) == pytest.approx(alone)
    busy, _ = busy_and_bubble(work, H200, 1)
    taken = cycles(work, ctas=H200.sms)
    monkeypatch.setattr(steps, "alone_chain", lambda work: 0.0)
    assert taken - cycles(work, ctas=H200.sms) == pytest.approx(alone - busy) != 0.0


def test_a_warpgroup_alone_on_an_sm_has_nothing_beside_its_steps():
    """Of 64 rows one multiplies and computes in turn; two of 128 rows run beside each other."""
    full = replace(CAUSAL, causal=False)
    for tile, alone in ((AttentionTile(64, 128), True), (TILE, False)):
        work = work_of(full, tile)
        usage = work.usage
        pipes = (usage.tensor, usage.sfu, usage.fma + usage.issue)
        busy, _ = busy_and_bubble(work, H200, 1)
        assert busy == pytest.approx((sum(pipes) if alone else math.hypot(*pipes)) + CHAIN_CYCLES)
    beside, _ = busy_and_bubble(work_of(full, AttentionTile(64, 128)), H200, 2)
    assert beside < busy_and_bubble(work_of(full, AttentionTile(64, 128)), H200, 1)[0]


def test_other_matmuls_run_beside_each_other():
    assert alone_chain(work_of(Gemm(512, 512, 512), GemmTile(128, 128, 64))) == 0.0


@pytest.mark.parametrize(("k", "faster"), [(4096, False), (4104, True)])
def test_few_ctas_of_a_last_wave_wait_for_their_own_bytes_alone(k: int, faster: bool) -> None:
    """110x13360x3400 NN by 128x96, 140 CTAs, takes 50.2 us on an H200; 66.8 by two equal waves."""
    work = work_of(Gemm(2048, 2048, k), GemmTile(128, 96, 64))
    one, most = (cycles(work, ctas=waves * H200.sms) for waves in (1, 2))
    alike, few = (cycles(replace(work, lone=lone), ctas=H200.sms + 8) for lone in (None, work.lone))
    assert alike == most
    assert (few < 0.99 * most) == faster
    assert few > one
    assert cycles(work, ctas=8) == one
