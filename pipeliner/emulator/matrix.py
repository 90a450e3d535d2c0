"""wgmma as the generated code calls it: descriptors, registers and groups, warp by warp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import Reason
from .fragments import WARP
from .hopper import wait
from .memory import REGISTER_BYTES, LocalView, select
from .requests import Wait, Waiting
from .warp import rows_of
from .warpgroup import Operation, Registers
from .wgmma import Wgmma, encode_descriptor

if TYPE_CHECKING:
    from .machine import Strand

Array = np.ndarray[Any, Any]
Mask = Array | None


def matrix_descriptor(strand: Strand, addr: Any, leading: Any, stride: Any, swizzle: Any) -> Array:
    """The descriptors of each thread's operand, (n,) uint64."""
    columns = [rows_of(strand, v, None) for v in (addr, leading, stride, swizzle)]
    if all((column == column[0]).all() for column in columns):
        uniform = encode_descriptor(*(int(column[0]) for column in columns))
        return np.full(strand.n, uniform, np.uint64)
    fields = np.stack(columns)
    kinds, which = np.unique(fields, axis=1, return_inverse=True)
    encoded = [encode_descriptor(*map(int, kind)) for kind in kinds.T]
    return np.array(encoded, np.uint64)[which.reshape(-1)]


def _warps(strand: Strand, mask: Mask) -> list[slice]:
    """Rows of each active warp."""
    rows = [slice(i, i + WARP) for i in range(0, strand.n, WARP)]
    return [r for r in rows if mask is None or mask[r.start]]


def _same(strand: Strand, value: Any, rows: slice, what: str) -> int:
    """A value that must be the same in all threads of a warp."""
    if not isinstance(value, np.ndarray) or not value.ndim:
        return int(value)
    values = value[rows]
    if (values != values[0]).any():
        strand.hazard(
            "divergent-warp",
            thread=int(strand.tids[rows.start]),
            detail=Reason("hazard.varies", operand=what),
        )
    return int(values[0])


def wgmma_fence(strand: Strand, mask: Mask) -> None:
    """Run wgmma.fence: registers touched before it may be given to a wgmma after it."""
    mask = strand.warps(mask, "wgmma.fence")
    strand.registers_fenced[slice(None) if mask is None else mask] = strand.event


def wgmma_mma(
    strand: Strand,
    spec: Wgmma,
    a_type: str,
    d: tuple[LocalView, tuple[int, ...]],
    a: Any,
    b: Any,
    scale_d: Any,
    scales: tuple[int, int],
    majors: tuple[Any, Any],
    saturate: bool,
    mask: Mask,
) -> None:
    """Run wgmma.mma_async; ``a`` is a descriptor, or (view, columns) of registers."""
    mask = strand.warps(mask, "wgmma.mma_async")
    in_registers = isinstance(a, tuple)
    for rows in _warps(strand, mask):
        target = Registers(d[0], d[1], rows)
        source = Registers(a[0], a[1], rows) if in_registers else None
        operation = Operation(
            spec,
            a_type,
            None if in_registers else _same(strand, a, rows, "a descriptor"),
            _same(strand, b, rows, "a descriptor"),
            *majors,
            bool(_same(strand, scale_d, rows, "scale-d")),
            *scales,
            saturate,
        )
        for registers in (target, source):
            if registers is not None:
                _hold(strand, registers)
        strand.cta.cluster.matrix_units.issue(strand, rows, operation, target, source)
    strand.count("wgmmas", len(_warps(strand, mask)))


def _hold(strand: Strand, registers: Registers) -> None:
    """The matrix unit takes registers, which a fence must separate from earlier accesses."""
    held, touched = registers.view.marks("held"), registers.view.marks("touched")
    rows, columns = registers.rows, list(registers.columns)
    fenced = int(strand.registers_fenced[rows].min())
    if not fenced or (touched[rows, columns] > fenced).any():
        latest = int(touched[rows, columns].max())
        strand.cta.add_hazard(
            "missing-wgmma-fence",
            strand.event,
            buffer=registers.view.name,
            threads=(strand.cta.local(int(strand.tids[rows.start])),),
            other=latest,
        )
    held[rows, columns] = strand.event


def touch(strand: Strand, view: LocalView, index: Any, width: int, mask: Mask) -> None:
    """An access to registers that some wgmma uses: not while it may be in flight."""
    held, touched = view.marks("held"), view.marks("touched")
    rows = np.arange(strand.n) if mask is None else np.flatnonzero(mask)
    at = np.asarray(select(index, mask, strand.n))
    columns = at.reshape(len(at) if at.ndim else 1, -1)
    if width > 1:
        columns = columns[:, :1] + np.arange(width)
    columns = np.clip(columns, 0, view.size - 1) * view.array.itemsize // REGISTER_BYTES
    busy = held[rows[:, None], columns] > strand.waited[rows, None]
    if busy.any():
        row, column = np.argwhere(busy)[0]
        place = np.broadcast_to(columns, busy.shape)[row, column]
        strand.cta.add_hazard(
            "register-in-flight",
            strand.event,
            buffer=view.name,
            threads=(strand.cta.local(int(strand.tids[rows[row]])),),
            offset=int(place) * REGISTER_BYTES,
            other=int(held[rows[row], place]),
            detail=Reason("hazard.register_in_use"),
        )
    touched[rows[:, None], columns] = strand.event


def wgmma_commit(strand: Strand, mask: Mask) -> None:
    """Run wgmma.commit_group."""
    mask = strand.warps(mask, "wgmma.commit_group")
    for rows in _warps(strand, mask):
        strand.cta.cluster.matrix_units.commit(strand, rows)


def wgmma_wait(strand: Strand, in_flight: int, mask: Mask) -> Waiting:
    """wgmma.wait_group: not before every warp of the warpgroup has issued its part."""
    mask = strand.warps(mask, "wgmma.wait_group")
    units, warps = strand.cta.cluster.matrix_units, _warps(strand, mask)
    strand.count("waits")
    return (
        yield from wait(
            Wait(
                strand.active(mask),
                strand.event,
                lambda: units.complete(strand, warps, in_flight),
                lambda: Reason("hazard.wgmma_unissued"),
            )
        )
    )
