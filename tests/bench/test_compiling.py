"""Kernels compiled ahead, in processes side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeliner.bench import Contender, contenders
from pipeliner.bench.problems import OwnKernel
from pipeliner.measuring import Builder, workers_for
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate, default_candidate
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.targets import cuda_target
from tests.refusals import the

from .recipes import Fatal, Refused

GEMM = Gemm(64, 64, 64)


def own(depth: int) -> OwnKernel:
    return OwnKernel(GEMM, cuda_target("a100"), Request(depth=depth), GemmTile(64, 64, 32))


def test_workers_leave_a_core() -> None:
    assert [workers_for(cores) for cores in (1, 2, 16)] == [1, 1, 15]


def test_the_tile_is_that_of_the_model_where_none_is_asked() -> None:
    found = contenders(GEMM, cuda_target("a100"), Request(depth=2), peers=("cublas",))
    ours, plain, library = found.contenders
    tile = default_candidate(GEMM, cuda_target("a100")).tile
    assert ours.make.of() == Candidate(tile, Request(depth=2))
    assert plain.make.of() == Candidate(tile, Request(depth=1))
    assert library.candidate is None


@pytest.mark.slow
@pytest.mark.nvcc
def test_kernels_come_back_as_libraries() -> None:
    builder = Builder(1)
    made = [
        Contender(name, make, "float32", slack=2.0).made_by(builder, GEMM)
        for name, make in (("ours", own(2)), ("refused", Refused()), ("dies", Fatal()))
    ]
    built, refused, died = (one() for one in made)
    assert (built.name, built.failure, built.out, built.slack) == (GEMM.name, "", "float32", 2.0)
    assert built.detail == own(2).kernel()[1]
    assert built.candidate == own(2).of()
    assert built.detail.startswith("64x64x32, depth 2, ")
    assert Path(built.path).read_bytes()[:4] == b"\x7fELF"
    assert refused.failure == "nvcc said no"
    assert the("worker.died", [died.failure])["how"] == "exit code 3"
    builder.close()
    assert not Path(built.path).exists()
