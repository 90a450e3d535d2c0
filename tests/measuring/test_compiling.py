"""Libraries of candidates that other processes compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeliner.measuring import Compiler
from pipeliner.schedules.suites import suite
from pipeliner.targets import cuda_target
from tests.logs.made import candidate
from tests.refusals import says, the

SPEC = suite("gemm")["sq1024"]
TARGET = cuda_target("sm_90a")


@pytest.fixture(scope="module")
def compiler():
    made = Compiler(TARGET, 1, disassemble=True)
    yield made
    made.close()


@pytest.mark.nvcc
def test_a_library_comes_with_what_ptxas_said(compiler) -> None:
    found = compiler.compile(SPEC, candidate("mma/cp_async 64x64x32 d2"))
    assert (found.failure, found.name) == ("", "gemm_1024x1024x1024_float16_nt")
    assert 32 <= found.resources["registers"] <= 255
    assert Path(found.path).read_bytes()[:4] == b"\x7fELF"
    assert found.loop is not None


def test_what_is_refused_says_why(compiler) -> None:
    found = compiler.compile(SPEC, candidate("mma/cp_async 256x256x64 d6"))
    assert says("measure.not_compiled", [found.failure])


@pytest.mark.deep(
    "tests/bench/test_compiling.py; what goes wrong in tests/measuring/test_workers.py"
)
@pytest.mark.nvcc
def test_a_dead_process_is_replaced_and_its_files_go() -> None:
    compiler = Compiler(TARGET, 1)
    first = compiler.compile(SPEC, candidate("mma/cp_async 64x64x32 d2"))
    assert Path(first.path).exists()
    compiler._pool._workers[0]._process.kill()
    second = compiler.compile(SPEC, candidate("mma/cp_async 64x64x32 d3"))
    if second.failure:
        assert the("worker.died", [second.failure])["how"] == "SIGKILL"
        assert not compiler.compile(SPEC, candidate("mma/cp_async 64x64x32 d3")).failure
    compiler.close()
    assert not Path(first.path).exists()
