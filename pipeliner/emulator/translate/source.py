"""Writer of the generated Python: scopes, temporaries, hoisting of pure expressions.

A value knows the scope it depends on.  A pure expression is assigned once, in the prologue of the
outermost scope where its operands exist (loop-invariant code motion and common subexpressions in
one rule), so index arithmetic costs nothing in inner loops.  What reads memory stays in place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from ..base.dtypes import is_float, is_int
from ..base.intervals import Span, of_type
from ..base.requests import Program
from ..memory.grid import Block
from ..units.issuing import IssuingGroup

MAY_INTERLEAVE: Final = "yield  # to other warps"
"""The line in front of each statement that touches shared memory or synchronises."""

Entry: TypeAlias = "Callable[[IssuingGroup, Sequence[Any], Block, int, int], Program]"
"""Takes a thread group, arguments, blockIdx, bytes of dynamic shared memory and a variant."""


@dataclass(frozen=True, eq=False)
class Code:
    """The generated function of a kernel; each of its two forms is compiled when it first runs."""

    name: str
    source: str
    namespace: dict[str, Any]

    @cached_property
    def interleaved(self) -> Entry:
        """The program that yields wherever other warps may go on."""
        return self.compiled(self.source)

    @cached_property
    def in_step(self) -> Entry:
        """The program that yields only where it must wait."""
        return self.compiled(self.waiting)

    @cached_property
    def waiting(self) -> str:
        """The source of that."""
        lines = self.source.splitlines()
        return "\n".join(x for x in lines if x.lstrip() != MAY_INTERLEAVE) + "\n"

    def compiled(self, source: str | ast.Module) -> Entry:
        """Return the function of another form of the source."""
        exec(compile(source, f"<emulated {self.name}>", "exec"), self.namespace)
        entry: Entry = self.namespace["kernel"]
        return entry


class Val(NamedTuple):
    """A value of the generated code.

    ``varying`` values are arrays with a row for each thread, (n,) or (n, lanes); uniform ones are
    Python ints and bools, numpy scalars for floats, or (lanes,) arrays.  A varying broadcast may be
    (n, 1).  ``depth`` is the scope that the value depends on.  ``known`` bounds an integer more
    closely than its type; ``wraps`` names the arithmetic behind it that may leave its type, as
    ``arith.checked`` notes it.
    """

    text: str
    dtype: str
    lanes: int = 1
    varying: bool = False
    depth: int = 0
    pure: bool = True
    const: int | float | None = None
    known: Span | None = None
    wraps: frozenset[str] = frozenset()

    @property
    def span(self) -> Span | None:
        """Bounds of an integer."""
        return self.known or of_type(self.dtype)

    @property
    def python_int(self) -> bool:
        """Whether the value is a plain Python int or bool at run time."""
        return not self.varying and self.lanes == 1 and not is_float(self.dtype)

    @property
    def integer(self) -> bool:
        return is_int(self.dtype)


@dataclass
class Scope:
    """One block of generated code; ``head`` collects hoisted assignments.

    ``known``: by a name, that of its greatest value, which the body has found.
    """

    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)


class Writer:
    """Nested scopes and fresh names."""

    def __init__(self) -> None:
        self.scopes = [Scope()]
        self._count = 0

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def fresh(self, stem: str = "t") -> str:
        self._count += 1
        clean = "".join(ch if ch.isalnum() else "_" for ch in stem)
        return f"{clean}_{self._count}"

    def emit(self, line: str) -> None:
        self.scopes[-1].body.append(line)

    def begin(self, *lines: str) -> None:
        """Emit lines at the head of the block."""
        self.scopes[-1].head.extend(lines)

    def known(self, name: str) -> str | None:
        """Name of the greatest value of ``name``; None: no block around has found it."""
        return next((s.known[name] for s in self.scopes if name in s.known), None)

    def hoist(self, text: str, depth: int) -> str:
        """Name of a temporary holding the pure expression ``text``."""
        scope = self.scopes[depth]
        name = scope.names.get(text)
        if name is None:
            name = scope.names[text] = self.fresh()
            scope.head.append(f"{name} = {text}")
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[int]:
        """Emit ``header`` with an indented block; yields the depth of the block's scope."""
        self.scopes.append(Scope())
        yield self.depth
        scope = self.scopes.pop()
        self.emit(header)
        for line in [*scope.head, *scope.body] or ["pass"]:
            self.emit(f"    {line}")
