"""The table of all sentences, put together from those of the subjects; each code stands once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .lab import commands, constants, experiments, files, peers, records, targets, workloads
from .planning import (
    choice,
    code_size,
    copies,
    depths,
    loops,
    mapping,
    matmuls,
    mechanisms,
    obeyed,
    plans,
    requests,
    schedule,
    sync,
    tensor_maps,
    tiles,
)
from .running import (
    emulator,
    hazards,
    kernels,
    mutation,
    proofs,
    ptx,
    sampling,
    torch_calls,
    verification,
)

TEXT: Final = "text"
"""The code of a reason of which only words are known."""


def _together(*tables: Mapping[str, str]) -> dict[str, str]:
    """All ``tables`` as one; ValueError: two have the same code."""
    found: dict[str, str] = {TEXT: "{text}"}
    for table in tables:
        twice = sorted(found.keys() & table.keys())
        if twice:
            raise ValueError(f"two sentences have the code {twice[0]!r}")
        found.update(table)
    return found


SENTENCES: Final[Mapping[str, str]] = _together(
    choice.SENTENCES,
    code_size.SENTENCES,
    commands.SENTENCES,
    constants.SENTENCES,
    copies.SENTENCES,
    depths.SENTENCES,
    emulator.SENTENCES,
    experiments.SENTENCES,
    files.SENTENCES,
    hazards.SENTENCES,
    kernels.SENTENCES,
    loops.SENTENCES,
    matmuls.SENTENCES,
    mapping.SENTENCES,
    mechanisms.SENTENCES,
    mutation.SENTENCES,
    obeyed.SENTENCES,
    peers.SENTENCES,
    plans.SENTENCES,
    proofs.SENTENCES,
    ptx.SENTENCES,
    records.SENTENCES,
    requests.SENTENCES,
    sampling.SENTENCES,
    schedule.SENTENCES,
    sync.SENTENCES,
    targets.SENTENCES,
    tensor_maps.SENTENCES,
    tiles.SENTENCES,
    torch_calls.SENTENCES,
    verification.SENTENCES,
    workloads.SENTENCES,
)
"""Template by code, as ``formatting.sentence`` fills in."""
