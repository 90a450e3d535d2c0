"""What the value of an expression comes of: axes of the launch, named values, registers.

``Reaching`` goes back from an expression through the named values in it, through the registers that
it reads to all that is stored there; and, if asked, to the conditions and trip counts around each
store, which decide whether it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import TensorLoad

from ...emulator.translate.operation import is_pure, op_name
from ...passes.ir.kernels import bodies
from .deciding import Deciding, everything, is_common, registers_written

GRID: Final = "blockIdx"
CLUSTER: Final = "clusterCtaIdx"
THREADS: Final = "threadIdx"
MEMORY: Final = "memory"
"""What an expression may come of: axes by the beginning of their tags, and what is loaded."""

_BY_PLACE: Final = ("cluster", "ctaid", "mapa")
_OF_THREADS: Final = frozenset({THREADS, MEMORY})


class Reaching:
    """Of one device function."""

    def __init__(self, func: Any, deciding: Deciding) -> None:
        self._values = deciding.values
        self._axes = {var: _kind(tag) for var, tag in tags_of(func).items()}
        self._stores: dict[str, list[Any]] = {}
        self._conditions: dict[str, list[Any]] = {}
        for stmt, around in _with_conditions(func.body, ()):
            if isinstance(stmt, tirx.BufferStore) and not is_common(stmt.buffer):
                self._note(stmt.buffer.name, (stmt.value, *stmt.indices), around)
            for _, buffer in registers_written(stmt):
                self._note(buffer, (stmt.value,), around)

    def _note(self, buffer: str, exprs: Iterable[Any], around: Iterable[Any]) -> None:
        self._stores.setdefault(str(buffer), []).extend(exprs)
        self._conditions.setdefault(str(buffer), []).extend(around)

    def origins(self, expr: Any, *, with_conditions: bool = False) -> frozenset[str]:
        """What a value comes of; also by the conditions of stores to the registers in it."""
        found: set[str] = set()
        for node in self._behind(expr, with_conditions):
            if isinstance(node, TensorLoad):
                found.add(MEMORY)
            elif isinstance(node, ir.Call):
                found |= set() if is_pure(node) else _of_call(op_name(node))
            elif node in self._axes:
                found.add(self._axes[node])
        return frozenset(found)

    def is_uniform(self, expr: Any) -> bool:
        """Whether all threads of a CTA see one value, which no register holds."""
        return self.origins(expr).isdisjoint(_OF_THREADS)

    def _behind(self, expr: Any, with_conditions: bool) -> Iterator[Any]:
        """The loads, calls and variables that a value is made of."""
        left, seen = [expr], set()
        while left:
            for node in everything(left.pop()):
                yield node
                if isinstance(node, ir.Var) and node in self._values and node not in seen:
                    seen.add(node)
                    left.append(self._values[node])
                elif isinstance(node, TensorLoad) and str(node.source.name) not in seen:
                    seen.add(str(node.source.name))
                    left.extend(self._stores.get(str(node.source.name), ()))
                    if with_conditions:
                        left.extend(self._conditions.get(str(node.source.name), ()))


def tags_of(func: Any) -> dict[Any, str]:
    """The tag of each axis of a launch, by its variable."""
    found: dict[Any, str] = {}

    def axis(stmt: Any) -> None:
        if stmt.attr_key == "thread_extent":
            found[stmt.node.var] = str(stmt.node.thread_tag)

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, axis))
    return found


def _kind(tag: str) -> str:
    return next((kind for kind in (GRID, CLUSTER) if tag.startswith(kind)), THREADS)


def _of_call(name: str) -> set[str]:
    """What the result of a call comes of, besides its operands."""
    return {THREADS, GRID, CLUSTER} if any(map(name.__contains__, _BY_PLACE)) else {THREADS}


def _with_conditions(stmt: Any, around: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every statement, with the conditions and trip counts around it."""
    yield stmt, around
    if isinstance(stmt, tirx.For):
        around = (*around, stmt.min, stmt.extent)
    elif isinstance(stmt, tirx.IfThenElse | tirx.While):
        around = (*around, stmt.condition)
    for part in bodies(stmt):
        yield from _with_conditions(part, around)
