"""Libraries that other processes compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeliner.logs.building import Builders
from pipeliner.schedules.suites import suite
from pipeliner.targets import cuda_target
from tests.refusals import says, the

from .made import candidate

SPEC = suite("gemm")["sq1024"]
TARGET = cuda_target("sm_90a")


@pytest.fixture(scope="module")
def builders():
    with Builders(TARGET, 1) as made:
        yield made


def built(builders, key):
    """The library of a candidate that is the only one in line."""
    numbers = builders.submit(SPEC, [candidate(key)])
    number, library = builders.next(120.0)
    assert [number] == list(numbers)
    return library


@pytest.mark.nvcc
def test_a_library_comes_with_what_ptxas_said(builders) -> None:
    found = built(builders, "mma/cp_async 64x64x32 d2")
    assert (found.failure, found.name) == ("", "gemm_1024x1024x1024_float16_nt")
    assert 32 <= found.resources["registers"] <= 255
    assert Path(found.path).read_bytes()[:4] == b"\x7fELF"


def test_what_is_refused_says_why(builders) -> None:
    found = built(builders, "mma/cp_async 256x256x64 d6")
    assert says("measure.not_compiled", [found.failure])


@pytest.mark.slow
@pytest.mark.nvcc
def test_processes_compile_and_a_dead_one_is_replaced() -> None:
    keys = ["mma/cp_async 64x64x32 d2", "mma/cp_async 64x64x32 d3", "mma/cp_async 256x256x64 d6"]
    with Builders(TARGET, 1) as builders:
        numbers = builders.submit(SPEC, [candidate(key) for key in keys])
        first, library = builders.next(120.0)
        assert (first, library.failure) == (0, "")
        assert Path(library.path).exists()
        builders._compiler._pool._workers[0]._process.kill()
        rest = dict(builders.next(120.0) for _ in numbers[1:])
        assert not rest[1].failure or the("worker.died", [rest[1].failure])["how"] == "SIGKILL"
        assert says("measure.not_compiled", [rest[2].failure])
        assert builders.next(0.0) is None
    assert not Path(library.path).exists()
