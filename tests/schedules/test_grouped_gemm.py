"""Grouped GEMMs: what they compute, their schedule, which tile is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
import tvm

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.machine import H200
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate, workload_key, workload_of
from pipeliner.schedules import GemmTile, GroupedGemm, RowTile, default_tile, schedule_grouped
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.smaller import Needs, smaller
from pipeliner.tuning.space import point_of
from pipeliner.values.facts import KernelInfo
from pipeliner.verification.accuracy import poisoned, worst_error
from tests.refusals import gives, refused

from .test_attention_tiles import comparable
from .test_gemm import on_cpu, prefix

SIZES = {
    "even": (GroupedGemm(3, 64, 64, 128, "float16"), RowTile(16, 32)),
    "persistent": (GroupedGemm(4, 150, 128, 64), RowTile(32, 64, 2, persistent=5)),
    "ragged": (GroupedGemm(5, 133, 150, 100), RowTile(32, 64)),
    "one": (GroupedGemm(1, 9, 24, 16), RowTile(16, 16)),
}

BY_TMA: Final[dict[str, Any]] = {"instruction": "wgmma", "mechanism": "tma"}

OFFSETS = {
    "all rows in one": [0, 0, 200, 200],
    "no rows": [0, 0, 0, 0],
    "whole tiles and a few": [0, 7, 71, 135],
}


def off(what: GroupedGemm, got: Any, inputs: Any) -> float:
    """The largest error over what is allowed; infinite where a row of no group was written."""
    got, last = got.astype("float64"), int(inputs[2][-1])
    if not np.isnan(got[last:]).all():
        return np.inf
    exact, magnitude = what.reference(*inputs)[:last], what.magnitude(*inputs)[:last]
    return worst_error(what, got[:last], exact, magnitude) if last else 0.0


def without_masks(info: KernelInfo) -> KernelInfo:
    """As ``comparable``, without the words of the condition that keeps TMA from the store."""
    (store,) = info.stores
    assert gives(store.no_tma, "store.mask")
    return replace(comparable(info), stores=(replace(store, no_tma=""),))


def given(what: GroupedGemm, offsets: list[int]) -> Any:
    return (*what.inputs(2)[:2], np.array(offsets, "int32"))


@pytest.mark.parametrize("size", SIZES)
def test_tiles_compute_what_they_should(size: str) -> None:
    what, tile = SIZES[size]
    what = replace(what, dtype="float16", out="float32")  # LLVM has no bfloat16 on every CPU
    function = on_cpu(schedule_grouped(what, tile).mod["main"])
    for seed in range(3):
        out = tvm.runtime.tensor(poisoned((what.m, what.n), "float32"))
        function(*map(tvm.runtime.tensor, what.inputs(seed)), out)
        assert off(what, out.numpy(), what.inputs(seed)) <= 1


def test_the_plain_function_computes_it_too() -> None:
    what = GroupedGemm(4, 30, 20, 16, "float16")
    out = tvm.runtime.tensor(poisoned((30, 20), "float16"))
    tvm.compile(what.function(), target="llvm")(*map(tvm.runtime.tensor, what.inputs(4)), out)
    assert off(what, out.numpy(), what.inputs(4)) <= 1


def test_the_reference_is_the_definition() -> None:
    what = GroupedGemm(3, 5, 2, 4, "float16")
    a, b, _ = what.inputs(1)
    made = what.reference(a, b, [0, 2, 2, 4])
    for row, expert in ((0, 0), (1, 0), (2, 2), (3, 2)):
        np.testing.assert_allclose(made[row], b[expert].astype("f8") @ a[row].astype("f8"))
    assert np.isnan(made[4]).all()


@pytest.mark.parametrize("persistent", [None, 3])
def test_a_kernel_takes_any_groups(persistent: int | None) -> None:
    """Warp-specialised, by TMA from rows that kernels before wrote down; in any order."""
    what, tile = GroupedGemm(3, 200, 64, 128), RowTile(64, 64, 2, persistent)
    kernel = pipeliner.build(schedule_grouped(what, tile), "h200", **BY_TMA)
    assert [role.name for role in kernel.plan.roles] == ["consumer", "producer"]
    for name, offsets in OFFSETS.items():
        inputs = given(what, offsets)
        done = kernel.emulate(*inputs, poisoned((what.m, what.n), "bfloat16"))
        assert not done.hazards, name
        assert off(what, done.outputs["C"], inputs) <= 1, name


def test_older_gpus_do_it_without_roles() -> None:
    what = GroupedGemm(3, 100, 64, 128, "float16")
    kernel = pipeliner.build(schedule_grouped(what, RowTile(64, 64)), "a100")
    done = kernel.emulate(*what.inputs(5), poisoned((what.m, what.n), "float16"))
    assert not done.hazards
    assert off(what, done.outputs["C"], what.inputs(5)) <= 1


@pytest.mark.parametrize("size", ["large", *SIZES])
def test_the_closed_form_is_what_recognition_finds(size: str) -> None:
    what, tile = SIZES.get(size, (GroupedGemm(64, 8192, 2048, 2048), RowTile(128, 256)))
    _, facts = recognise(prefix(schedule_grouped(what, tile).mod))
    assert without_masks(facts.info) == without_masks(kernel_info(what, tile))


def test_wrong_experts_are_beyond_the_bound() -> None:
    what = GroupedGemm(3, 64, 32, 64, "float16")
    inputs = given(what, [0, 20, 40, 64])
    wrong = what.reference(*given(what, [0, 20, 41, 64])).astype("float16")
    assert (
        off(what, what.reference(*inputs).astype("float16"), inputs) <= 1 < off(what, wrong, inputs)
    )


def test_all_tiles_have_a_slot() -> None:
    """Also where each group ends a row behind a tile, and in runs of a multiple."""
    what = GroupedGemm(5, 5 * 65, 64, 64)
    assert what.slots(64) == 5 + 5
    assert what.slots(64, 8) == 16
    for seed in range(20):
        sizes = np.diff(what.offsets(seed))
        assert (sizes >= 0).all()
        assert sizes.sum() == what.m
        assert sum(-(-size // 64) for size in sizes) <= what.slots(64)


def test_the_tile_of_the_least_predicted_time_is_taken() -> None:
    assert default_tile(GroupedGemm(8, 16384, 14336, 4096), H200).persistent == 132
    # Measured on an H200: 196.3 us, and 197.2 by 128 rows.
    assert default_tile(GroupedGemm(64, 8192, 2048, 2048), H200) == RowTile(64, 256, persistent=132)
    assert default_tile(GroupedGemm(3, 5, 16, 64), H200) == RowTile(64, 64)


def test_records_know_it() -> None:
    what, candidate = GroupedGemm(4, 4096, 4096, 64), Candidate(RowTile(128, 64), Request(depth=2))
    assert workload_of(workload_key(what)) == what
    assert point_of(what, H200, candidate).predicted_us > 0


def test_a_smaller_one_has_several_groups() -> None:
    small, cut = next(smaller(GroupedGemm(128, 65536, 1536, 2048), RowTile(128, 256), Needs(9)))
    assert (small, cut) == (GroupedGemm(4, 512, 512, 576), RowTile(128, 256))
    small, _ = next(smaller(GroupedGemm(5, 300, 200, 200), RowTile(64, 64), Needs(4)))
    assert small == GroupedGemm(5, 300, 72, 200)


def test_what_makes_no_sense() -> None:
    with refused("grouped.dtype", WorkloadError, value="float32"):
        GroupedGemm(2, 64, 64, 64, dtype="fp32")
    with refused("grouped.experts", WorkloadError, experts=257, most=256):
        GroupedGemm(257, 64, 64, 64)
    with refused("tile.kind", WorkloadError):
        scheduled(GroupedGemm(2, 64, 64, 64), GemmTile(64, 64, 64))


def test_bfloat16_is_the_usual_type() -> None:
    assert GroupedGemm(2, 8, 8, 8).inputs()[0].dtype == ml_dtypes.bfloat16
