"""Nobody asks which mechanism or instruction it is: each has properties, asked for by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

import pytest

from pipeliner.instructions.table import MATMUL_INSTRUCTIONS
from pipeliner.mechanisms.copies import PRODUCED_COPIES
from pipeliner.mechanisms.stores import STORES
from pipeliner.mechanisms.table import COPY_MECHANISMS, PRODUCED
from pipeliner.passes.copy.copies import ISSUED_BY
from pipeliner.plan.kinds import CopyMechanism, MatmulInstruction
from pipeliner.plan.request import INSTRUCTIONS, MECHANISMS
from pipeliner.plan.request import STORES as ASKED_STORES

from .rooms import modules

HOMES: Final = (
    "mechanisms",
    "mechanisms.stores",
    "instructions",
    "choice",
    "space",
    "passes.copy",
    "passes.matmul",
)
"""Where mechanisms and instructions are planned, compared with each other, and emitted."""

JUDGE: Final = "emulator"
"""Its rooms decode PTX by themselves, by PTX's names."""

NAMES: Final = frozenset({*COPY_MECHANISMS, *STORES, *MATMUL_INSTRUCTIONS})
RECORDS: Final = frozenset(
    {"TMA", "CP_ASYNC", "REGISTER", "DIRECT", "WGMMA", "MMA", "SIMT", "NESTS", "SCALAR"}
)
TEXT_TESTS: Final = ("startswith", "endswith", "fullmatch", "match")


def named(node: ast.expr | ast.pattern) -> bool:
    """Whether ``node`` is a mechanism or an instruction by its name, or a choice among some."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.rstrip(".") in NAMES
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(named, node.elts))
    if isinstance(node, ast.MatchValue):
        return named(node.value)
    return isinstance(node, ast.Name) and node.id in RECORDS


def is_op_kind(node: ast.expr) -> bool:
    """Whether ``node`` is the kind of an op of a schedule, some of which are called alike."""
    return ast.unparse(node).endswith(("kind", "['kind']"))


def compared_names(tree: ast.AST) -> Iterator[int]:
    """The lines that compare something with a mechanism's or an instruction's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(named, sides)) and not any(map(is_op_kind, sides)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in TEXT_TESTS and any(map(named, node.args)):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and named(node):
            yield node.lineno


def test_no_name_is_compared_outside_of_its_home() -> None:
    found = [
        f"{name}:{line}"
        for name, module in modules().items()
        if module.room not in HOMES and not module.room.startswith(JUDGE)
        for line in compared_names(module.tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("copy.mechanism == 'tma'", True),
        ("copy.mechanism not in ('register', 'direct')", True),
        ("matmul.instruction.startswith('wgmma')", True),
        ("matmul.instruction.startswith('mma.')", True),
        ("matmul.instruction == SCALAR", True),
        ("moved_by(copy) is TMA", True),
        ("match mechanism:\n    case 'cp_async': pass", True),
        ("request.mechanism == 'auto'", False),
        ("op.kind == 'mma'", False),
        ("moved_by(copy).by_producer", False),
    ],
)
def test_the_check_sees_names(text: str, is_one: bool) -> None:
    assert bool(list(compared_names(ast.parse(text)))) is is_one


def test_whatever_can_be_asked_for_has_properties() -> None:
    assert COPY_MECHANISMS.keys() | {"auto"} == set(MECHANISMS)
    assert STORES.keys() | {"auto"} == set(ASKED_STORES)
    assert MATMUL_INSTRUCTIONS.keys() | {"auto"} == {*INSTRUCTIONS, "scalar"}


def test_whatever_a_producer_copies_by_is_planned_and_emitted() -> None:
    assert PRODUCED_COPIES.keys() == ISSUED_BY.keys() == PRODUCED


@pytest.mark.parametrize("kind", [CopyMechanism, MatmulInstruction])
def test_each_property_sets_some_apart(kind: type[CopyMechanism | MatmulInstruction]) -> None:
    rows = COPY_MECHANISMS if kind is CopyMechanism else MATMUL_INSTRUCTIONS
    for field in fields(kind):
        assert len({getattr(row, field.name) for row in rows.values()}) > 1, field.name


def test_each_property_is_asked_for() -> None:
    asked = {
        node.attr
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
    }
    properties = {
        field.name for kind in (CopyMechanism, MatmulInstruction) for field in fields(kind)
    }
    assert properties <= asked
