"""Instructions of math warps that copy: who finds where an element lies, and who issues it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeliner.choice.mapped import map_kernel
from pipeliner.cost.busy import busy_and_bubble
from pipeliner.cost.predict import predict
from pipeliner.cost.usage import PIPE_NORM
from pipeliner.cost.usage.copies import QUOTIENT_INSTRUCTIONS
from pipeliner.machine import H200
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, ConvWeightGrad, Gemm, GemmTile, conv2d
from pipeliner.schedules.closed_form import kernel_info

LAYER = conv2d(8, 28, 28, 64, 64, 3, 3, pad=1)
BY_THREADS = Request(instruction="mma", mechanism="cp_async")


def work(spec, tile, request=BY_THREADS):
    (loop,) = map_kernel(kernel_info(spec, tile), H200, request).loops
    return loop.work


def accesses(tile, threads_of_a_warp=32, vector=8):
    """Of all warps in a step, of 16 bytes a thread."""
    return (tile.m + tile.n) * tile.k / vector / threads_of_a_warp


def test_what_steps_over_pixels_divides_to_find_each() -> None:
    tile = ConvTile(64, 64, 64)
    forward = work(LAYER, tile).usage
    gradient = work(ConvWeightGrad(LAYER), tile).usage
    dims = 3  # image, row and column
    more = accesses(tile) * dims * QUOTIENT_INSTRUCTIONS / H200.issue_per_cycle
    assert gradient.issue - forward.issue == pytest.approx(more, rel=0.05)
    rows = work(Gemm(512, 512, 512, layout="TN"), GemmTile(64, 64, 64)).usage
    assert rows.issue == pytest.approx(forward.issue, rel=0.05)  # K outermost, and no pixels


@pytest.mark.parametrize(("warps", "times"), [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1), (32, 1)])
def test_few_warps_issue_no_faster_than_their_chains(warps: int, times: int) -> None:
    """A scheduler has a warp's next instruction when the one before is done."""
    one = work(ConvWeightGrad(LAYER), ConvTile(64, 64, 64))
    found = replace(one, threads=replace(one.threads, count=32 * warps))
    busy, _ = busy_and_bubble(found, H200, 1)
    alone, _ = busy_and_bubble(replace(found, usage=replace(one.usage, issue=0.0)), H200, 1)
    norm = one.usage.norm(PIPE_NORM, issue=one.usage.issue * times)
    assert busy - alone == pytest.approx(norm - one.usage.norm(PIPE_NORM, issue=0.0))


def test_producers_and_multiply_adds_have_no_such_chains() -> None:
    products = Gemm(512, 512, 512)
    fp32 = Gemm(512, 512, 512, dtype="float32")
    for spec, request in (
        (products, Request(instruction="wgmma", mechanism="tma")),
        (fp32, Request(instruction="simt", mechanism="cp_async")),
    ):
        one = work(spec, GemmTile(64, 64, 32), request)
        few, many = (
            busy_and_bubble(replace(one, threads=replace(one.threads, count=count)), H200, 1)
            for count in (160, 2048)
        )
        assert few == many
        assert few[0] >= one.usage.norm(PIPE_NORM)


def test_a_plan_says_that_few_warps_issue_too_slowly() -> None:
    """One warp that finds 18 pixels a step: neither shared memory nor L2 is in its way."""
    one = work(ConvWeightGrad(LAYER), ConvTile(16, 56, 64))
    few, many = (
        predict(replace(one, threads=replace(one.threads, count=count)), H200, 8)
        for count in (32, 512)
    )
    assert few is not None
    assert many is not None
    assert few.issue == pytest.approx(16 * many.issue)
    assert (few.limiter, many.limiter) == ("instruction issue", "shared memory")
