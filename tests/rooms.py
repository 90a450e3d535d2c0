"""The rooms of the package: which files they hold, and what each imports of the others."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOMES = {"pipeliner": "", "passes": "passes", "schedules": "schedules"}


@dataclass(frozen=True)
class Module:
    """A file of the package; ``name`` without ``pipeliner.``, ``sm.py`` of a folder: its own."""

    path: Path
    name: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def room(self) -> str:
        """The folder it lives in; a file beside them is a room of its own."""
        if self.is_package or "." not in self.name:
            return self.name
        return self.name.rpartition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    def targets(self, known: dict[str, Module]) -> set[str]:
        """The modules that it imports anywhere: at its start, late, or for their types alone."""
        package = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - node.level + 1]
                start = ".".join([*base, *(node.module or "").split(".")]).strip(".")
                for alias in node.names:
                    inner = f"{start}.{alias.name}".strip(".")
                    found.add(inner if inner in known else start)
        return {one for one in found if one in known and one}


@cache
def modules() -> dict[str, Module]:
    """Every file of the package by its name."""
    found: dict[str, Module] = {}
    for folder, home in HOMES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "pipeliner" and inner[0] in HOMES:
                continue  # links to the folders beside it
            parts = [*([home] if home else []), *inner]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(path, name)
    return found


@cache
def imports() -> dict[str, set[str]]:
    """The modules that each module imports; but not what the front door offers by name."""
    known = modules()
    return {name: module.targets(known) for name, module in known.items() if name}


@cache
def room_imports() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    known = modules()
    found: dict[str, set[str]] = {module.room: set() for module in known.values() if module.name}
    for name, targets in imports().items():
        room = known[name].room
        found[room] |= {known[one].room for one in targets} - {room}
    return found
