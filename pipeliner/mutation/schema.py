"""All mutants of a kernel in one program: it is translated once, and each run chooses one.

A mutant changes one statement. The program has, in the place of that statement, each mutant's own;
all else is common to all (mutant schemata: Untch, Offutt and Harrold, 1993).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tvm import ir, tirx

from ..emulator.emulate import Programs
from ..emulator.translate.compiler import compile_kernel
from ..passes.ir.kernels import bodies, with_bodies
from ..passes.ir.nodes import i32, walk
from .mutants import Mutant, device_functions, mutated

StatementPath: TypeAlias = tuple[int, ...]
"""Where a statement is: at each level its number among those directly inside the one around it."""

_MARK: Final = "pipeliner.variants"
"""Key of the attribute around a statement that mutants change."""


@dataclass
class Schema:
    """A lowered module and those of its mutants that can be in one program with it.

    ``numbers``: of each such mutant, from 1; 0 is the module itself. A mutant is not among them
    where what it changes has a name that is used elsewhere, or is more than a statement.
    """

    numbers: dict[Mutant, int] = field(default_factory=dict)
    programs: Programs = field(default_factory=dict)

    @classmethod
    def of(cls, mod: Any, mutants: Sequence[Mutant]) -> Schema:
        """Return the program of ``mod`` and these mutants of it."""
        schema = cls()
        for name, func in device_functions(mod)[0].items():
            changes: dict[StatementPath, list[tuple[int, Any]]] = {}
            used = _uses(func.body)
            for mutant in mutants:
                if mutant.kernel != name:
                    continue
                other = device_functions(mutated(mod, mutant))[0][name]
                path, whole, changed = _difference(func.body, other.body)
                if not whole.same_as(changed) and not _names(whole, used):
                    schema.numbers[mutant] = number = len(schema.numbers) + 1
                    changes.setdefault(path, []).append((number, changed))
            places: dict[StatementPath, Any] = {}
            body = _marked(func.body, changes, places)
            marked = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
            variants = {place: changes[path] for path, place in places.items()}
            schema.programs[name] = compile_kernel(marked, variants)
        return schema


def _difference(one: Any, other: Any, path: StatementPath = ()) -> tuple[StatementPath, Any, Any]:
    """Return the smallest statement of ``one`` that holds all differences, and the other's."""
    inside = list(zip(bodies(one), bodies(other))) if _same_around(one, other) else []
    different = [at for at, pair in enumerate(inside) if not pair[0].same_as(pair[1])]
    if len(different) != 1:
        return path, one, other
    (at,) = different
    return _difference(*inside[at], (*path, at))


def _marked(
    stmt: Any,
    wanted: Collection[StatementPath],
    places: dict[StatementPath, Any],
    path: StatementPath = (),
) -> Any:
    """Return ``stmt`` with a mark around each statement that is ``wanted``: one node may be many.

    ``places``: takes the marks.
    """
    deeper = [one for one in wanted if len(one) > len(path) and one[: len(path)] == path]
    if deeper:
        ways = {one[len(path)] for one in deeper}
        parts = [
            _marked(part, deeper, places, (*path, at)) if at in ways else part
            for at, part in enumerate(bodies(stmt))
        ]
        stmt = with_bodies(stmt, parts)
    if path in wanted:
        stmt = places[path] = tirx.AttrStmt(i32(0), _MARK, i32(0), stmt)
    return stmt


def _same_around(one: Any, other: Any) -> bool:
    """Whether two statements differ at most in those directly inside them."""
    if type(one) is not type(other) or len(bodies(one)) != len(bodies(other)):
        return False
    return all(a.same_as(b) for a, b in zip(_head(one), _head(other), strict=True))


def _head(stmt: Any) -> Iterator[Any]:
    """Yield what a statement has beside those directly inside it."""
    for name in ("loop_var", "min", "extent", "condition", "node", "value"):
        part = getattr(stmt, name, None)
        if part is not None and hasattr(part, "same_as"):
            yield part


def _uses(stmt: Any) -> Counter[Any]:
    """Return how often each variable and buffer occurs."""
    found: Counter[Any] = Counter()
    walk(stmt, ir.Var, lambda var: found.update([var]))
    return found


def _names(stmt: Any, used: Counter[Any]) -> bool:
    """Whether ``stmt`` defines what is used outside of it."""
    defined: list[Any] = []
    walk(stmt, tirx.Bind, lambda bind: defined.append(bind.var))
    walk(stmt, (tirx.AllocBuffer, tirx.DeclBuffer), lambda one: defined.append(one.buffer))
    if not defined:
        return False
    inside = _uses(stmt)
    return any(used[var] != inside[var] for var in defined)
