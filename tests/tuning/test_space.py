"""The space: every point can be made, none twice, the best predicted first."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import replace

import pytest

from pipeliner.errors import WorkloadError
from pipeliner.kernel.building import build_with, pipeline_with
from pipeliner.kernel.compiled import as_module, plan_of
from pipeliner.machine import machine_for
from pipeliner.plan.request import Request
from pipeliner.records.candidate import NOTHING_ASKED, Candidate
from pipeliner.schedules import (
    Conv,
    ConvTile,
    GatedGemm,
    Gemm,
    GemmTile,
    conv2d,
    default_tile,
)
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.tile_space import ordered_us
from pipeliner.space.neighbours import neighbours
from pipeliner.space.ranking import Ranking
from pipeliner.targets import accelerated, cuda_target
from pipeliner.tuning.space import VARIED, point_of, space, variants
from tests.refusals import refused

CASES = {
    "gemm on h100": (Gemm(1024, 1024, 1024), "h100"),
    "gemm on a100": (Gemm(1000, 520, 256), "a100"),
    "exact gemm": (Gemm(512, 512, 512, dtype="fp32"), "a100"),
    "conv on h100": (conv2d(8, 28, 28, 64, 64, 3, 3), "h100"),
}


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request):
    spec, target = CASES[request.param]
    return spec, target, space(spec, machine_for(target))


@pytest.mark.part(6)
def test_sorted_and_each_once(case):
    _, _, points = case
    times = [point.predicted_us for point in points]
    assert times == sorted(times)
    assert len({point.candidate for point in points}) == len(points) > VARIED
    assert len({len(point.features) for point in points}) == 1


@pytest.mark.part(2)
def test_the_models_choice_is_in_it(case):
    spec, target, points = case
    tile = default_tile(spec, machine_for(target))
    sizes = {(p.candidate.tile.m, p.candidate.tile.n, p.candidate.tile.k) for p in points}
    assert (tile.m, tile.n, tile.k) in sizes


@pytest.mark.part(2)
def test_every_choice_of_the_plan_is_varied(case):
    spec, target, points = case
    tiles = {
        name: {getattr(p.candidate.tile, name) for p in points} for name in ("m", "raster_group")
    }
    assert all(len(values) > 2 for values in tiles.values())
    asked = {
        name: {getattr(p.candidate.request, name) for p in points}
        for name in (
            "depth",
            "mechanism",
            "store",
            "cluster",
            "roles",
            "consumers",
            "instruction",
            "warps",
        )
    }
    assert len(asked["depth"]) > 3
    if spec.types.dtype == "float32":
        assert asked["instruction"] == {"simt"}  # tensor cores would change the numerics
    if target == "h100":
        assert {"wgmma"} <= asked["instruction"]
    if target == "h100" and isinstance(spec, Gemm):
        assert {"auto", 2} <= asked["cluster"]
        assert {"tma", "direct"} & asked["store"]
        assert "cp_async" in asked["mechanism"]


@pytest.mark.deep("test_sorted_and_each_once")
def test_ping_pong_is_a_point_beside_the_same_tile_that_all_share():
    """Both come to as many threads, slots and stores."""
    spec, machine = Gemm(4096, 4096, 4096), machine_for("h100")
    base = Candidate(GemmTile(128, 128, 64, persistent=132), Request(instruction="wgmma"))
    made = list(variants(spec, machine, base))
    (other,) = [one for one in made if one.request.consumers != "auto"]
    assert other.request.consumers == "ping-pong"
    points = {one: point_of(spec, machine, one) for one in (base, other)}
    assert points[base].features != points[other].features
    back = [one.request.consumers for one in variants(spec, machine, other)]
    assert "cooperative" in back
    wide = replace(base, tile=GemmTile(128, 192, 64, persistent=132))
    taken = Gemm(8192, 8192, 8192)  # there ping-pong is taken by default
    assert (
        point_of(taken, machine, wide).features
        == point_of(taken, machine, replace(wide, request=other.request)).features
    )
    assert "cooperative" in [one.request.consumers for one in variants(taken, machine, wide)]
    assert {one.candidate.request.consumers for one in space(spec, machine)} > {"auto"}


@pytest.mark.part(6)
def test_points_can_be_made_and_come_to_what_was_predicted(case):
    """A sample of the space through the real passes: the closed form speaks of what they make."""
    spec, target, points = case
    chosen = accelerated(cuda_target(target))
    for point in random.Random(0).sample(points, 4):
        function = point.candidate.function(spec)
        plan = plan_of(pipeline_with(as_module(function), chosen, point.candidate.request))
        us = ordered_us(spec, point.candidate.tile, machine_for(target), plan.predicted_us)
        assert us == pytest.approx(point.predicted_us, rel=0.02), point


def test_a_depthwise_convolution_has_tiles_of_its_own():
    spec = conv2d(2, 14, 14, 24, 24, 3, 3, groups=24)
    points = space(spec, machine_for("h100"))
    assert {point.predicted_us for point in points} == {0.0}
    assert all(spec.k % point.candidate.tile.vector == 0 for point in points)
    assert point_of(spec, machine_for("h100"), points[0].candidate) == points[0]


def test_what_cannot_be_tiled_is_refused():
    """A GPU without room for a tile: why the last one does not fit is in the line."""
    cramped = replace(machine_for("a100"), smem_per_cta=256, max_registers_per_thread=8)
    with refused("tune.no_tile", WorkloadError, machine="A100 SXM4"):
        space(Gemm(64, 64, 64), cramped)


@pytest.mark.parametrize(
    ("spec", "tile", "others"),
    [
        (Gemm(96, 256, 128), GemmTile(32, 32, 64, raster_group=4), [8, 16, 32]),
        (Gemm(256, 32, 128), GemmTile(32, 32, 64, raster_group=1), [2, 4, 8, 32]),
        (conv2d(2, 14, 14, 32, 32, 3, 3), ConvTile(32, 32, 32, raster_group=1), [4, 8]),
    ],
    ids=["three rows", "one column of tiles", "one column of a convolution"],
)
@pytest.mark.deep("test_sorted_and_each_once")
def test_groups_that_come_to_one_kernel_are_one_point(spec, tile, others):
    """Their CUDA is the same, so measuring both would tell nothing."""
    points = space(spec, machine_for("a100"))
    one = build_with(Candidate(tile).function(spec), cuda_target("a100"), NOTHING_ASKED)
    for group in others:
        same = Candidate(replace(tile, raster_group=group))
        two = build_with(same.function(spec), cuda_target("a100"), NOTHING_ASKED)
        assert two.cuda == one.cuda
    groups = defaultdict(set)
    for point in points:
        found = point.candidate
        rows = math.ceil((spec.pixels if isinstance(spec, Conv) else spec.m) / found.tile.m)
        plain = replace(found.tile, raster_group=1)
        groups[plain, found.request, rows].add(found.tile.raster_group)
    for (_, _, rows), asked in groups.items():
        assert len(asked) <= sum(rows % size == 0 for size in range(1, rows + 1))


def test_no_ring_is_tried_deeper_than_its_loop_is_long():
    """A slot that no iteration fills changes nothing: the depths are those of the plan space."""
    spec, machine = Gemm(512, 512, 128), machine_for("a100")
    base = Candidate(GemmTile(64, 64, 32), Request(instruction="mma"))
    own = Ranking(kernel_info(spec, base.tile), machine, base.request).best()
    (loop,) = own.loops
    listed = {found.depth for found in loop.depths.fitting}
    assert listed == {1, 2, 3, 4}
    made = {one.request.depth for one in variants(spec, machine, base)}
    assert made == {"auto", *listed} - {own.plan.loops[0].rings[0].depth}


def test_what_is_varied_is_what_the_plan_space_offers():
    spec, machine = Gemm(4000, 4104, 4040), machine_for("h100")
    base = Candidate(GemmTile(128, 192, 64, persistent=132), Request(instruction="wgmma"))
    ranking = Ranking(kernel_info(spec, base.tile), machine, base.request)
    offered = dict(neighbours(ranking, ranking.best()))
    made = list(variants(spec, machine, base))
    for name, values in offered.items():
        asked = {getattr(one.request, name) for one in made} - {getattr(base.request, name)}
        assert asked == set(values), name
    assert {"depth", "mechanism", "store", "cluster", "roles", "consumers"} == set(offered)


def test_a_worse_order_of_tiles_takes_longer():
    """Measured on an H200 by 208x64: 72 us in groups of four rows of tiles, 83 along them."""
    machine, spec = machine_for(cuda_target("h200")), GatedGemm(824, 7288, 1744)
    tile = GemmTile(208, 64, 64, persistent=132)
    request = Request(instruction="wgmma")
    points = {
        rows: point_of(spec, machine, Candidate(replace(tile, raster_group=rows), request))
        for rows in (1, 4)
    }
    plans = {rows: point.candidate.plan(spec, machine) for rows, point in points.items()}
    assert points[4].predicted_us == plans[4].predicted_us
    assert points[1].predicted_us > 1.1 * plans[1].predicted_us
    few = point_of(Gemm(512, 512, 512), machine, Candidate(GemmTile(128, 128, 64), request))
    assert few.predicted_us == few.candidate.plan(Gemm(512, 512, 512), machine).predicted_us
