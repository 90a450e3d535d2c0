"""Kernels compiled ahead, in processes side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeliner import bench
from pipeliner.bench import Contender, Problem
from pipeliner.bench.problems import OwnKernel
from pipeliner.errors import ToolError
from pipeliner.measuring import workers_for
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, conv2d
from pipeliner.targets import cuda_target
from tests.refusals import refused

from .recipes import Fatal, Refused

GEMM = Gemm(64, 64, 64)


def problem(*makes: object) -> Problem:
    made = [Contender(f"number {at}", make, "float16") for at, make in enumerate(makes)]
    return Problem(GEMM, tuple(made))


def own(depth: int) -> OwnKernel:
    return OwnKernel(GEMM, cuda_target("a100"), Request(depth=depth), GemmTile(64, 64, 32))


def test_workers_leave_a_core() -> None:
    assert [workers_for(cores) for cores in (1, 2, 16)] == [1, 1, 15]


@pytest.mark.parametrize("workers", [1, 8])
def test_little_is_compiled_at_its_turn(workers: int) -> None:
    problems = [problem(own(1), *([own(2)] if workers == 1 else []))]
    said: list[str] = []
    with bench.compiled_ahead(problems, said.append, workers) as ready:
        assert ready == problems
    assert said == []


@pytest.mark.slow
@pytest.mark.nvcc
def test_kernels_come_back_as_libraries() -> None:
    def library() -> tuple[None, str]:
        return None, "no recipe"

    conv = conv2d(1, 8, 8, 8, 16, 3, 3, pad=1)
    convolution = OwnKernel(conv, cuda_target("a100"), Request())
    said: list[str] = []
    problems = [
        problem(own(2), library, Refused()),
        Problem(conv, (Contender("c", convolution, ""),)),
    ]
    with bench.compiled_ahead(problems, said.append, 2) as ready:
        first, same, refused = ready[0].contenders
        built, other = (contender.make.__self__ for contender in (first, ready[1].contenders[0]))
        assert (built.name, built.failure) == (GEMM.name, "")
        assert built.detail == own(2).kernel()[1]
        assert built.detail.startswith("64x64x32, depth 2, ")
        assert (other.name, "registers" in other.detail) == (conv.name, True)
        assert Path(built.path).read_bytes()[:4] == Path(other.path).read_bytes()[:4] == b"\x7fELF"
        assert same.make is library
        with pytest.raises(ToolError, match=r"^nvcc said no$"):
            refused.make()
    assert not Path(built.path).exists()
    assert said[-1] == "compiled 3 of 3 kernels"


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.deep("tests/logs/test_building.py, by the same pool")
def test_a_dead_worker_costs_its_kernel() -> None:
    problems = [problem(Fatal(), own(2), Fatal())]
    said: list[str] = []
    with bench.compiled_ahead(problems, said.append, 2) as ready:
        for at in (0, 2):
            with refused("worker.died", ToolError, how="exit code 3"):
                ready[0].contenders[at].make()
        built = ready[0].contenders[1].make.__self__
        assert Path(built.path).read_bytes()[:4] == b"\x7fELF"
    assert said[-1] == "compiled 3 of 3 kernels"
