"""GEMMs with statistics of rows: what they compute, their schedule, which tile is taken."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm

from pipeliner.errors import WorkloadError
from pipeliner.machine import H100, H200
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate, workload_key, workload_of
from pipeliner.schedules import GemmTile, RowGemm, RowTile, default_tile, schedule_rows
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.smaller import Needs, smaller
from pipeliner.schedules.workloads import STATISTICS, Statistic
from pipeliner.tuning.space import point_of
from pipeliner.verification.accuracy import poisoned, worst_error
from tests.refusals import refused

from .test_attention_tiles import comparable
from .test_gemm import on_cpu, prefix

SIZES = {
    "even": ((64, 128, 128), RowTile(32, 64)),
    "persistent": ((70, 128, 64), RowTile(32, 64, persistent=4)),
    "ragged": ((70, 150, 100), RowTile(32, 64)),
    "short": ((5, 9, 16), RowTile(16, 16)),
}


def off(what: RowGemm, function: Any, inputs: Any) -> float:
    """The largest error of a run on the CPU over what is allowed."""
    outs = [tvm.runtime.tensor(poisoned(*result)) for result in what.results]
    function(*map(tvm.runtime.tensor, inputs), *outs)
    made = zip(outs, what.reference(*inputs), what.magnitude(*inputs), what.results, strict=True)
    return max(worst_error(what, got.numpy(), *right, out=out[1]) for got, *right, out in made)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("size", SIZES)
def test_tiles_compute_what_they_should(size: str, statistic: Statistic) -> None:
    mnk, tile = SIZES[size]
    what = RowGemm(*mnk, statistic)
    assert off(what, on_cpu(schedule_rows(what, tile).mod["main"]), what.inputs(3)) <= 1


@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_plain_function_computes_it_too(statistic: Statistic) -> None:
    what = RowGemm(7, 30, 20, statistic)
    assert off(what, tvm.compile(what.function(), target="llvm"), what.inputs(4)) <= 1


def test_the_references_are_the_definitions() -> None:
    a, b = (x.astype("float64") for x in RowGemm(3, 5, 7).inputs(seed=1))
    row = [math.fsum(x * y for x, y in zip(a[2], other)) for other in b]
    made = {s: RowGemm(3, 5, 7, s).reference(*RowGemm(3, 5, 7).inputs(seed=1)) for s in STATISTICS}
    scale = math.sqrt(math.fsum(x * x for x in a[2]) / 7 + 1e-6)
    assert made["rms"][0][2] == pytest.approx([x / scale for x in row])
    assert made["sum"][1][:, 2] == pytest.approx([math.fsum(row), max(row)])
    assert made["lse"][1][2] == pytest.approx(math.log(math.fsum(map(math.exp, row))))


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("size", ["large", *SIZES])
def test_the_closed_form_is_what_recognition_finds(size: str, statistic: Statistic) -> None:
    mnk, tile = SIZES.get(size, ((4096, 4096, 4096), RowTile(128, 256)))
    what = RowGemm(*mnk, statistic)
    _, facts = recognise(prefix(schedule_rows(what, tile).mod))
    assert comparable(facts.info) == comparable(kernel_info(what, tile))


def test_wrong_statistics_are_beyond_the_bound() -> None:
    what = RowGemm(20, 64, 128, "lse")
    inputs = what.inputs()
    (_, exact), (_, magnitude) = what.reference(*inputs), what.magnitude(*inputs)
    for wrong in (np.roll(exact, 1), exact - math.log(2)):
        assert worst_error(what, wrong, exact, magnitude, out="float32") > 10


def test_the_tile_of_the_least_predicted_time_is_taken() -> None:
    assert default_tile(RowGemm(4096, 4096, 4096), H200) == RowTile(128, 256, 16, persistent=132)
    assert default_tile(RowGemm(5, 9, 16), H100) == RowTile(64, 64, 16)


def test_records_know_it() -> None:
    what, candidate = RowGemm(4096, 4096, 64, "sum"), Candidate(RowTile(128, 64), Request(depth=2))
    assert workload_of(workload_key(what)) == what
    assert point_of(what, H100, candidate).predicted_us > 0


def test_a_smaller_one_has_every_kind_of_tile() -> None:
    small, cut = next(smaller(RowGemm(4000, 32000, 4096), RowTile(128, 256), Needs(steps=9)))
    assert (small, cut) == (RowGemm(160, 512, 576), RowTile(128, 256))
    walked = RowTile(128, 256, persistent=132)
    small, cut = next(smaller(RowGemm(4096, 4096, 4096), walked, Needs(steps=9)))
    assert (small, cut) == (RowGemm(256, 512, 576), RowTile(128, 256, persistent=3))


def test_what_makes_no_sense() -> None:
    with refused("rows.dtype", WorkloadError, value="float32"):
        RowGemm(64, 64, 64, dtype="fp32")
    with refused("rows.statistic", WorkloadError, value="mean"):
        RowGemm(64, 64, 64, "mean")  # no Statistic
    with refused("rows.many_tiles", WorkloadError, tiles=129, most=128):
        schedule_rows(RowGemm(64, 64 * 129, 64, "sum"), RowTile(64, 64))
    with refused("tile.kind", WorkloadError):
        scheduled(RowGemm(64, 64, 64), GemmTile(64, 64, 64))
