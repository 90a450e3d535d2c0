"""Predicted times beside what an H100 took, of kernels that no log has and that show one cause each.

Medians in microseconds, kernels by turns, the L2 cache overwritten before each run.
"""

from __future__ import annotations

import pytest

from pipeliner.cost import choose
from pipeliner.logs import candidate
from pipeliner.machine import H100
from pipeliner.request import Request
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info


def predicted(spec, tile, **request):
    return choose(kernel_info(spec, tile), H100, Request(**request))


@pytest.mark.parametrize(
    ("key", "ctas", "us"),
    [
        ("cp_async 64x64x8 d3", 1, 56.29),
        ("cp_async 64x64x8 d3", 2, 77.09),
        ("cp_async 64x64x8 d3", 3, 105.73),
        ("cp_async 64x64x8 d3", 5, 171.46),
        ("cp_async 128x64x8 d3", 1, 68.58),
        ("cp_async 128x64x8 d3", 2, 115.01),
        ("cp_async 128x128x8 d3", 1, 113.47),
        ("cp_async 128x128x8 d3", 2, 185.34),
        ("register 64x64x8 d2", 1, 64.58),
        ("register 64x64x8 d2", 2, 76.67),
        ("register 64x64x8 d2", 3, 100.70),
        ("register 64x64x8 d2", 5, 160.83),
    ],
)
def test_ctas_of_four_warps_that_multiply_fp32_by_how_many_an_sm_has(key, ctas, us):
    one = candidate(f"simt/{key}")
    spec = Gemm(12 * ctas * one.m, 11 * one.n, 1024, dtype="float32")
    assert one.plan(spec, H100).predicted_us == pytest.approx(us, rel=0.15)


@pytest.mark.parametrize(
    ("sizes", "tile", "consumers", "least", "most"),
    [
        ((8192, 8192, 8192), (128, 192), "ping-pong", 1569, 1593),
        ((8192, 8192, 8192), (128, 256), "cooperative", 1614, 1650),
        ((8192, 8192, 1024), (128, 192), "ping-pong", 172, 174),
        ((4096, 4096, 4096), (128, 256), "cooperative", 177, 180),
    ],
)
def test_long_products_take_what_power_leaves(sizes, tile, consumers, least, most):
    plan = predicted(Gemm(*sizes), GemmTile(*tile, 64, ctas=132, group=16), consumers=consumers)
    assert 0.93 * least < plan.predicted_us < 1.07 * most


@pytest.mark.parametrize(
    ("gemm", "tile", "depth"),
    [
        (
            Gemm(256, 256, 65536),
            GemmTile(64, 128, 64, splits=16),
            7,
        ),  # 35.1 us; 35.6, 40.6 with 5, 9
        (Gemm(128, 8192, 8192), GemmTile(64, 128, 64), 7),  # 56.4 us; 58.3, 57.8 with 5, 8
        (Gemm(1024, 1024, 1024), GemmTile(64, 128, 64), 8),  # 9.6 us; 10.2 with 5
    ],
    ids=str,
)
def test_slots_of_ctas_in_step_are_as_many_as_memory_gains_from(gemm, tile, depth):
    (ring, *_) = predicted(gemm, tile).channels
    assert ring.depth == depth


@pytest.mark.parametrize(
    ("sizes", "key", "us"),
    [
        ((128, 8192, 8192), "128x64x128 d5", 38.38),
        ((128, 8192, 8192), "64x128x64 d4", 53.38),
        ((128, 8192, 8192), "64x128x64 d12", 47.26),
        ((128, 8192, 8192), "128x128x64 d7", 52.11),
        ((128, 8192, 8192), "64x64x64 d12", 68.70),
        ((64, 8192, 8192), "64x64x64 d12", 37.15),
        ((128, 4096, 4096), "64x64x128 d9", 20.19),
        ((128, 4096, 4096), "64x128x64 d6", 26.14),
        ((128, 4096, 4096), "128x128x64 d7", 29.12),
    ],
)
def test_weights_that_warpgroups_convert(sizes, key, us):
    one = candidate(f"wgmma/tma {key}")
    plan = one.plan(Gemm(*sizes, weights="int8"), H100)
    assert plan.predicted_us == pytest.approx(us, rel=0.15)
