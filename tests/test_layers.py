"""Each layer imports only those before it; nothing under schedules/ pipelines by hand."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the bottom up; a name stands for a module or a package of pipeliner.
LAYERS = [
    {
        "diagnostics",
        "errors",
        "reason",
        "knobs",
        "versions",
        "plan",
        "kernel",
        "released",
        "request",
        "machine",
        "targets",
        "nvcc",
        "machine_code",
        "origin",
        "condensed",
        "records",
        "workers",
    },
    {"cost", "emulator"},
    {"passes"},
    {"schedules"},
    {
        "candidate",
        "recorded",
        "measured",
        "without_driver",
        "compiled",
        "api",
        "building",
        "refined",
        "shrunk",
        "accuracy",
        "tolerance",
        "accessed",
        "ownership",
        "cuda_lines",
    },
    {"sampling", "magnitudes", "compared", "subjects"},
    {"inspect", "verification", "timeline", "doctor", "peers", "why", "edited", "reproducer"},
    {"mutation"},
    {"bench"},
    {"tuning"},
    {"experiments", "meta", "relax"},
    {"report"},
    {"calibrate", "logs"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

SOURCES = [
    *(path for path in (ROOT / "pipeliner").rglob("*.py") if not path.is_symlink()),
    *(ROOT / "passes").rglob("*.py"),
    *(ROOT / "schedules").rglob("*.py"),
]
MODULES = sorted(
    {path for path in SOURCES if not any(parent.is_symlink() for parent in path.parents)}
)


def dotted(path: Path) -> list[str]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return list(parts[1:]) if parts[0] == "pipeliner" else list(parts)


def imported(path: Path) -> list[tuple[int, str]]:
    """Line and top-level name inside pipeliner of every import of our own, at import time."""
    here = dotted(path)
    package = here[:-1]
    found = []
    tree = ast.parse(path.read_text())
    late = {id(node) for function in functions(tree) for node in ast.walk(function)}
    typing = {id(node) for block in type_checking(tree) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in typing or (id(node) in late and here[0] in LAYERS[0]):
            continue
        if isinstance(node, ast.Import):
            found += [
                (node.lineno, alias.name.split(".")[1])
                for alias in node.names
                if alias.name.startswith("pipeliner.")
            ]
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = [*base, *(node.module.split(".") if node.module else [])]
            names = target[:1] or [alias.name for alias in node.names]
            found += [(node.lineno, name) for name in names]
    return found


def functions(tree: ast.AST) -> list[ast.AST]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def type_checking(tree: ast.AST) -> list[ast.AST]:
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING"
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: "/".join(dotted(path)))
def test_imports_go_down(path: Path) -> None:
    own = dotted(path)[0]
    if own == "__init__":
        return
    assert own in LEVEL, f"{own} has no layer: add it to LAYERS"
    for line, name in imported(path):
        assert LEVEL[name] <= LEVEL[own], f"{path}:{line}: {own} must not import {name}"


def test_the_check_sees_imports() -> None:
    assert "passes" in {name for _, name in imported(ROOT / "pipeliner" / "compiled.py")}
    assert "errors" in {name for _, name in imported(ROOT / "schedules" / "matmul.py")}


FORBIDDEN = re.compile(
    r"cp[._]async|commit_group|wait_group|syncthreads|mbarrier|async_stages|ring"
)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "schedules").glob("*.py")), ids=lambda path: path.name
)
def test_schedules_are_plain(path: Path) -> None:
    """No asynchronous copy, wait, barrier or ring index: only names in code count, not prose."""
    tree = ast.parse(path.read_text())
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    assert not {name for name in names if FORBIDDEN.search(name) and name not in ALLOWED}


ALLOWED = {"rings", "mbarriers"}  # fields of what recognition finds and of a plan


CUDA_CONTROL = re.compile(r"for\s*\((?:int|unsigned|auto)\b|__syncthreads\s*\(|bar\.sync")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: "/".join(dotted(path)))
def test_no_cuda_text_with_a_loop_or_barrier(path: Path) -> None:
    """Kernels are IR: no string of ours is CUDA C++ or PTX that loops or synchronises."""
    if path.name == "inspect.py":  # looks for these words in what TVM printed
        return
    tree = ast.parse(path.read_text())
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert not [text for text in strings if CUDA_CONTROL.search(text)]
