"""Kernels loaded or built: what a cache that is not to be used, or is damaged, makes of a call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeliner.kernel.building import build_with
from pipeliner.plan.request import Request
from pipeliner.schedules import (
    Attention,
    AttentionTile,
    Gemm,
    GemmTile,
    schedule_attention,
    schedule_gemm,
)
from pipeliner.targets import cuda_target
from pipeliner.torch import libraries, said
from pipeliner.torch.workspaces import (
    Workspace,
    with_workspaces,
    workspaces_as_text,
    workspaces_of,
    workspaces_of_text,
)

GEMM = Gemm(32, 64, 256, layout="TN")
SPLIT = GemmTile(32, 32, 32, splits=2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PIPELINER_CACHE", str(tmp_path))
    monkeypatch.delenv("PIPELINER_DB", raising=False)
    libraries.kernel_cache.cache_clear()
    said.forget()
    yield tmp_path / "torch"
    monkeypatch.undo()
    libraries.kernel_cache.cache_clear()
    said.forget()


def kernel() -> Any:
    return build_with(schedule_gemm(GEMM, SPLIT), cuda_target("a100"), Request())


def test_partial_sums_are_an_argument() -> None:
    whole, given = kernel(), with_workspaces(kernel())
    found = workspaces_of(given.function, 3)
    assert found == (Workspace((2, 32, 64), "float32"),)
    assert workspaces_of_text(workspaces_as_text(found)) == found
    a, b = GEMM.inputs()
    c = np.zeros((32, 64), np.float16)
    run = given.emulate(a, b, c, np.zeros((2, 32, 64), np.float32))
    assert not run.hazards
    assert np.array_equal(run.outputs["C"], whole.emulate(a, b, c).outputs["C"])


def test_what_splits_of_keys_have_is_an_argument() -> None:
    attention = Attention(1, 2, 1, 128, 16)
    tiled = schedule_attention(attention, AttentionTile(16, 32, splits=2))
    whole = build_with(tiled, cuda_target("a100"), Request())
    given = with_workspaces(whole)
    found = workspaces_of(given.function, 4)
    assert [one.shape for one in found] == [(2, 2, 16), (2, 2), (2, 2)]
    inputs = attention.inputs()
    out = np.zeros(attention.shapes()[-1], np.float16)
    run = given.emulate(*inputs, out, *(np.zeros(one.shape, np.float32) for one in found))
    assert not run.hazards
    assert np.array_equal(run.outputs["Out"], whole.emulate(*inputs, out).outputs["Out"])


def test_a_kernel_without_any_is_itself() -> None:
    plain = build_with(schedule_gemm(GEMM, GemmTile(32, 32, 32)), cuda_target("a100"), Request())
    assert with_workspaces(plain) is plain


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("megabytes", "mode"), [("1024", 0o777), ("many", 0o700)])
def test_a_cache_that_is_not_to_be_used_is_said(
    folder: Path, megabytes: str, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("PIPELINER_CACHE_MB", megabytes)
    with pytest.warns(said.FallbackWarning, match="kernels are not kept on disk"):
        assert libraries.kernel_cache() is None


class Exported:
    """A kernel of which only a library is wanted."""

    def export(self, path: Path) -> None:
        path.write_bytes(b"machine code")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built and loaded, in order, without a compiler and a GPU."""
    seen: list[str] = []

    def build(spec: Gemm, target: Any, candidate: Any) -> Any:
        seen.append("built")
        made = libraries.LoadedKernel(print, (Workspace((2, 3), "float32"),), "built")
        return Exported(), made

    def load(path: str) -> dict[str, Any]:
        seen.append("loaded")
        if Path(path).read_bytes() != b"machine code":
            raise RuntimeError("cannot open shared object file")
        return {GEMM.name: print}

    monkeypatch.setattr(libraries, "built", build)
    monkeypatch.setattr(libraries.tvm.runtime, "load_module", load)
    return seen


@pytest.mark.usefixtures("folder")
def test_a_second_process_loads_what_the_first_built(built: list[str]) -> None:
    target = cuda_target("a100")
    first, second = (libraries.loaded(GEMM, target) for _ in range(2))
    assert built == ["built", "loaded"]
    assert (first.source, second.source) == ("built", "disk")
    assert first.workspaces == second.workspaces
    assert libraries.loaded(GEMM, cuda_target("h100")).source == "built"


@pytest.mark.filterwarnings("default")
def test_what_is_damaged_is_said_and_made_anew(folder: Path, built: list[str]) -> None:
    target = cuda_target("a100")
    libraries.loaded(GEMM, target)
    (library,) = folder.glob("*.so")
    library.write_bytes(b"another's code")
    with pytest.warns(said.FallbackWarning, match="made anew: its library is not the one"):
        assert libraries.loaded(GEMM, target).source == "built"
    assert built == ["built", "built"]
    assert libraries.loaded(GEMM, target).source == "disk"


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_loaded_is_said_and_made_anew(
    built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = cuda_target("a100")
    monkeypatch.setattr(Exported, "export", lambda self, path: path.write_bytes(b"no library"))
    libraries.loaded(GEMM, target)
    with pytest.warns(said.FallbackWarning, match="cannot open shared object"):
        assert libraries.loaded(GEMM, target).source == "built"
    assert built == ["built", "loaded", "built"]


def test_without_a_cache_each_is_built(
    built: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "kernel_cache", lambda: None)
    for _ in range(2):
        assert libraries.loaded(GEMM, cuda_target("a100")).source == "built"
    assert built == ["built", "built"]
    assert not folder.exists()
