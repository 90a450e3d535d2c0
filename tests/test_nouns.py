"""One noun, one class, one home: no two types of the library have the same public name.

The emulator shares nothing with the rest, so that the two may disagree; its nouns are its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .rooms import modules

APART = "emulator"


def types(tree: ast.Module) -> Iterator[str]:
    """The public classes and type aliases that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = target.id if isinstance(target, ast.Name) else ""
        else:
            continue
        if name[:1].isupper() and not name.isupper():
            yield name


def homes() -> dict[str, list[str]]:
    """The modules that define each type."""
    found: dict[str, list[str]] = {}
    for name, module in modules().items():
        if name.split(".")[0] != APART:
            for noun in types(module.tree):
                found.setdefault(noun, []).append(name)
    return found


def test_no_two_types_have_the_same_name() -> None:
    assert {noun: where for noun, where in homes().items() if len(where) > 1} == {}


def test_nouns_of_the_design_are_where_it_says() -> None:
    """Also shows that classes and aliases of either kind of assignment are seen."""
    found = homes()
    assert found["Kernel"] == ["kernel.compiled"]
    assert found["Facts"] == ["passes.recognise.facts"]
    assert found["Access"] == ["passes.analysis.access_values"]
    assert found["Tile"] == ["schedules.tiles"]
    assert found["Instruction"] == ["plan.request"]
    assert found["OrderingEvent"] == ["passes.analysis.access_values"]


def test_what_is_a_type_and_what_is_not() -> None:
    text = """
class Class: ...
Alias = dict[str, int]
Annotated: TypeAlias = "int | str"
_Private = int
class _PrivateToo: ...
CONSTANT: Final = 4
LONG_NAME = 3
f = 4
g.Field = 5
def Function(): ...
"""
    assert list(types(ast.parse(text))) == ["Class", "Alias", "Annotated"]
