"""Which threads may come to a loop, as far as conditions on their own numbers tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.ir import prim

from ...emulator.launch.evaluate import evaluate
from ...emulator.launch.host import Launch
from ...errors import EmulatorError
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import variables
from .extents import LoopExtents
from .reaching import THREADS, tags_of

ThreadMask = npt.NDArray[np.bool_]


def entering(func: Any, launch: Launch, extents: LoopExtents) -> Mapping[int, ThreadMask]:
    """Return for each loop which threads of a CTA may come to it, by their numbers."""
    tags = {var: tag for var, tag in tags_of(func).items() if tag.startswith(THREADS)}
    dims = [range(launch.extent(f"{THREADS}.{letter}")) for letter in "zyx"]
    threads = [dict(zip("zyx", place, strict=True)) for place in product(*dims)]
    values = [{var: place[tag[-1]] for var, tag in tags.items()} for place in threads]

    @cache
    def may(condition: Any) -> ThreadMask:
        whole = extents.whole(condition)
        if not variables(whole) <= set(tags):
            return np.ones(len(values), np.bool_)
        try:
            return np.array([bool(evaluate(whole, one)) for one in values])
        except EmulatorError:
            return np.ones(len(values), np.bool_)

    found = {}
    for number, conditions in _conditions(func):
        found[number] = np.ones(len(values), np.bool_)
        for condition in conditions:
            found[number] = found[number] & may(condition)
    return found


def _conditions(func: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The number of each loop, with what holds where it is executed."""
    count = -1

    def visit(stmt: Any, around: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        nonlocal count
        count += not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt)
        if isinstance(stmt, tirx.For):
            yield count, around
        if isinstance(stmt, tirx.IfThenElse):
            yield from visit(stmt.then_case, (*around, stmt.condition))
            if stmt.else_case is not None:
                yield from visit(stmt.else_case, (*around, prim.Not(stmt.condition)))
            return
        for part in bodies(stmt):
            yield from visit(part, around)

    yield from visit(func.body, ())
