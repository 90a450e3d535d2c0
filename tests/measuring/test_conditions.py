"""What nvidia-smi and torch say of the GPU."""

from __future__ import annotations

import importlib
import stat
from pathlib import Path

import pytest

conditions = importlib.import_module("pipeliner.measuring.conditions")

ANSWERS = {
    "clocks.sm": "1755",
    "driver_version,clocks.max.sm,clocks.mem,power.limit": "580.95.05, 1980, 2619, 700.00",
}


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_gpu_of_torch_is_asked_for(
    torch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cases = "\n".join(f"'--query-gpu={query}') echo '{text}';;" for query, text in ANSWERS.items())
    script = f'[ "$3 $4" = "--id GPU-1234" ] || exit 1\ncase "$1" in\n{cases}\nesac'
    install(monkeypatch, tmp_path, script)
    assert conditions.sm_clock() == 1755
    found = conditions.current_conditions()
    assert found.gpu == "a stand-in"
    assert found.versions["torch"] == torch.__version__
    assert found.versions["cuDNN"] == "9.10.2"
    assert found.versions["TVM"].startswith("0.27")
    assert found.settings == {
        "driver": "580.95.05",
        "largest SM clock, MHz": "1980",
        "memory clock, MHz": "2619",
        "power limit, W": "700.00",
    }


@pytest.mark.parametrize("script", ["exit 9", "echo '[N/A]'", ":"])
def test_it_may_not_know(
    torch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    install(monkeypatch, tmp_path, script)
    assert conditions.sm_clock() is None
    assert conditions.current_conditions().settings == {}


def test_it_may_be_missing(torch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert conditions.sm_clock() is None
    assert conditions.current_conditions().settings == {}


@pytest.mark.parametrize(
    ("number", "text"), [(91002, "9.10.2"), (90100, "9.1.0"), (8907, "8.9.7"), (None, "")]
)
def test_the_version_of_cudnn(torch, monkeypatch: pytest.MonkeyPatch, number, text) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: number)
    assert conditions.current_conditions().versions.get("cuDNN", "") == text


def test_a_cudnn_that_torch_refuses(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    def version() -> int:
        raise RuntimeError("cuDNN version incompatibility")

    monkeypatch.setattr(torch.backends.cudnn, "version", version)
    assert conditions.current_conditions().versions["cuDNN"] == "that torch cannot use"


def test_the_device_is_named(torch) -> None:
    assert conditions.device_name() == f"a stand-in, torch {torch.__version__}, CUDA 13.0"
