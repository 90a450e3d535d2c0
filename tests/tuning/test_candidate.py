"""A candidate and its keys as text: what records know them by."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pipeliner.errors import RecordsError, WorkloadError
from pipeliner.plan.request import Request
from pipeliner.records.candidate import (
    Candidate,
    default_candidate,
    is_workload,
    machine_key,
    versions_key,
    workload_key,
    workload_of,
)
from pipeliner.schedules import (
    ConvInputGrad,
    ConvTile,
    ConvWeightGrad,
    DepthwiseTile,
    Gemm,
    GemmTile,
    conv1d,
    conv2d,
)
from tests.refusals import refused

CONV = conv2d(4, 14, 14, 32, 64, 3, 3, stride=2, pad=(0, 1, 0, 1), dtype="bf16")
WORKLOADS = {
    "gemm": Gemm(512, 256, 128),
    "batched": Gemm(64, 64, 64, batch=3, dtype="int8", layout="TN"),
    "open": Gemm(None, 64, 64, epilogue=("bias", "gelu")),
    "conv2d": dataclasses.replace(CONV, epilogue=("relu",)),
    "conv1d": conv1d(2, 30, 8, 8, 3),
    "input gradient": ConvInputGrad(CONV),
    "weight gradient": ConvWeightGrad(CONV),
}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_workload_comes_back_from_its_key(name):
    spec = WORKLOADS[name]
    assert workload_of(workload_key(spec)) == spec
    assert is_workload(spec)


def test_keys_tell_workloads_apart():
    assert len({workload_key(spec) for spec in WORKLOADS.values()}) == len(WORKLOADS)
    assert not is_workload(Gemm(64, 64, 64).function())


def test_a_key_names_no_field_at_its_default():
    """Else a field that a later version adds would part all records from their workloads."""
    assert workload_key(Gemm(64, 32, 16, dtype="float16")) == workload_key(Gemm(64, 32, 16))
    assert "batch" not in workload_key(Gemm(64, 32, 16))
    assert '"batch": 2' in workload_key(Gemm(64, 32, 16, batch=2))


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate(GemmTile(128, 256, 64)),
        Candidate(
            GemmTile(128, 256, 64, persistent=132, why="a reason"), Request(cluster=2, store="tma")
        ),
        Candidate(ConvTile(64, 64, 32, fold=True, phases=4), Request(depth=3, warps=(2, 4))),
        Candidate(GemmTile(64, 64, 32), Request(depth={"A_shared": 3, "B_shared": 2})),
        Candidate(DepthwiseTile(4, 2, 64)),
        Candidate(GemmTile(64, 64, 64, reordered=True)),
    ],
    ids=["plain", "persistent", "conv", "depths", "depthwise", "reordered"],
)
def test_a_candidate_comes_back_from_its_text(candidate):
    assert Candidate.from_json(candidate.to_json()) == candidate
    assert "why" not in json.loads(candidate.to_json())["tile"]


def test_a_record_from_before_a_field_was_is_read():
    """Products have been reordered since 2026-11-28."""
    kept = json.loads(Candidate(GemmTile(64, 64, 64, splits=2)).to_json())
    del kept["tile"]["reordered"]
    assert Candidate.from_json(json.dumps(kept)) == Candidate(GemmTile(64, 64, 64, splits=2))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"tile": {"kind": "Tile"}, "request": {}}', '{"tile": 3, "request": {}}'],
    ids=range(5),
)
def test_what_is_no_candidate_is_refused(text):
    with refused("tune.candidate", RecordsError):
        Candidate.from_json(text)
    with refused("tune.workload", RecordsError):
        workload_of(text)


def test_a_tile_of_another_kind_is_refused():
    with refused("tile.kind", WorkloadError, kind="ConvTile"):
        Candidate(ConvTile(64, 64, 32)).function(WORKLOADS["gemm"])
    with refused("tile.kind", WorkloadError, kind="GemmTile"):
        Candidate(GemmTile(64, 64, 32)).function(CONV)


def test_the_default_is_the_models_choice():
    assert default_candidate(Gemm(4096, 4096, 4096), "h100").tile.m % 64 == 0
    asked = default_candidate(Gemm(4096, 4096, 4096), "h100", Request(instruction="mma"))
    assert asked.request.instruction == "mma"


def test_machines_and_versions_are_told_apart():
    assert machine_key("h100") == "h100" != machine_key("h200")
    assert "pipeliner 0.1.0, tvm 0.27" in versions_key()
