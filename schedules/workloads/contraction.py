"""A workload seen as a matmul: what its function is built from, and what its tiles are made of.

    C[batch, m, n] = sum over steps and k of A[batch, steps, m, k] * B[batch, steps, k, n]

``batch``: axes of independent matmuls (batch, groups). ``steps``: outer reduction axes, never mixed
in a tile (positions of a convolution's kernel), while tiles cut ``m``, ``n``, ``k``. An operand
is a matrix in memory or is *gathered*: a block of its own says, for each element, which element of
a tensor it is and under which conditions it is zero instead. That block becomes the copy to shared
memory; it is never written as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Var

from ...passes.ir.nodes import block, buffer, i32
from .base.blocks import all_of, cast, grid
from .base.dtypes import Types, check_extent
from .base.epilogue import READING, RESIDUAL, apply
from .base.operand import Axis, Coordinates, Operand

MATMUL: Final = "matmul"
"""Name of the reduction block of every matmul-like workload."""

SECOND: Final = "second"
"""Name of the reduction block of a second matmul of the same A."""

SUMS: Final = "acc"
"""Name of the buffer that the matmul adds to."""

SECOND_SUMS: Final = "acc2"
"""Name of the buffer that the second matmul adds to."""

GATED: Final = "gated"
"""Name of the block that multiplies the sums of both."""

STORE: Final = "store"
"""Name of the block that writes a workload's output from its accumulator."""

PARTIAL: Final = "partial"
"""Name of the block that writes the sums of one part of a reduction."""

PARTS: Final = "parts"
"""Name of the workspace that it writes to."""

WORKSPACES: Final = ((PARTIAL, PARTS), ("second_partial", "second_parts"))
"""Of each matmul the block that writes the sums of one part, and its workspace."""

INSTRUCTION: Final = "pipeliner.mma"
"""Annotation of a matmul block: which instruction it may become (auto, simt, mma)."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """One matmul, with all that its function needs.

    ``place``: where element (batch, m, n) is stored in the output; ``channel``: its index into a
    bias of ``channels`` values. ``is_exchanged``: B's parameter comes before A's. ``rows``: rows of
    results lie one behind the other in memory, whatever dimensions they have there. ``whole``: what
    this one sums parts of, see ``splitting``; None: nothing larger. ``second``: the B of a second
    matmul, whose sums are multiplied by the ``activation`` of this one's; None: there is one.
    ``length``: how many places of the outer reduction axes add anything, at coordinates of the
    batch axes; None: all.
    """

    name: str
    types: Types
    batch_axes: tuple[Axis, ...]
    m: Axis
    n: Axis
    reduction_axes: tuple[Axis, ...]
    k: Axis
    a: Operand
    b: Operand
    out: tuple[str, tuple[int | None, ...]]
    place: Callable[[Coordinates], list[Any]]
    channel: Callable[[Coordinates], Any]
    channels: int
    epilogue: tuple[str, ...] = ()
    is_exchanged: bool = False
    rows: bool = False
    whole: Contraction | None = None
    second: Operand | None = None
    activation: str = ""
    length: Callable[[Coordinates], Any] | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """A, B, and the B of a second matmul."""
        return (self.a, self.b) if self.second is None else (self.a, self.b, self.second)

    @property
    def matmuls(self) -> tuple[tuple[str, str], ...]:
        """Block and sums of each matmul."""
        first = (MATMUL, SUMS)
        return (first,) if self.second is None else (first, (SECOND, SECOND_SUMS))

    @property
    def results(self) -> tuple[Axis, ...]:
        """The dimensions of what is stored in the end."""
        whole = self.whole or self
        return (*whole.batch_axes, whole.m, whole.n)

    @property
    def batches_are_alike(self) -> bool:
        """Whether all of a batch take as many steps and tiles, each added up at once.

        Then the CTAs of a persistent grid walk through the tiles of all of them; else there is such
        a grid for each.
        """
        return self.length is None and self.whole is None and self.m[1] is not None

    def exchanged(self) -> Contraction:
        """The transposed matmul: M and N change places, and so do the operands."""
        return replace(
            self, m=self.n, n=self.m, a=self.b, b=self.a, is_exchanged=not self.is_exchanged
        )

    def storage(self, operand: int) -> str:
        """Type of A (0), B (1) or a second B (2) in memory."""
        return self.operands[operand].storage or self.types.storage

    def axes(self, operand: int) -> tuple[Axis, ...]:
        """Dimensions of A (0), B (1) or a second B (2) as the matmul reads it."""
        side, row = self.operands[operand], self.m if operand == 0 else self.n
        columns = (row[0], side.pitch or row[1])  # as long as they are in memory
        matrix = (row, self.k) if side.k_major else (self.k, columns)
        return (*self.batch_axes, *self.reduction_axes, *matrix)

    def function(self) -> Any:
        """The PrimFunc: gathered operands, block ``matmul``, the epilogue's blocks, ``store``.

        Of parts, blocks ``partial`` store what each sums, and others add what they stored.
        """
        return _Builder(self).function()


class _Builder:
    """The blocks of one contraction, in order, and the buffers between them."""

    def __init__(self, what: Contraction) -> None:
        self._what = what
        self._open: dict[str, Var] = {}  # extents known at run time
        self._allocated: list[Any] = []
        self._stmts: list[Any] = []

    def function(self) -> Any:
        what = self._what
        operands = [self._operand(which) for which in range(len(what.operands))]
        first, *others = (read for _, read in operands)
        products = [
            self._matmul(*names, [first, other]) for names, other in zip(what.matmuls, others)
        ]
        if what.whole is not None:
            products = [
                self._summed(self._stored(sums, *names))
                for names, sums in zip(WORKSPACES, products)
            ]
        sums = products[0] if what.second is None else self._gated(*products)
        extras = [self._extra(step) for step in what.epilogue if step in READING]
        out = self._param(what.out[0], what.out[1], what.types.out)
        self._store(self._epilogue(sums, extras), out)
        attrs = {"global_symbol": what.name, "s_tir": True, "tirx.noalias": True}
        root = block("root", tirx.SeqStmt(self._stmts), self._allocated)
        inputs = [param for param, _ in operands]
        params = [*(reversed(inputs) if what.is_exchanged else inputs), *extras, out]
        return tirx.PrimFunc(params, root, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs))

    def _extent(self, axis: Axis) -> Any:
        name, extent = axis
        if extent is not None:
            check_extent(f"the extent of axis '{name}'", extent, least=0)
            return i32(extent)
        return self._open.setdefault(name, Var("m", "int32"))

    def _param(self, name: str, shape: Sequence[int | None], dtype: str) -> Any:
        rows = self._what.m  # the only axis that may be open
        extents = [self._extent(rows) if size is None else i32(size) for size in shape]
        return buffer(extents, dtype, name, "global")

    def _between(self, name: str, axes: Sequence[Axis], dtype: str) -> Any:
        """A tensor that only the blocks of this function see."""
        made = buffer([self._extent(axis) for axis in axes], dtype, name, "global")
        self._allocated.append(made)
        return made

    def _grid(self, name: str, axes: Sequence[Axis], reduced: int, body: Any, **hints: Any) -> None:
        named = [(axis, self._extent((axis, extent))) for axis, extent in axes]
        self._stmts.append(grid(name, named, reduced, body, hints.get("annotations")))

    def _operand(self, which: int) -> tuple[Any, Callable[[Coordinates], Any]]:
        """The parameter, and how the matmul reads an element of the operand."""
        side = self._what.operands[which]
        storage = self._what.storage(which)
        param, source = self._source(side, storage)

        def read(at: Coordinates) -> Any:
            indices, conditions = side.element(at)
            value = tirx.BufferLoad(source, indices)
            if not conditions:
                return value
            zero = tirx.const(0, storage)
            return tirx.if_then_else(all_of(conditions), value, zero)

        if side.tile is None:
            return param, read
        axes = self._what.axes(which)
        gathered = self._between(side.tile, axes, storage)

        def gather(values: Sequence[Any]) -> tuple[Any, None]:
            at = _coordinates(axes, values)
            return tirx.BufferStore(gathered, read(at), list(values)), None

        self._grid(side.tile, axes, 0, gather)
        return param, lambda at: tirx.BufferLoad(gathered, [at[axis] for axis, _ in axes])

    def _source(self, side: Operand, storage: str) -> tuple[Any, Any]:
        """The parameter of an operand, and what its elements are read from."""
        made = side.reordered
        if made is None:
            param = self._param(side.param, side.shape, storage)
            return param, param
        param = self._param(side.param, made.shape, storage)
        source = self._between(side.source, [("", extent) for extent in side.shape], storage)

        def move(values: Sequence[Any]) -> tuple[Any, None]:
            at = _coordinates(made.axes, values)
            value = tirx.BufferLoad(param, made.read(at))
            if made.inside is not None:
                zero = tirx.const(0, storage)
                value = tirx.if_then_else(all_of(made.inside(at)), value, zero)
            return tirx.BufferStore(source, value, made.written(at)), None

        self._grid(side.source, made.axes, 0, move)
        return param, source

    def _matmul(self, name: str, buffer: str, reads: Sequence[Callable[[Coordinates], Any]]) -> Any:
        what = self._what
        accumulator = what.types.accumulator
        results = (*what.batch_axes, what.m, what.n)
        axes = (*results, *what.reduction_axes, what.k)
        sums = self._between(buffer, results, accumulator)

        def multiply(values: Sequence[Any]) -> tuple[Any, Any]:
            out = list(values[: len(results)])
            at = _coordinates(axes, values)
            product = cast(reads[0](at), accumulator) * cast(reads[1](at), accumulator)
            zero = tirx.BufferStore(sums, tirx.const(0, accumulator), out)
            return tirx.BufferStore(sums, tirx.BufferLoad(sums, out) + product, out), zero

        hint = what.types.instruction
        annotations = {} if hint == "auto" else {INSTRUCTION: hint}
        reduced = len(what.reduction_axes) + 1
        self._grid(name, axes, reduced, multiply, annotations=annotations)
        return sums

    def _gated(self, gate: Any, value: Any) -> Any:
        """The tensor of the second sums multiplied by the activation of the first."""
        what = self._what
        made = self._between(GATED, what.results, what.types.accumulator)

        def body(values: Sequence[Any]) -> tuple[Any, None]:
            factors = [tirx.BufferLoad(sums, list(values)) for sums in (gate, value)]
            product = apply(what.activation, factors[0], None) * factors[1]
            return tirx.BufferStore(made, product, list(values)), None

        self._grid(GATED, what.results, 0, body)
        return made

    def _stored(self, sums: Any, name: str, workspace: str) -> Any:
        """The workspace that every part writes its sums to, in block ``name``."""
        axes = (*self._what.batch_axes, self._what.m, self._what.n)
        parts = self._between(workspace, axes, self._what.types.accumulator)
        self._grid(
            name,
            axes,
            0,
            lambda values: (tirx.BufferStore(parts, tirx.BufferLoad(sums, values), values), None),
        )
        return parts

    def _summed(self, parts: Any) -> Any:
        """The tensor of the sums of all parts, added in their order."""
        what = self._what
        made = self._between(f"{parts.name}_sums", what.results, what.types.accumulator)
        (_, count), *_ = what.batch_axes

        def body(values: Sequence[Any]) -> tuple[Any, None]:
            first, *others = (
                tirx.BufferLoad(parts, [i32(part), *values]) for part in range(count or 1)
            )
            total = functools.reduce(lambda left, right: left + right, others, first)
            return tirx.BufferStore(made, total, list(values)), None

        self._grid(f"{parts.name}_sum", what.results, 0, body)
        return made

    def _extra(self, step: str) -> Any:
        shape = self._what.out[1] if step == RESIDUAL else (self._what.channels,)
        return self._param(step, shape, self._what.types.out)

    def _epilogue(self, sums: Any, extras: Sequence[Any]) -> Any:
        """The last of the tensors that the steps make of ``sums``."""
        inputs = iter(extras)
        for step in self._what.epilogue:
            sums = self._step(step, sums, next(inputs) if step in READING else None)
        return sums

    def _step(self, step: str, sums: Any, extra: Any) -> Any:
        """The tensor that ``step`` makes of ``sums`` and its input."""
        what = self._what
        axes = what.results
        made = self._between(f"after_{step}", axes, what.types.accumulator)

        def body(values: Sequence[Any]) -> tuple[Any, None]:
            operand = None
            if extra is not None:
                at = _coordinates(axes, values)
                where = what.place(at) if step == RESIDUAL else [what.channel(at)]
                operand = cast(tirx.BufferLoad(extra, where), what.types.accumulator)
            value = apply(step, tirx.BufferLoad(sums, list(values)), operand)
            return tirx.BufferStore(made, value, list(values)), None

        self._grid(step, axes, 0, body)
        return made

    def _store(self, sums: Any, out: Any) -> None:
        axes = self._what.results

        def body(values: Sequence[Any]) -> tuple[Any, None]:
            value = cast(tirx.BufferLoad(sums, list(values)), self._what.types.out)
            place = self._what.place(_coordinates(axes, values))
            return tirx.BufferStore(out, value, place), None

        self._grid(STORE, axes, 0, body)


def _coordinates(axes: Sequence[Axis], values: Sequence[Any]) -> Coordinates:
    return {name: value for (name, _), value in zip(axes, values, strict=True)}
