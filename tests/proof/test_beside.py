"""Proofs beside nvcc: made while something else compiles, stopped with it, asked for by ``build``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi

import pipeliner
from examples.known_bugs import released_before_read
from pipeliner.errors import LoweringError
from pipeliner.kernel.compiled import Kernel
from pipeliner.passes.lower import pipeline
from pipeliner.proof.kept import known
from pipeliner.proving import beside as room
from pipeliner.proving import driver
from pipeliner.proving.beside import beside, is_possible, pipelined_parts
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import cuda_target
from pipeliner.toolchain import nvcc

from ..emulator.raw import lower
from ..refusals import gives, refused
from .rings import ring

SECONDS = 60.0
COMPILE = "tvm_callback_cuda_compile"


@pytest.fixture(autouse=True)
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs beside nvcc, on as many processors as there are, kept in a folder of the test."""
    monkeypatch.setenv("PIPELINER_PROVE", "auto")
    monkeypatch.setenv("PIPELINER_CACHE", str(tmp_path))
    monkeypatch.setattr(room, "_PROCESSORS", 1)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    schedule = schedule_gemm(Gemm(m=32, n=32, k=64), GemmTile(32, 32, 32))
    return pipeliner.build(schedule, "a100", depth=2, prove=False)


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """What TVM was asked to compile, by a function in the place of its own."""
    own = tvm_ffi.get_global_func(COMPILE)
    asked: list[str] = []
    tvm_ffi.register_global_func(COMPILE, lambda text: asked.append(text) or "code", override=True)
    driver._stand_in.cache_clear()
    yield asked
    tvm_ffi.register_global_func(COMPILE, own, override=True)
    driver._stand_in.cache_clear()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def children() -> set[str]:
    """Processes that this one has started and that have not ended."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_what_takes_less_than_the_compiler_is_proved_and_kept(kernel: Kernel) -> None:
    (part,) = pipelined_parts(kernel.lowered)
    with beside(kernel.lowered) as found:
        wait_for(lambda: known(part))
    assert found.why == ""
    assert found.proofs == (known(part),)
    with beside(kernel.lowered) as again:
        pass
    assert again == found
    assert found.said == found.proofs[0].statement


def test_what_takes_longer_is_stopped_and_that_is_said(kernel: Kernel) -> None:
    before = children()
    with beside(kernel.lowered) as found:
        assert children() - before
    assert not children() - before
    assert found.proofs == ()
    assert gives(found.why, "proof.beside_nvcc")


def test_a_compiler_that_fails_stops_it(kernel: Kernel) -> None:
    before = children()
    with pytest.raises(OSError, match="no nvcc"), beside(kernel.lowered):
        raise OSError("no nvcc")
    assert not children() - before


def test_a_kernel_that_is_refuted_is_not_compiled_for_anybody() -> None:
    lowered = pipeliner.build(released_before_read(), prove=False).lowered
    (part,) = pipelined_parts(lowered)
    with refused("proof.wrong", LoweringError), beside(lowered):
        wait_for(lambda: known(part))


def test_what_was_not_pipelined_is_left_as_it_is() -> None:
    before = children()
    with beside(lower(ring(mistake="parity"))) as found:
        assert not children() - before
    assert found == room.Beside()


def test_nobody_proves_where_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_possible()
    monkeypatch.setattr(room, "_PROCESSORS", 1 << 20)
    assert not is_possible()
    monkeypatch.setattr(room, "_PROCESSORS", 1)
    monkeypatch.setenv("PIPELINER_PROVE", "never")
    assert not is_possible()


def test_build_proves_when_nvcc_compiles(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    found = room.Beside(why="seen")

    @contextmanager
    def seen(lowered: Any) -> Iterator[room.Beside]:
        yield found

    def compiles(*_text: Any, **_options: Any) -> nvcc.Compiled:
        return nvcc.Compiled(b"", "")

    monkeypatch.setattr(driver, "beside", seen)
    monkeypatch.setattr(nvcc, "compile_cuda", compiles)
    built = pipeliner.build(kernel.module, "a100")
    assert built.proving.found is None
    assert built.all_resources == ()
    assert built.proving.found is found
    other = pipeliner.build(kernel.module, "a100", prove=False)
    assert other.all_resources == ()
    assert other.proving.found is None


def test_the_driver_of_tvm_proves_what_it_compiles(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM asks for the code of a text behind the last passes; this one asks itself, without nvcc."""
    monkeypatch.setattr(driver, "tvm_compiles", lambda: True)
    proved: list[list[str]] = []

    @contextmanager
    def seen(lowered: Any) -> Iterator[room.Beside]:
        (part,) = pipelined_parts(lowered)
        proved.append(sorted(str(var.name_hint) for var in part.functions))
        assert known(part) is None
        yield room.Beside()

    monkeypatch.setattr(driver, "beside", seen)
    mod = tvm.IRModule({"gemm": schedule_gemm(Gemm(32, 32, 64), GemmTile(32, 32, 32)).mod["main"]})
    lowered_by_driver(mod, "a100")
    ask = tvm_ffi.get_global_func(COMPILE)
    assert ask("first") == "code"
    assert ask("second") == "code"
    assert compiled == ["first", "second"]
    assert len(proved) == 1


def lowered_by_driver(mod: Any, target: str) -> None:
    """Lower a module as ``tvm.compile`` does, up to CUDA."""
    run, finalize_host, finalize_device = pipeline()
    chosen = cuda_target(target)
    with chosen:
        bound = tvm.tirx.transform.BindTarget(chosen.with_host("c"))(mod)
        done = run(bound)
        on_device = {v: f for v, f in done.functions.items() if room.is_device_function(f)}
        host = {v: f for v, f in done.functions.items() if v not in on_device}
        finalize_host()(tvm.IRModule(host))
        finalize_device()(tvm.IRModule(on_device))
