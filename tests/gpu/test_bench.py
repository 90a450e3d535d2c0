"""The benchmark on a GPU: kernels that other processes compiled, beside the libraries."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from pipeliner.schedules.kinds import kinds

pytestmark = pytest.mark.gpu

SMALL_CONV = ["conv2d", "--n", "2", "--h", "28", "--w", "28", "--c", "64", "--k", "64"]


def bench(*argv: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "pipeliner", "bench", *argv, "--rounds", "4", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("argv", "searched"),
    [
        (["gemm", "--only", "sq1024"], "cuBLAS, every algorithm"),
        (["batched", "--only", "transposed"], "cuBLAS, every algorithm"),
        (["kinds", "--only", "dinput_1x1_s2"], "cuDNN, every engine"),
        (["kinds", "--only", "dweights_1x1_s2"], "cuDNN, every engine"),
        (["kinds", "--only", "audio_1d"], "cuDNN, every engine"),
    ],
)
def test_the_vendors_best_is_right_named_and_timed_back_to_back(
    argv: list[str], searched: str
) -> None:
    report = bench(*argv, "--peers", "best", "--hot")
    for result in report["results"]:
        assert (result["failure"], result["not_hot"]) == ("", "")
        assert 0 < result["hot_us"] < 1.2 * result["us"]
    (best,) = (one for one in report["results"] if one["contender"] == searched)
    assert re.search(r"[a-z]\w{8}", best["detail"])  # a kernel's name
    assert all(entry["hot"] > 0 for entry in report["ratios"])
    assert report["roofs"]


@pytest.mark.parametrize(
    "argv",
    [
        ["gemm", "--only", "sq1024", "--peers", "cublas", "--depth-one", "--jobs", "2"],
        ["conv", "--only", "rn50_3x3_14", "--depth-one", "--jobs", "2"],
        ["conv", "--only", "rn50_stem", "--dtype", "bf16"],
        [*SMALL_CONV, "--dtype", "tf32", "--peers", "cudnn"],
        ["gemm", "--m", "256", "--n", "256", "--k", "256", "--dtype", "int8", "--peers", "cublas"],
    ],
    ids=" ".join,
)
def test_ours_and_the_library_are_right_and_timed(argv: list[str]) -> None:
    report = bench(*argv)
    failures = [result["failure"] for result in report["results"]]
    assert failures == [""] * len(failures)
    assert all(result["us"] > 0 for result in report["results"])
    ratios = {entry["peer"]: entry["ratio"] for entry in report["ratios"]}
    assert ratios
    assert all(0.05 < ratio < 20 for ratio in ratios.values())


def test_every_kind_of_convolution_is_right_in_its_whole_size() -> None:
    report = bench("kinds", "--peers", "cudnn")
    ours = [result for result in report["results"] if result["contender"] == "pipeliner"]
    assert len(ours) == len(kinds("float16"))
    assert {one["problem"]: one["failure"] for one in ours if one["failure"]} == {}
