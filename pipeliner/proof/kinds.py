"""Which values of symbolic extents are of one kind: all that decides is the same with them.

What decides depends on them through some expressions alone, such as ``(n + 63) // 64``, and through
these with the number of a CTA, such as ``blockIdx.x * 16 < n``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import tvm_ffi
from tvm import ir
from tvm.ir import TensorLoad
from tvm_ffi.structural import WalkResult

from ..emulator.launch.evaluate import evaluate
from ..emulator.launch.host import Launch
from ..emulator.translate.operation import is_trip_count
from ..errors import EmulatorError
from ..passes.ir.nodes import has, variables
from .reading.deciding import deciding
from .reading.extents import LoopExtents, arguments
from .reading.idle import idle
from .reading.reaching import GRID, Reaching, tags_of
from .running.subjects import admitted

_MOST_CTAS: Final = 64
"""CTAs for which such expressions are computed one by one."""

Kind = tuple[Any, ...]
"""What is the same for launches that do the same."""


class Kinds:
    """Of the kernels of one module."""

    def __init__(self, host: Any, kernels: Mapping[str, Any]) -> None:
        self._host, self._kernels = host, kernels
        self._parts = {name: Parts(func) for name, func in kernels.items()}

    def kind(self, values: Mapping[str, int]) -> Kind:
        """The kind of some values: themselves, where nothing more is known."""
        found = admitted(self._host, self._kernels, values)
        try:
            return tuple(self._parts[launch.kernel].kind(launch) for launch in found or ())
        except EmulatorError:
            return tuple(sorted(values.items()))


class Parts:
    """The parts of what decides in a device function that a launch gives the value of.

    Of trip counts that it asks for it has none: a walk leaves them open.
    """

    def __init__(self, func: Any) -> None:
        self._func = func
        found = deciding(func)
        nothing = idle(func, found)
        extents = LoopExtents(Reaching(func, found), found.values)
        axes = {var: tag for var, tag in tags_of(func).items() if tag.startswith(GRID)}
        exprs = [
            extents.whole(expr)
            for expr, number in (*found.roots, *found.stored)
            if number not in nothing
        ]
        self._by_cta = [part for expr in exprs for part in _made_of(expr, {*func.params, *axes})]
        self._plain = [part for expr in exprs for part in _made_of(expr, {*func.params})]
        self._axes = {
            var: tag for var, tag in axes.items() if any(var in variables(p) for p in self._by_cta)
        }

    def kind(self, launch: Launch) -> Kind:
        """The kind of one launch; EmulatorError: the value of some part is not known."""
        known = {param: value.value for param, value in arguments(self._func, launch)}
        grid = [launch.extent(f"{GRID}.{letter}") if self._axes else 1 for letter in "xyz"]
        name, parts, places = launch.kernel, self._by_cta, product(*map(range, grid))
        if math.prod(grid) > _MOST_CTAS:
            parts, places = self._plain, product(range(1))
        return name, tuple(grid), *(_values(parts, known, self._axes, place) for place in places)


def _values(
    parts: list[Any], known: Mapping[Any, Any], axes: Mapping[Any, str], place: tuple[int, ...]
) -> Kind:
    """What some expressions are in the CTA at a place of the grid."""
    at = {var: place["xyz".index(tag[-1])] for var, tag in axes.items()} if len(place) > 1 else {}
    return tuple(evaluate(part, {**known, **at}) for part in parts)


def _made_of(expr: Any, wanted: set[Any]) -> Iterator[Any]:
    """The largest parts of an expression of the variables that are wanted, and of constants."""
    found: list[Any] = []

    def visit(node: Any) -> Any:
        if isinstance(node, ir.Call) and is_trip_count(node):
            return WalkResult.SKIP
        inside = variables(node)
        if has(node, ir.Call, is_trip_count):
            return None
        if inside and inside <= wanted and not has(node, TensorLoad):
            found.append(node)
            return WalkResult.SKIP
        return None

    tvm_ffi.structural_walk(expr, [(ir.Expr, visit)], order="pre")
    yield from found
