"""Rooms import only rooms below them; nothing under schedules/ pipelines by hand."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import networkx
import pytest

from .rooms import ROOT, imports, modules, room_imports

# From the bottom up: the rooms of a line import those of lines above it, and none of their own line.
LAYERS = [
    {
        "commands",
        "diagnostics.lab",
        "diagnostics.planning",
        "diagnostics.running",
        "knobs",
        "processors",
        "markup",
    },
    {"diagnostics"},
    {"errors", "versions"},
    {"charts", "machine", "toolchain", "values"},
    {"emulator.base", "plan", "targets", "workers"},
    {"doctor", "emulator.memory", "instructions", "passes.ir"},
    {
        "emulator.launch",
        "emulator.units",
        "mechanisms",
        "passes.analysis",
        "schedules.workloads.base",
    },
    {
        "cost.usage",
        "mechanisms.stores",
        "passes.copy",
        "passes.dependence",
        "passes.prepare",
        "schedules.workloads.fused",
    },
    {"cost"},
    {"choice", "schedules.workloads"},
    {"emulator.engine", "passes.sync", "passes.threads", "schedules.tiles"},
    {"passes.fragments", "schedules.loops", "space"},
    {"schedules.channelwise", "schedules.grouped"},
    {
        "emulator.translate",
        "passes.expand",
        "passes.matmul",
        "passes.recognise",
        "passes.schedule",
        "passes.smem",
        "schedules",
    },
    {"emulator", "passes.device", "passes.map", "proof.reading", "schedules.smaller"},
    {"passes.specialise", "proof.running"},
    {"proof"},
    {"proving"},
    {"passes"},
    {"kernel"},
    {"records", "timeline"},
    {"api", "commands.shared", "explain", "relax", "torch"},
    {"verification"},
    {"measuring"},
    {"bench.vendor"},
    {"bench", "mutation"},
    {"calibrate", "report", "tuning"},
    {"experiments", "logs", "meta"},
    {"commands.lab"},
    {"commands.kernels"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = modules()
ROOMS = {module.room for module in MODULES.values() if module.name}
MOST_FILES = 15


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_imports_go_down(room: str) -> None:
    """Also late imports, and those that only types need."""
    assert room in LEVEL, f"{room} has no layer: add it to LAYERS"
    up = {other for other in room_imports()[room] if LEVEL[other] >= LEVEL[room]}
    assert not up, f"{room} must not import {up}"


def test_every_layer_is_of_rooms_that_are() -> None:
    assert set(LEVEL) == ROOMS


def test_no_two_files_import_each_other() -> None:
    graph = networkx.DiGraph([(a, b) for a, found in imports().items() for b in found])
    rings = [
        sorted(ring) for ring in networkx.strongly_connected_components(graph) if len(ring) > 1
    ]
    assert rings == []


def test_no_room_has_more_files_than_one_reads() -> None:
    rooms = [module.room for name, module in MODULES.items() if not module.is_package]
    assert {room for room in rooms if rooms.count(room) > MOST_FILES} == set()


def test_the_check_sees_imports() -> None:
    assert "passes" in room_imports()["kernel"]
    assert "errors" in room_imports()["schedules"]
    assert "machine" in room_imports()["commands.lab"]  # in a function


def readmes() -> list[Path]:
    return sorted(
        path
        for folder in ("pipeliner", "passes")
        for path in (ROOT / folder).rglob("README.md")
        if "\nImports: " in path.read_text() and not path.parent.is_symlink()
    )


@pytest.mark.parametrize("path", readmes(), ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_what_a_room_says_that_it_imports(path: Path) -> None:
    parts = path.parent.relative_to(ROOT).parts
    room = ".".join(parts[1:] if parts[0] == "pipeliner" else parts)
    line = re.search(r"^Imports: ([^.]*(?:\.\w[^.]*)*)\.$", path.read_text(), re.M)
    assert line is not None
    assert set(re.findall(r"`([\w.]+)`", line[1])) == room_imports()[room]


def test_every_room_of_passes_has_a_readme() -> None:
    rooms = {path.parent for path in (ROOT / "passes").rglob("__init__.py")}
    assert {room for room in rooms if not (room / "README.md").exists()} == set()


FORBIDDEN = re.compile(
    r"cp[._]async|commit_group|wait_group|syncthreads|mbarrier|async_stages|ring"
)


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "schedules").rglob("*.py")),
    ids=lambda path: str(path.relative_to(ROOT / "schedules")),
)
def test_schedules_are_plain(path: Path) -> None:
    """No asynchronous copy, wait, barrier or ring index: only names in code count, not prose."""
    tree = ast.parse(path.read_text())
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    assert not {name for name in names if FORBIDDEN.search(name) and name not in ALLOWED}


ALLOWED = {"rings", "mbarriers"}  # fields of what recognition finds and of a plan


CUDA_CONTROL = re.compile(r"for\s*\((?:int|unsigned|auto)\b|__syncthreads\s*\(|bar\.sync")


def test_no_cuda_text_with_a_loop_or_barrier() -> None:
    """Kernels are IR: no string of ours is CUDA C++ or PTX that loops or synchronises."""
    found = [
        (name, node.value)
        for name, module in MODULES.items()
        if name != "explain.inspect"  # looks for these words in what TVM printed
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CUDA_CONTROL.search(node.value)
    ]
    assert found == []


FILE = re.compile(r"(?<![\w./-])(?:passes|pipeliner|schedules)/[\w/]*\w\.py\b")


def test_files_that_code_speaks_of_are_there() -> None:
    """Also in comments, which no import holds to."""
    paths = [*(module.path for module in MODULES.values()), *(ROOT / "examples").glob("*.py")]
    named = {(path.name, one) for path in paths for one in FILE.findall(path.read_text())}
    assert len(named) > 20
    assert {(path, one) for path, one in named if not (ROOT / one).exists()} == set()
