"""wgmma as the generated code calls it: descriptors, registers and groups, warp by warp."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...diagnostics import Reason
from ..base.requests import Wait, Waiting
from ..memory.spaces import REGISTER_BYTES, LocalView, select
from .fragments import WARP
from .hopper import wait
from .issuing import IssuingGroup
from .warp import active_warps, rows_of
from .warpgroup import Registers, WgmmaOperation
from .wgmma import WARPGROUP, Wgmma, encode_descriptor

Array = np.ndarray[Any, Any]
Mask = Array | None


def matrix_descriptor(
    group: IssuingGroup, addr: Any, leading: Any, stride: Any, swizzle: Any
) -> Array:
    """The descriptors of each thread's operand, (n,) uint64."""
    columns = [rows_of(group, v, None) for v in (addr, leading, stride, swizzle)]
    if all((column == column[0]).all() for column in columns):
        uniform = encode_descriptor(*(int(column[0]) for column in columns))
        return np.full(group.n, uniform, np.uint64)
    fields = np.stack(columns)
    kinds, which = np.unique(fields, axis=1, return_inverse=True)
    encoded = [encode_descriptor(*map(int, kind)) for kind in kinds.T]
    return np.array(encoded, np.uint64)[which.reshape(-1)]


def _warps(group: IssuingGroup, mask: Mask) -> list[slice]:
    """Rows of each active warp, or of each warpgroup where they are all active."""
    size = WARPGROUP if mask is None and group.n % WARPGROUP == 0 else WARP
    rows = [slice(i, i + size) for i in range(0, group.n, size)]
    return [r for r in rows if mask is None or mask[r.start]]


def _same(group: IssuingGroup, value: Any, rows: slice, what: str) -> int:
    """Return a value that must be the same in all threads of some warps."""
    if not isinstance(value, np.ndarray) or not value.ndim:
        return int(value)
    values = value[rows]
    if (values != values[0]).any():
        group.hazard(
            "divergent-warp",
            thread=int(group.tids[rows.start]),
            detail=Reason("hazard.varies", operand=what),
        )
    return int(values[0])


def wgmma_fence(group: IssuingGroup, mask: Mask) -> None:
    """Run wgmma.fence: registers touched before it may be given to a wgmma after it."""
    mask = group.warps(mask, "wgmma.fence")
    group.registers_fenced[slice(None) if mask is None else mask] = group.event


def wgmma_mma(
    group: IssuingGroup,
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
    mask = group.warps(mask, "wgmma.mma_async")
    in_registers = isinstance(a, tuple)
    for rows in _warps(group, mask):
        target = Registers(d[0], d[1], rows)
        source = Registers(a[0], a[1], rows) if in_registers else None
        operation = WgmmaOperation(
            spec,
            a_type,
            None if in_registers else _same(group, a, rows, "a descriptor"),
            _same(group, b, rows, "a descriptor"),
            *majors,
            bool(_same(group, scale_d, rows, "scale-d")),
            *scales,
            saturate,
        )
        for registers in (target, source):
            if registers is not None:
                _use(group, registers)
        group.cta.cluster.matrix_units.issue(group, rows, operation, target, source)
    group.count("wgmmas", active_warps(group, mask))


def _use(group: IssuingGroup, registers: Registers) -> None:
    """Let the matrix unit use registers, which a fence must separate from earlier accesses."""
    used, touched = registers.view.marks("used"), registers.view.marks("touched")
    rows, columns = registers.rows, registers.at
    fenced = int(group.registers_fenced[rows].min())
    latest = int(touched[rows, columns].max())
    if not fenced or latest > fenced:
        group.cta.add_hazard(
            "missing-wgmma-fence",
            group.event,
            buffer=registers.view.name,
            threads=(group.cta.local(int(group.tids[rows.start])),),
            other=latest,
        )
    used[rows, columns] = group.event


def touch(group: IssuingGroup, view: LocalView, index: Any, width: int, mask: Mask) -> None:
    """Judge an access to registers that some wgmma uses: none while it may be in flight."""
    used, touched = view.marks("used"), view.marks("touched")
    if mask is None and isinstance(index, int):  # the same registers of all threads, as mostly
        first, last = (_column(view, at) for at in (index, index + width - 1))
        if not (used[:, first : last + 1] > group.waited[:, None]).any():
            touched[:, first : last + 1] = group.event
            return
    rows = np.arange(group.n) if mask is None else np.flatnonzero(mask)
    at = np.asarray(select(index, mask, group.n))
    columns = at.reshape(len(at) if at.ndim else 1, -1)
    if width > 1:
        columns = columns[:, :1] + np.arange(width)
    columns = np.clip(columns, 0, view.size - 1) * view.array.itemsize // REGISTER_BYTES
    busy = used[rows[:, None], columns] > group.waited[rows, None]
    if busy.any():
        row, column = np.argwhere(busy)[0]
        place = np.broadcast_to(columns, busy.shape)[row, column]
        group.cta.add_hazard(
            "register-in-flight",
            group.event,
            buffer=view.name,
            threads=(group.cta.local(int(group.tids[rows[row]])),),
            offset=int(place) * REGISTER_BYTES,
            other=int(used[rows[row], place]),
            detail=Reason("hazard.register_in_use"),
        )
    touched[rows[:, None], columns] = group.event


def _column(view: LocalView, index: int) -> int:
    """The register that holds an element; the nearest one where there is no such element."""
    return min(max(index, 0), view.size - 1) * view.array.itemsize // REGISTER_BYTES


def wgmma_commit(group: IssuingGroup, mask: Mask) -> None:
    """Run wgmma.commit_group."""
    mask = group.warps(mask, "wgmma.commit_group")
    for rows in _warps(group, mask):
        group.cta.cluster.matrix_units.commit(group, rows)


def wgmma_wait(group: IssuingGroup, in_flight: int, mask: Mask) -> Waiting:
    """Run wgmma.wait_group: not before every warp of the warpgroup has issued its part."""
    mask = group.warps(mask, "wgmma.wait_group")
    units, warps = group.cta.cluster.matrix_units, _warps(group, mask)
    group.count("waits")
    return (
        yield from wait(
            Wait(
                group.active(mask),
                group.event,
                lambda: units.complete(group, warps, in_flight),
                lambda: Reason("hazard.wgmma_unissued"),
            )
        )
    )
