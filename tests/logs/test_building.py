"""Libraries that other processes compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeliner.bench.suites import suite
from pipeliner.logs import candidate
from pipeliner.logs.building import Builders, build_library
from pipeliner.targets import cuda_target

SPEC = suite("gemm")["sq1024"]
TARGET = cuda_target("sm_90a")


@pytest.mark.nvcc
def test_a_library_comes_with_what_ptxas_said(tmp_path) -> None:
    path = tmp_path / "kernel.so"
    found = build_library(SPEC, candidate("mma/cp_async 64x64x32 d2"), TARGET, str(path))
    assert (found.failure, found.name) == ("", "gemm_1024x1024x1024_float16_nt")
    assert 32 <= found.registers <= 255
    assert path.read_bytes()[:4] == b"\x7fELF"


def test_what_is_refused_says_why() -> None:
    found = build_library(SPEC, candidate("mma/cp_async 256x256x64 d6"), TARGET, "none.so")
    assert found.failure.startswith("cannot give depth 6 to ")


@pytest.mark.slow
@pytest.mark.nvcc
def test_processes_compile_and_a_dead_one_is_replaced() -> None:
    keys = ["mma/cp_async 64x64x32 d2", "mma/cp_async 64x64x32 d3", "mma/cp_async 256x256x64 d6"]
    with Builders(TARGET, 1) as builders:
        numbers = builders.submit(SPEC, [candidate(key) for key in keys])
        first, library = builders.next(120.0)
        assert (first, library.failure) == (0, "")
        assert Path(library.path).exists()
        builders._workers[0]._process.kill()
        rest = dict(builders.next(120.0) for _ in numbers[1:])
        assert rest[1].failure in ("", "cannot compile it: the compiler's process died")
        assert rest[2].failure.startswith("cannot give depth 6 to ")
        assert builders.next(0.0) is None
    assert not Path(library.path).exists()
