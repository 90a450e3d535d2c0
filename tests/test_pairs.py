"""What is planned in one file and emitted in another: the two name each other where they begin."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from pipeliner.plan.request import INSTRUCTIONS, MECHANISMS

from .rooms import ROOT, Module, modules

PLANNING: Final = ("mechanisms", "instructions", "choice")
EMITTING: Final = (
    "passes.copy",
    "passes.fragments",
    "passes.matmul",
    "passes.map",
    "passes.specialise",
    "passes.sync",
)
OTHER_NAMES: Final = {"instructions.mapping": "passes.matmul.matmuls"}
"""Pairs whose files are not called the same."""

FILES: Final = modules()


def pairs() -> dict[str, str]:
    """The file that emits, of each file that plans; most have the same name."""
    planning = {name: one for name, one in FILES.items() if one.room in PLANNING and "." in name}
    same = {
        plan: f"{room}.{plan.partition('.')[2]}"
        for plan in planning
        for room in EMITTING
        if f"{room}.{plan.partition('.')[2]}" in FILES
    }
    return same | OTHER_NAMES


def beginning(module: Module) -> str:
    """The first line of its docstring, and the paragraph behind it."""
    text = ast.get_docstring(module.tree) or ""
    return "\n\n".join(text.split("\n\n")[:2])


def unnamed(plan: str, emit: str) -> list[str]:
    """The files of a pair that do not name the other one where they begin."""
    two = (FILES[plan], FILES[emit])
    paths = [module.path.relative_to(ROOT).as_posix() for module in two]
    return [paths[at] for at in (0, 1) if f"``{paths[1 - at]}``" not in beginning(two[at])]


@pytest.mark.parametrize(("plan", "emit"), sorted(pairs().items()))
def test_a_pair_names_each_other(plan: str, emit: str) -> None:
    assert unnamed(plan, emit) == []


def test_whatever_can_be_asked_for_has_a_pair() -> None:
    names = {"mma": "mma_sync"}
    copies = {f"mechanisms.{one}" for one in MECHANISMS if one not in ("auto", "direct")}
    matmuls = {f"instructions.{names.get(one, one)}" for one in INSTRUCTIONS if one != "auto"}
    assert copies | matmuls <= pairs().keys()


def test_a_file_that_names_another_is_found() -> None:
    assert unnamed("mechanisms.tma", "passes.copy.cp_async") == [
        "pipeliner/mechanisms/tma.py",
        "passes/copy/cp_async.py",
    ]
