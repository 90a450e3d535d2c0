"""No file but the home of ops takes the name of one apart, or puts one together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from .rooms import ROOT, modules

HOME = ROOT / "pipeliner/values/op.py"
RELEASED = ROOT / "pipeliner/values/released.py"
"""It reads the names of the released version, which this one does not write."""

ENDS = re.compile(
    r"\.(?:load|store|wait|mma_wait|done|a|b|k\d*|mma|multiply|copy"
    r"|commit|drain|barrier|fence|expect|release)(?:\.|$)",
    re.DOTALL,
)
"""What an op's name goes on with behind its statement."""

READERS = re.compile("(starts|ends)with|r?find|r?index|r?partition|r?split|replace|remove.*fix")
"""Methods of text by which a name is taken apart."""

OPS = {"op", "src", "dst", "producers", "consumers", "members", "statement"}
"""Attributes that hold ops or statements, and nothing else."""


def spellings(tree: ast.AST) -> Iterator[ast.AST]:
    """Where ``tree`` puts the name of an op together, or takes one apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            pairs = zip(node.values, node.values[1:])
            spelled = any(isinstance(a, ast.FormattedValue) and _ends(b) for a, b in pairs)
        elif isinstance(node, ast.BinOp):
            spelled = isinstance(node.op, ast.Add) and _ends(node.right)
        else:
            spelled = isinstance(node, ast.Call) and _reads(node)
        if spelled:
            yield node


def _reads(call: ast.Call) -> bool:
    """Whether ``call`` takes a text apart that is an op's name, or by what one ends with."""
    if not isinstance(call.func, ast.Attribute) or not READERS.fullmatch(call.func.attr):
        return False
    return _of_op(call.func.value) or any(map(_ends, call.args))


def _ends(node: ast.AST) -> bool:
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and ENDS.match(text) is not None


def _of_op(node: ast.AST) -> bool:
    """Whether ``node`` is an attribute that holds an op, or the name of one: ``op.name``."""
    if not isinstance(node, ast.Attribute):
        return False
    of_op = isinstance(node.value, ast.Name) and node.value.id in ("op", "wait", "copy_op")
    return node.attr in OPS or (node.attr == "name" and of_op)


def test_no_other_file_spells_ops() -> None:
    others = (module for module in modules().values() if module.path not in (HOME, RELEASED))
    found = {
        f"{module.name}:{node.lineno}": ast.unparse(node)
        for module in others
        for node in spellings(module.tree)
        if not _is_of_tvm(node)
    }
    assert not found


def _is_of_tvm(node: ast.AST) -> bool:
    """Whether the text is the name of one of TVM's operators: ``getattr(call.op, "name", "")``."""
    return "getattr(" in ast.unparse(node)


@pytest.mark.parametrize(
    "source",
    [
        'f"{name}.load"',
        'f"{plan.op}.k{step}"',
        'f"{name}.k0.a"',
        'f"{op.name}.commit"',
        'name + ".wait"',
        'name.removesuffix(".store")',
        'name.endswith(".load")',
        'op.name.split(".", 1)[0]',
        'edge.src.rpartition(".")',
        'info.op.removesuffix("_o")',
    ],
)
def test_what_was_written_is_found(source: str) -> None:
    assert list(spellings(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        'matmul.instruction.partition(".")[0]',
        'f"{folder}/{name}.diff"',
        'f"{where}.{field.name}"',
        'Op(name, "load")',
        "op.name.statement",
        'str(buf.scope()).startswith("shared")',
    ],
)
def test_other_texts_are_not(source: str) -> None:
    assert not list(spellings(ast.parse(source)))
