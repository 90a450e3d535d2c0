"""The declared grid."""

from __future__ import annotations

from collections import defaultdict

import pytest

from pipeliner.errors import WorkloadError
from pipeliner.kernel.building import pipeline_with
from pipeliner.kernel.compiled import plan_of
from pipeliner.logs import LIMIT, grid
from pipeliner.machine import H100
from pipeliner.records.names import name_of, named_candidate
from pipeliner.schedules import Gemm
from pipeliner.schedules.suites import suite
from pipeliner.schedules.workloads import conv2d
from pipeliner.targets import cuda_target
from tests.refusals import refused

from .made import candidate


@pytest.mark.part(4)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("kind", ["gemm", "conv"])
def test_every_workload_has_a_grid_of_at_most_so_many(kind, dtype) -> None:
    for spec in suite(kind, dtype).values():
        found = grid(spec, H100)
        assert 12 <= len(found) <= LIMIT
        assert len(set(found)) == len(found)
        assert [named_candidate(name_of(one, spec, H100), spec, H100) for one in found] == found
        assert grid(spec, H100, 10) == found[:10]
        depths = defaultdict(set)
        for one in found:
            depths[one.family].add(one.request.depth)
        assert max(map(len, depths.values())) >= 4


@pytest.mark.parametrize(
    "spec", [Gemm(1197, 2905, 2509), conv2d(32, 56, 56, 64, 64, 3, 3, pad=1, layout="NCHW")]
)
def test_a_name_tells_what_is_written_first(spec) -> None:
    name = "wgmma/tma 128x64x64 d4 c132 reordered"
    one = named_candidate(name, spec, H100)
    assert one.tile.reordered
    assert name_of(one, spec, H100) == name
    assert one != named_candidate(name.removesuffix(" reordered"), spec, H100)


@pytest.mark.deep("test_every_workload_has_a_grid_of_at_most_so_many")
def test_every_way_to_multiply_and_to_copy_is_in_it() -> None:
    found = {
        (one.request.instruction, one.request.mechanism)
        for dtype in ("float16", "float32")
        for spec in suite("gemm", dtype).values()
        for one in grid(spec, H100)
    }
    assert found == {
        ("wgmma", "tma"),
        ("wgmma", "cp_async"),
        ("mma", "cp_async"),
        ("mma", "register"),
        ("simt", "cp_async"),
        ("simt", "register"),
    }


@pytest.mark.parametrize("name", ["sq1024", "rn50_3x3_14", "rn50_stem"])
@pytest.mark.part(3)
def test_what_is_asked_for_is_what_is_planned(name) -> None:
    spec = {**suite("gemm"), **suite("conv")}[name]
    target = cuda_target("sm_90a")
    for one in grid(spec, H100, 30)[::6]:
        plan = plan_of(pipeline_with(one.function(spec), target, one.request))
        assert plan.matmuls[0].instruction.startswith(one.request.instruction)
        tile = plan.matmuls[0]
        assert (tile.m, tile.n, tile.k) == (one.tile.m, one.tile.n, one.tile.k)
        mechanisms = {copy.mechanism for copy in plan.copies}
        assert one.request.mechanism == "auto" or mechanisms == {one.request.mechanism}
        rings = {ring.depth for loop in plan.loops for ring in loop.rings if ring.requested}
        assert rings == {one.request.depth}


@pytest.mark.parametrize("key", ["", "mma/tma", "mma/tma 1x2x3", "mma/tma 1x2x3 d1 q7"])
def test_a_key_that_names_nothing_is_refused(key) -> None:
    with refused("log.candidate", WorkloadError):
        candidate(key)


def test_a_family_is_everything_but_the_depth() -> None:
    one = candidate("wgmma/tma 128x128x64 d4 c132")
    assert one.family == candidate("wgmma/tma 128x128x64 d3 c132").family
    assert one.family != candidate("wgmma/tma 128x128x64 d4").family
