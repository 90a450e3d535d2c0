"""Proofs on disk: what was proved once is known, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

import pipeliner
from pipeliner.proof import kept
from pipeliner.proof.kept import as_json, from_json, proof_of
from pipeliner.proof.prove import prove
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

from ..emulator.raw import lower
from .rings import ring


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIPELINER_CACHE", str(tmp_path))
    return tmp_path / "proofs"


def never(*_args: Any, **_options: Any) -> NoReturn:
    raise AssertionError("proved again")


@pytest.mark.parametrize("mistake", ["", "early release", "unordered"])
def test_a_proof_is_read_from_disk_as_it_was(
    mistake: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = lower(ring(mistake=mistake, depth=2))
    first = proof_of(lowered)
    assert len(list(folder.glob("*.json"))) == 1
    monkeypatch.setattr(kept, "prove", never)
    again = proof_of(lowered)
    assert again == first
    assert again is not first
    assert again.statement == first.statement
    assert from_json(json.loads(json.dumps(as_json(first)))) == first


def test_so_is_one_of_ops_that_have_reasons() -> None:
    """Statements of pipelined kernels have origins, of which some say why they are there."""
    schedule = schedule_gemm(Gemm(m=32, n=32, k=64), GemmTile(32, 32, 32))
    found = prove(pipeliner.build(schedule, "a100", depth=2, prove=False).lowered)
    (kernel,) = found.kernels
    assert kernel.beyond is not None
    assert kernel.beyond.hazard.site.origin is not None
    assert from_json(json.loads(json.dumps(as_json(found)))) == found


def test_another_kernel_or_another_prover_is_proved_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof_of(lower(ring(depth=2)))
    proof_of(lower(ring(depth=3)))
    monkeypatch.setattr(kept, "_sources", lambda: "edited")
    proof_of(lower(ring(depth=2)))
    assert len(list(folder.glob("*.json"))) == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"is": "Path"}', '{"is": "Proof"}'])
def test_a_damaged_file_is_no_proof(text: str, folder: Path) -> None:
    lowered = lower(ring(depth=2))
    first = proof_of(lowered)
    (file,) = folder.glob("*.json")
    file.write_text(text)
    assert proof_of(lowered) == first
    assert from_json(json.loads(file.read_text())) == first


def test_what_there_was_no_time_for_is_not_kept(folder: Path) -> None:
    assert proof_of(lower(ring(tiles=2, steps=4)), seconds=0.0).ok
    assert not folder.exists()


def test_the_oldest_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST", 1)
    proof_of(lower(ring(depth=2)))
    (first,) = folder.glob("*.json")
    proof_of(lower(ring(depth=3)))
    assert [file for file in folder.glob("*.json") if file != first]
    assert not first.exists()


def test_without_a_folder_each_proof_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PIPELINER_CACHE", str(tmp_path / "file"))
    lowered = lower(ring(depth=2))
    assert proof_of(lowered) is prove(lowered)
