"""Bulk copies as the generated code calls them: boxes of tensor maps, and plain ranges of bytes.

Shared addresses are byte offsets in the CTA's window, or shared::cluster addresses, which carry
the rank of their CTA above ``RANK_SHIFT``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason
from ...errors import EmulatorError
from ..memory import tensor_map
from ..memory.engine_access import reading, writing
from ..memory.im2col_map import GlobalMap, Im2colMap, pixel_index
from ..memory.spaces import GlobalView
from ..memory.tensor_map import SHARED_ALIGNMENT, TensorMap
from .issuing import IssuingGroup
from .mbarrier import RANK_SHIFT, Mbarrier
from .warp import rows_of

Array = np.ndarray[Any, Any]
Mask = Array | None

BULK_ALIGNMENT: Final = 16
"""Bytes to which both sides and the size of a bulk copy are aligned."""


def _destinations(
    group: IssuingGroup, who: Array, bar: int, cta_mask: int | None
) -> list[Mbarrier]:
    """The mbarriers of the CTAs that a copy goes to, each in its own CTA."""
    cluster = group.cta.cluster
    if cta_mask is None:
        addresses = [bar]
    else:
        offset = bar & ((1 << RANK_SHIFT) - 1)
        ranks = [r for r in range(16) if cta_mask >> r & 1]
        missing = [r for r in ranks if r >= len(cluster.ctas)]
        if missing:
            group.hazard(
                "out-of-bounds",
                thread=int(who[0]),
                detail=Reason("hazard.multicast", rank=missing[0], size=len(cluster.ctas)),
            )
        addresses = [offset + (r + 1 << RANK_SHIFT) for r in ranks if r < len(cluster.ctas)]
    found = [cluster.mbarriers.use(group, who, address, engine=True) for address in addresses]
    return [barrier for barrier in found if barrier is not None]


def _load(
    group: IssuingGroup,
    tid: int,
    name: str,
    start: int,
    alignment: int,
    offsets: Array,
    data: Array,
    bar: int,
    cta_mask: int | None,
    note: Callable[[int], None] | None = None,
) -> None:
    """Issue one copy of ``data`` (bytes) to byte ``offsets``, checked; ``note``: by an engine."""
    cta = group.cta
    if start % alignment:
        group.hazard(
            "misaligned",
            name,
            start,
            thread=tid,
            detail=Reason("hazard.shared_alignment", multiple=alignment),
        )
    if len(offsets) and not 0 <= offsets.min() <= offsets.max() < cta.window.nbytes:
        inside = (offsets >= 0) & (offsets < cta.window.nbytes)
        group.hazard("out-of-bounds", name, int(offsets[~inside][0]), thread=tid)
        offsets, data = offsets[inside], data[inside]
    for barrier in _destinations(group, np.array([tid]), bar, cta_mask):
        if note is not None:
            note(barrier.engine)
        cta.cluster.bulk.load(group, tid, barrier, offsets, data)


def _each(group: IssuingGroup, values: list[Any], mask: Mask) -> list[tuple[int, list[int]]]:
    """Active threads, each with its scalar operands."""
    columns = [rows_of(group, value, mask) for value in values]
    return [(int(tid), [int(c[i]) for c in columns]) for i, tid in enumerate(group.active(mask))]


def _local(address: int) -> int:
    return address & ((1 << RANK_SHIFT) - 1)


def tensor_load(
    group: IssuingGroup,
    name: str,
    dst: Any,
    tmap: GlobalMap,
    coords: list[Any],
    bar: Any,
    offsets: list[Any] | None,
    cta_mask: Any,
    mask: Mask,
) -> None:
    """Run cp.async.bulk.tensor from global to shared memory; ``offsets``: of im2col mode."""
    group.touch_global(name, mask)
    moved = offsets or []
    multicast = [] if cta_mask is None else [cta_mask]
    first, last = len(coords), len(coords) + len(moved)
    for tid, (to, barrier, *rest) in _each(group, [dst, bar, *coords, *moved, *multicast], mask):
        at, by, many = rest[:first], rest[first:last], rest[last:]
        spread = _bytes_of_box(tmap.map, _local(to))
        data, note = spread, None
        if group.cta.cluster.moves_data:
            values, read = _box(tmap, at, None if offsets is None else by)
            note = reading(group, tid, tmap.region, read * values.itemsize, values.itemsize)
            data = values.view(np.uint8)
        group.count("bulk_copies")
        _load(
            group,
            tid,
            name,
            _local(to),
            SHARED_ALIGNMENT,
            spread,
            data,
            barrier,
            many[0] if many else None,
            note,
        )


@lru_cache(maxsize=256)
def _bytes_of_box(tmap: TensorMap | Im2colMap, base: int) -> Array:
    """Shared byte address of each byte of the box copied to ``base``."""
    places = tensor_map.shared_offsets(tmap, base)
    spread: Array = (places[:, None] + np.arange(tmap.itemsize)).reshape(-1)
    spread.flags.writeable = False  # shared by every caller
    return spread


def _box(tmap: GlobalMap, coords: list[int], offsets: list[int] | None) -> tuple[Array, Array]:
    """Return the elements of a box or of pixels, filled outside, and which those inside are."""
    if isinstance(tmap.map, Im2colMap):
        if offsets is None:
            raise EmulatorError("tensor_map.tiled_load")
        index, inside = pixel_index(tmap.map, tuple(coords), tuple(offsets))
        zero = np.zeros((), tmap.elements.dtype)
        return np.where(inside, tmap.elements[index], zero), index[inside]
    if offsets is not None:
        raise EmulatorError("tensor_map.im2col_load")
    index, inside = tensor_map.box_index(tmap.map, coords)
    values = tmap.elements[np.where(inside, index, 0)]
    values[~inside] = tensor_map.fill_value(tmap.map)
    return values, index[inside]


def tensor_store(
    group: IssuingGroup,
    name: str,
    src: Any,
    tmap: GlobalMap,
    coords: list[Any],
    add: bool,
    mask: Mask,
) -> None:
    """Run cp.async.bulk.tensor or cp.reduce.async.bulk.tensor.add, shared to global memory."""
    group.touch_global(name, mask)
    if isinstance(tmap.map, Im2colMap):
        raise EmulatorError("tensor_map.tiled_store")
    for tid, (start, *at) in _each(group, [src, *coords], mask):
        if not group.cta.cluster.moves_data:
            places = _bytes_of_box(tmap.map, start)
            _store(group, tid, name, start, SHARED_ALIGNMENT, places, _nowhere, 1, None)
            continue
        index, inside = tensor_map.box_index(tmap.map, at)
        offsets = tensor_map.shared_offsets(tmap.map, start)[inside]
        size = tmap.map.itemsize
        note = writing(group, tid, tmap.region, index[inside] * size, size, add=add)
        _store(
            group,
            tid,
            name,
            start,
            SHARED_ALIGNMENT,
            offsets,
            _put(tmap.elements, index[inside], add),
            size,
            note,
        )


def _nowhere(values: Array) -> None:
    """Write nothing: no data is moved."""


def _put(elements: Array, index: Array, add: bool) -> Callable[[Array], None]:
    def put(values: Array) -> None:
        moved = np.ascontiguousarray(values).view(elements.dtype)
        if add:
            np.add.at(elements, index, moved)
        else:
            elements[index] = moved

    return put


def _store(
    group: IssuingGroup,
    tid: int,
    name: str,
    start: int,
    alignment: int,
    offsets: Array,
    put: Callable[[Array], None],
    itemsize: int,
    note: Callable[[int], None] | None,
) -> None:
    """Issue one copy from elements at byte ``offsets``, checked."""
    cta = group.cta
    if start % alignment:
        group.hazard(
            "misaligned",
            name,
            start,
            thread=tid,
            detail=Reason("hazard.shared_alignment", multiple=alignment),
        )
    spread = offsets
    if itemsize > 1:
        spread = (offsets[:, None] + np.arange(itemsize)).reshape(-1)
    if len(spread) and (spread.min() < 0 or spread.max() >= cta.window.nbytes):
        group.hazard("out-of-bounds", name, int(spread.max()), thread=tid)
        return
    group.count("bulk_copies")
    cta.cluster.bulk.store(group, tid, spread, put, note)


def bulk_load(
    group: IssuingGroup,
    name: str,
    dst: Any,
    src: GlobalView,
    start: Any,
    size: Any,
    bar: Any,
    cta_mask: Any,
    mask: Mask,
) -> None:
    """Run cp.async.bulk from global to shared memory; ``src`` is a view of bytes."""
    group.touch_global(src.name, mask)
    multicast = [] if cta_mask is None else [cta_mask]
    for tid, (to, begin, count, barrier, *many) in _each(
        group, [dst, start, size, bar, *multicast], mask
    ):
        data = _global_bytes(group, tid, src, begin, count)
        note = reading(group, tid, src.region, begin + np.arange(len(data)), 1)
        group.count("bulk_copies")
        _load(
            group,
            tid,
            name,
            _local(to),
            BULK_ALIGNMENT,
            _local(to) + np.arange(len(data)),
            data,
            barrier,
            many[0] if many else None,
            note,
        )


def bulk_share(
    group: IssuingGroup, name: str, dst: Any, src: Any, size: Any, bar: Any, mask: Mask
) -> None:
    """Run cp.async.bulk from the own shared memory to that of the CTA whose mbarrier counts."""
    cta = group.cta
    for tid, (to, start, count, address) in _each(group, [dst, src, size, bar], mask):
        if to >> RANK_SHIFT != address >> RANK_SHIFT:
            group.hazard(
                "out-of-bounds",
                name,
                _local(to),
                thread=tid,
                detail=Reason("hazard.foreign_mbarrier"),
            )
        if start % BULK_ALIGNMENT or count % BULK_ALIGNMENT:
            group.hazard("misaligned", name, start, thread=tid, detail=_bulk_alignment(count))
        if start < 0 or start + count > cta.window.nbytes:
            group.hazard("out-of-bounds", name, start, thread=tid)
            continue
        group.count("bulk_copies")
        for barrier in _destinations(group, np.array([tid]), address, None):
            data = cta.cluster.bulk.read(group, tid, barrier, start + np.arange(count))
            _load(
                group,
                tid,
                name,
                _local(to),
                BULK_ALIGNMENT,
                _local(to) + np.arange(count),
                data,
                address,
                None,
            )


def _bulk_alignment(nbytes: int) -> Reason:
    return Reason("hazard.bulk_alignment", nbytes=nbytes, multiple=BULK_ALIGNMENT)


def _global_bytes(group: IssuingGroup, tid: int, view: GlobalView, begin: int, count: int) -> Array:
    """Return checked bytes of a global array, as a view of it."""
    if (begin + view.base) % BULK_ALIGNMENT or count % BULK_ALIGNMENT:
        group.hazard("misaligned", view.name, begin, thread=tid, detail=_bulk_alignment(count))
    if begin < 0 or begin + count > view.array.size:
        group.hazard("out-of-bounds", view.name, begin, thread=tid)
        begin = max(0, begin)
    part: Array = view.array[begin : begin + count]
    return part


def bulk_store(
    group: IssuingGroup,
    name: str,
    dst: GlobalView,
    begin: Any,
    src: Any,
    size: Any,
    add: np.dtype[Any] | None,
    mask: Mask,
) -> None:
    """Run cp.async.bulk, or cp.reduce.async.bulk.add of a type, from shared to global memory."""
    group.touch_global(dst.name, mask)
    for tid, (to, start, count) in _each(group, [begin, src, size], mask):
        part = _global_bytes(group, tid, dst, to, count)
        elements = part if add is None else part.view(add)
        adds = add is not None
        note = writing(group, tid, dst.region, to + np.arange(len(part)), 1, add=adds)
        _store(
            group,
            tid,
            name,
            start,
            BULK_ALIGNMENT,
            start + np.arange(len(part)),
            _put(elements, np.arange(len(elements)), adds),
            1,
            note,
        )


def bulk_commit(group: IssuingGroup, mask: Mask) -> None:
    """Run cp.async.bulk.commit_group."""
    group.cta.cluster.bulk.commit(group.active(mask))


def bulk_wait(group: IssuingGroup, in_flight: int, read: bool, mask: Mask) -> None:
    """Run cp.async.bulk.wait_group; ``read``: .read, for shared memory to be read alone."""
    group.count("waits")
    group.cta.cluster.bulk.wait(group.active(mask), in_flight, read=read)
