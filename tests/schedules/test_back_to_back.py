"""Back to back GEMMs: what they compute, their schedule, which tiles are compared and taken."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
import tvm

from pipeliner import cli
from pipeliner.errors import WorkloadError
from pipeliner.machine import H200
from pipeliner.passes.recognise.facts import recognise
from pipeliner.records.candidate import workload_key, workload_of
from pipeliner.schedules import (
    BackToBackGemm,
    GemmTile,
    RowTile,
    default_tile,
    schedule_back_to_back,
)
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.compared import compare_loops
from pipeliner.schedules.loops.back_to_back import steps_of_split
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.smaller import Needs, smaller
from pipeliner.schedules.workloads.base.epilogue import ACTIVATIONS
from pipeliner.verification.accuracy import worst_error
from tests.refusals import refused

from .test_attention_tiles import comparable
from .test_gemm import on_cpu, prefix

WIDE: Final = BackToBackGemm(16384, 4096, 128, 128)
RAGGED: Final = BackToBackGemm(70, 90, 48, 80, "silu", "bf16", "float32")


def off(what: BackToBackGemm, function: Any) -> float:
    inputs = what.inputs(seed=3)
    out = tvm.runtime.tensor(np.full(what.shapes()[-1], np.nan, what.out))
    function(*map(tvm.runtime.tensor, inputs), out)
    return worst_error(what, out.numpy(), what.reference(*inputs), what.magnitude(*inputs))


@pytest.mark.parametrize("what", [RAGGED, BackToBackGemm(64, 64, 32, 16)])
def test_the_tiled_and_the_plain_function_compute_it(what: BackToBackGemm) -> None:
    assert off(what, on_cpu(schedule_back_to_back(what, RowTile(32, 64)).mod["main"])) <= 1
    assert off(what, tvm.compile(what.function(), target="llvm")) <= 1


@pytest.mark.parametrize(("what", "splits"), [(RAGGED, 2), (BackToBackGemm(64, 200, 32, 16), 3)])
def test_columns_between_the_products_are_split(what: BackToBackGemm, splits: int) -> None:
    """Of 3 steps one split has 2 and the other 1, of 7 they have 3, 3 and 1."""
    assert (
        off(what, on_cpu(schedule_back_to_back(what, RowTile(32, 32, splits=splits)).mod["main"]))
        <= 1
    )


@pytest.mark.parametrize("tile", [RowTile(32, 32, splits=3), RowTile(32, 64, splits=3)])
def test_each_split_has_a_step(tile: RowTile) -> None:
    what = BackToBackGemm(64, 128, 32, 16)
    for made in (schedule_back_to_back, kernel_info):
        with refused("back_to_back.splits", WorkloadError, splits=3, steps=128 // tile.n):
            made(what, tile)


def test_few_rows_are_split_and_many_are_not() -> None:
    few = BackToBackGemm(2048, 4096, 128, 128)
    tile = default_tile(few, H200)
    assert tile.splits > 1
    assert -(-few.m // tile.m) * tile.splits > H200.sms * 3 / 4
    assert min(compare_loops(few, H200, splits=1).values()) > compare_loops(few, H200)[tile]
    assert default_tile(WIDE, H200).splits == 1
    assert default_tile(WIDE, H200, splits=2).splits == 2


def test_the_reference_is_the_definition() -> None:
    a, b, c = (x.astype("float64") for x in RAGGED.inputs(seed=1))
    first = [float(a[3] @ b[n]) for n in range(RAGGED.n)]
    exact = sum(x / (1 + np.exp(-x)) * c[n, 5] for n, x in enumerate(first))
    assert RAGGED.reference(*RAGGED.inputs(seed=1))[3, 5] == pytest.approx(exact)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_closed_form_is_what_recognition_finds(activation: str) -> None:
    for extents, splits in (
        ((256, 512, 64, 128), 1),
        ((70, 90, 48, 80), 1),
        ((256, 512, 64, 128), 4),
        ((70, 90, 48, 80), 2),
    ):
        what, tile = BackToBackGemm(*extents, activation), RowTile(64, 32, splits=splits)
        _, facts = recognise(prefix(schedule_back_to_back(what, tile).mod))
        assert comparable(facts.info) == comparable(kernel_info(what, tile))


def test_the_tile_of_the_least_predicted_time_is_taken() -> None:
    times = compare_loops(WIDE, H200)
    assert len(times) >= 6
    best = default_tile(WIDE, H200)
    assert times[best] == min(times.values())


def test_records_know_it_and_a_smaller_one_has_every_kind_of_tile() -> None:
    assert workload_of(workload_key(RAGGED)) == RAGGED
    what = BackToBackGemm(1000, 4000, 128, 64)
    small, cut = next(smaller(what, RowTile(128, 64), Needs(steps=5)))
    assert (small, cut) == (BackToBackGemm(232, 288, 128, 64), RowTile(128, 64))
    tile = RowTile(128, 64, splits=4)
    small, cut = next(smaller(what, tile, Needs(steps=5)))
    assert cut == tile
    assert small.n < what.n
    assert steps_of_split(small, tile) >= 5


def test_the_command_verifies_one(capsys: pytest.CaptureFixture[str]) -> None:
    shape = [
        "--m",
        "70",
        "--n",
        "90",
        "--k",
        "48",
        "--p",
        "16",
        "--tile",
        "64x32",
        "--activation",
        "silu",
    ]
    words = ["verify", "back_to_back", *shape, "--target", "a100", "--timing", "late"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith("right: back_to_back_gemm_70x90x48x16_float16_silu")


def test_what_makes_no_sense() -> None:
    with refused("back_to_back.columns", WorkloadError, name="p", value=24):
        BackToBackGemm(64, 64, 64, 24)
    with refused("back_to_back.dtype", WorkloadError, value="float32"):
        BackToBackGemm(64, 64, 64, 64, dtype="fp32")
    with refused("epilogue.step", WorkloadError, value="tanh"):
        BackToBackGemm(64, 64, 64, 64, "tanh")
    with refused("option.persistent", WorkloadError):
        scheduled(WIDE, RowTile(64, 64, persistent=4))
    with refused("tile.kind", WorkloadError):
        scheduled(WIDE, GemmTile(64, 64, 64))
    with refused("tile.kind", WorkloadError):
        kernel_info(WIDE, GemmTile(64, 64, 64))
