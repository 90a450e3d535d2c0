"""Operations of sm_90, as the generated code calls them: mbarriers, TMA, wgmma, clusters.

Shared addresses are byte offsets in the CTA's window, or shared::cluster addresses, which carry
the rank of their CTA above ``RANK_SHIFT``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import tensor_map
from .fragments import WARP, stmatrix_rows
from .mbarrier import RANK_SHIFT, SIZE, Mbarrier, by_address
from .memory import REGISTER_BYTES, GlobalView, LocalView, select
from .requests import Wait, Waiting
from .tensor_map import SHARED_ALIGNMENT
from .warp import active_warps, rows_of, shared_rows
from .warpgroup import Operation, Registers
from .wgmma import Wgmma, encode_descriptor

if TYPE_CHECKING:
    from .host import GlobalMap
    from .machine import Strand

Array = np.ndarray[Any, Any]
Mask = Array | None

BULK_ALIGNMENT: Final = 16


# mbarrier


def mbarrier_init(strand: Strand, name: str, addr: Any, count: Any, mask: Mask) -> None:
    """Run mbarrier.init; ``name`` is the buffer's."""
    at = shared_rows(strand, addr, SIZE, mask, name)
    counts = rows_of(strand, count, mask)
    for tid, offset, number in zip(strand.active(mask), at, counts, strict=True):
        strand.cta.cluster.mbarriers.init(strand, int(tid), int(offset), int(number), name)


def mbarrier_inval(strand: Strand, name: str, addr: Any, mask: Mask) -> None:
    """Run mbarrier.inval."""
    at = shared_rows(strand, addr, SIZE, mask, name)
    for tid, offset in zip(strand.active(mask), at, strict=True):
        strand.cta.cluster.mbarriers.invalidate(strand, int(tid), int(offset))


def mbarrier_arrive(
    strand: Strand, addr: Any, count: Any, nbytes: Any, release: bool, mask: Mask
) -> None:
    """Run mbarrier.arrive, with expect_tx if ``nbytes`` is given; ``count`` 0: expect_tx alone."""
    mbarriers = strand.cta.cluster.mbarriers
    tids = strand.active(mask)
    at, counts = rows_of(strand, addr, mask), rows_of(strand, count, mask)
    expected = None if nbytes is None else rows_of(strand, nbytes, mask)
    strand.count("arrivals", len(tids))
    for address, who in by_address(tids, at):
        barrier = mbarriers.use(strand, who, address)
        if barrier is None:
            continue
        here = at == address
        if expected is not None:
            mbarriers.expect(barrier, int(expected[here].sum()))
        if counts.any():
            mbarriers.arrive(strand, barrier, who, int(counts[here][0]), release=release)


def mbarrier_complete(strand: Strand, addr: Any, nbytes: Any, mask: Mask) -> None:
    """Run mbarrier.complete_tx."""
    mbarriers = strand.cta.cluster.mbarriers
    at, done = rows_of(strand, addr, mask), rows_of(strand, nbytes, mask)
    for address, who in by_address(strand.active(mask), at):
        barrier = mbarriers.use(strand, who, address)
        if barrier is not None:
            mbarriers.complete(barrier, int(done[at == address].sum()))


def cp_async_arrive(strand: Strand, addr: Any, counted: bool, mask: Mask) -> None:
    """Run cp.async.mbarrier.arrive; ``counted``: it expects the arrival that it makes."""
    cluster, tids = strand.cta.cluster, strand.active(mask)
    at = rows_of(strand, addr, mask)
    for address, who in by_address(tids, at):
        barrier = cluster.mbarriers.use(strand, who, address)
        if barrier is None:
            continue
        if counted:
            barrier.pending += len(who)
        strand.cta.copies.arrive_on(barrier, who, strand.event)


def mbarrier_wait(
    strand: Strand, addr: Any, parity: Any, mask: Mask, *, patient: bool = True
) -> Waiting:
    """Wait by parity; the answer is False only for a try_wait (not ``patient``) that gave up."""
    mbarriers = strand.cta.cluster.mbarriers
    tids, event = strand.active(mask), strand.event
    at, parities = rows_of(strand, addr, mask), rows_of(strand, parity, mask) & 1
    targets: list[tuple[Mbarrier, Array, int]] = []
    for both, who in by_address(tids, at * 2 + parities):
        barrier = mbarriers.use(strand, who, both // 2)
        if barrier is not None:
            targets.append((barrier, who, both % 2))

    def attempt() -> bool:
        if not all(barrier.passed(p) for barrier, _, p in targets):
            return False
        for barrier, who, _ in targets:
            mbarriers.observe(barrier, who, event)
        return True

    def describe() -> str:
        late = [(b, p) for b, _, p in targets if not b.passed(p)]
        return ", ".join(f"parity {p} of {b}: {b.state()}" for b, p in late)

    strand.count("waits")
    keys = tuple(barrier for barrier, _, _ in targets)
    return (yield from wait(Wait(tids, event, attempt, describe, keys, patient)))


def wait(request: Wait) -> Waiting:
    """Wait only if it is necessary."""
    if request.attempt():
        return True
    return (yield request)


def proxy_fence(strand: Strand, mask: Mask) -> None:
    """fence.proxy.async."""
    tids = strand.active(mask)
    strand.cta.cluster.clocks.fence(tids, strand.event)
    strand.cta.cluster.mbarriers.fence(tids)


def mbarrier_fence(strand: Strand, mask: Mask) -> None:
    """fence.mbarrier_init.release.cluster."""
    strand.cta.cluster.mbarriers.fence(strand.active(mask))


# Clusters


def map_address(strand: Strand, addr: Any, rank: Any) -> Array:
    """mapa: the address of the same byte in the CTA of that rank."""
    ranks = rows_of(strand, rank, None)
    size = len(strand.cta.cluster.ctas)
    stray = (ranks < 0) | (ranks >= size)
    if stray.any():
        ranks = np.where(stray, strand.cta.rank, ranks)
    offsets = rows_of(strand, addr, None) & ((1 << RANK_SHIFT) - 1)
    return (offsets + (ranks + 1 << RANK_SHIFT)).astype(np.uint32)


def rank_of_address(strand: Strand, addr: Any) -> Array:
    """Rank of the CTA that an address belongs to (getctarank)."""
    ranks = (rows_of(strand, addr, None) >> RANK_SHIFT) - 1
    return np.where(ranks < 0, strand.cta.rank, ranks).astype(np.uint32)


def cluster_arrive(strand: Strand, release: bool, mask: Mask) -> None:
    """Run barrier.cluster.arrive."""
    strand.cta.cluster.barrier.arrive(strand, strand.active(mask), release=release)


def cluster_wait(strand: Strand, mask: Mask) -> Waiting:
    """Run barrier.cluster.wait."""
    barrier, tids = strand.cta.cluster.barrier, strand.active(mask)
    strand.count("cluster_waits")
    return (yield from wait(
        Wait(tids, strand.event, lambda: barrier.passed(strand, tids), barrier.state)
    ))  # fmt: skip


# Warps


def elect(strand: Strand, mask: Mask) -> tuple[Array, Array]:
    """elect.sync: the leader's lane, and whether each thread is it."""
    on = np.ones(strand.n, np.bool_) if mask is None else mask
    padded = np.zeros(-(-strand.n // WARP) * WARP, np.bool_)
    padded[: strand.n] = on
    leader = np.repeat(padded.reshape(-1, WARP).argmax(axis=1), WARP)[: strand.n]
    lane = strand.tids % WARP
    return leader.astype(np.uint32), (lane == leader) & on


def stmatrix(strand: Strand, addr: Any, registers: list[Any], transposed: bool, mask: Mask) -> None:
    """Run stmatrix .m8n8 .b16."""
    mask = strand.warps(mask, "stmatrix")
    count = len(registers)
    writers = np.arange(strand.n) % WARP < 8 * count
    if mask is not None:
        writers = writers & mask
    at = shared_rows(strand, addr, 16, writers, "stmatrix")
    cta = strand.cta
    grains = at[:, None] // cta.granule + np.arange(max(1, 16 // cta.granule))
    cta.shadow.write(strand.active(writers), grains, strand.event)
    words = [np.broadcast_to(np.asarray(r), (strand.n,)).view(np.uint32) for r in registers]
    stacked = np.stack(words, axis=-1).reshape(-1, WARP, count)
    rows = stmatrix_rows(stacked, transposed=transposed)
    cta.window.bytes[at[:, None] + np.arange(16)] = rows.reshape(strand.n, 16)[writers]
    strand.count("stmatrix", active_warps(strand, mask))


# TMA


def _destinations(strand: Strand, who: Array, bar: int, cta_mask: int | None) -> list[Mbarrier]:
    """The mbarriers of the CTAs that a copy goes to, each in its own CTA."""
    cluster = strand.cta.cluster
    if cta_mask is None:
        addresses = [bar]
    else:
        offset = bar & ((1 << RANK_SHIFT) - 1)
        ranks = [r for r in range(16) if cta_mask >> r & 1]
        stray = [r for r in ranks if r >= len(cluster.ctas)]
        if stray:
            strand.hazard("out-of-bounds", "", -1, None, int(who[0]),
                          detail=f"multicast to CTA {stray[0]} of {len(cluster.ctas)}")  # fmt: skip
        addresses = [offset + (r + 1 << RANK_SHIFT) for r in ranks if r < len(cluster.ctas)]
    found = [cluster.mbarriers.use(strand, who, address, engine=True) for address in addresses]
    return [barrier for barrier in found if barrier is not None]


def _load(
    strand: Strand, tid: int, name: str, start: int, alignment: int, offsets: Array, data: Array,
    bar: int, cta_mask: int | None,
) -> None:  # fmt: skip
    """Issue one copy of ``data`` (bytes) to byte ``offsets``, checked."""
    cta = strand.cta
    if start % alignment:
        strand.hazard("misaligned", name, start, None, tid,
                      detail=f"the shared side of a bulk copy needs {alignment} bytes")  # fmt: skip
    inside = (offsets >= 0) & (offsets < cta.window.nbytes)
    if not inside.all():
        strand.hazard("out-of-bounds", name, int(offsets[~inside][0]), None, tid)
        offsets, data = offsets[inside], data[inside]
    for barrier in _destinations(strand, np.array([tid]), bar, cta_mask):
        cta.cluster.bulk.load(strand, tid, barrier, offsets, data)


def _each(strand: Strand, values: list[Any], mask: Mask) -> list[tuple[int, list[int]]]:
    """Active threads, each with its scalar operands."""
    columns = [rows_of(strand, value, mask) for value in values]
    return [(int(tid), [int(c[i]) for c in columns]) for i, tid in enumerate(strand.active(mask))]


def _local(address: int) -> int:
    return address & ((1 << RANK_SHIFT) - 1)


def tensor_load(
    strand: Strand, name: str, dst: Any, tmap: GlobalMap, coords: list[Any], bar: Any,
    cta_mask: Any, mask: Mask,
) -> None:  # fmt: skip
    """cp.async.bulk.tensor from global to shared memory."""
    multicast = [] if cta_mask is None else [cta_mask]
    for tid, (to, barrier, *rest) in _each(strand, [dst, bar, *coords, *multicast], mask):
        at, many = rest[: len(coords)], rest[len(coords) :]
        values = _box(tmap, at)
        offsets = tensor_map.shared_offsets(tmap.map, _local(to))
        spread = offsets[:, None] + np.arange(values.itemsize)
        strand.count("bulk_copies")
        _load(strand, tid, name, _local(to), SHARED_ALIGNMENT, spread.reshape(-1),
              values.view(np.uint8), barrier, many[0] if many else None)  # fmt: skip


def _box(tmap: GlobalMap, coords: list[int]) -> Array:
    """Elements of a box, filled where they are outside of the tensor."""
    index, inside = tensor_map.box_index(tmap.map, coords)
    values = tmap.elements[np.where(inside, index, 0)]
    values[~inside] = tensor_map.fill_value(tmap.map)
    return values


def tensor_store(
    strand: Strand, name: str, src: Any, tmap: GlobalMap, coords: list[Any], add: bool, mask: Mask
) -> None:
    """cp.async.bulk.tensor, or cp.reduce.async.bulk.tensor.add, from shared to global memory."""
    for tid, (start, *at) in _each(strand, [src, *coords], mask):
        index, inside = tensor_map.box_index(tmap.map, at)
        offsets = tensor_map.shared_offsets(tmap.map, start)[inside]
        _store(strand, tid, name, start, SHARED_ALIGNMENT, offsets,
               _put(tmap.elements, index[inside], add), tmap.map.itemsize)  # fmt: skip


def _put(elements: Array, index: Array, add: bool) -> Callable[[Array], None]:
    def put(values: Array) -> None:
        moved = np.ascontiguousarray(values).view(elements.dtype)
        if add:
            np.add.at(elements, index, moved)
        else:
            elements[index] = moved

    return put


def _store(
    strand: Strand, tid: int, name: str, start: int, alignment: int, offsets: Array,
    put: Callable[[Array], None], itemsize: int,
) -> None:  # fmt: skip
    """Issue one copy from elements at byte ``offsets``, checked."""
    cta = strand.cta
    if start % alignment:
        strand.hazard("misaligned", name, start, None, tid,
                      detail=f"the shared side of a bulk copy needs {alignment} bytes")  # fmt: skip
    spread = (offsets[:, None] + np.arange(itemsize)).reshape(-1)
    if len(spread) and (spread.min() < 0 or spread.max() >= cta.window.nbytes):
        strand.hazard("out-of-bounds", name, int(spread.max()), None, tid)
        return
    strand.count("bulk_copies")
    cta.cluster.bulk.store(strand, tid, spread, put)


def bulk_load(
    strand: Strand, name: str, dst: Any, src: GlobalView, start: Any, size: Any, bar: Any,
    cta_mask: Any, mask: Mask,
) -> None:  # fmt: skip
    """cp.async.bulk from global to shared memory; ``src`` is a view of bytes."""
    multicast = [] if cta_mask is None else [cta_mask]
    for tid, (to, begin, count, barrier, *many) in _each(
        strand, [dst, start, size, bar, *multicast], mask
    ):
        data = _global_bytes(strand, tid, src, begin, count)
        strand.count("bulk_copies")
        _load(strand, tid, name, _local(to), BULK_ALIGNMENT, _local(to) + np.arange(len(data)),
              data, barrier, many[0] if many else None)  # fmt: skip


def _global_bytes(strand: Strand, tid: int, view: GlobalView, begin: int, count: int) -> Array:
    """Checked bytes of a global array, as a view of it."""
    if begin % BULK_ALIGNMENT or count % BULK_ALIGNMENT:
        strand.hazard("misaligned", view.name, begin, None, tid,
                      detail=f"a bulk copy of {count} bytes")  # fmt: skip
    if begin < 0 or begin + count > view.array.size:
        strand.hazard("out-of-bounds", view.name, begin, None, tid)
        begin = max(0, begin)
    part: Array = view.array[begin : begin + count]
    return part


def bulk_store(
    strand: Strand, name: str, dst: GlobalView, begin: Any, src: Any, size: Any,
    add: np.dtype[Any] | None, mask: Mask,
) -> None:  # fmt: skip
    """cp.async.bulk, or cp.reduce.async.bulk.add of a type, from shared to global memory."""
    for tid, (to, start, count) in _each(strand, [begin, src, size], mask):
        part = _global_bytes(strand, tid, dst, to, count)
        elements = part if add is None else part.view(add)
        _store(strand, tid, name, start, BULK_ALIGNMENT, start + np.arange(len(part)),
               _put(elements, np.arange(len(elements)), add is not None), 1)  # fmt: skip


def bulk_commit(strand: Strand, mask: Mask) -> None:
    """Run cp.async.bulk.commit_group."""
    strand.cta.cluster.bulk.commit(strand.active(mask))


def bulk_wait(strand: Strand, in_flight: int, mask: Mask) -> None:
    """Run cp.async.bulk.wait_group, with or without .read."""
    strand.count("waits")
    strand.cta.cluster.bulk.wait(strand.active(mask), in_flight)


# wgmma


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
        strand.hazard("divergent-warp", "", -1, None, int(strand.tids[rows.start]),
                      detail=f"{what} varies within a warp")  # fmt: skip
    return int(values[0])


def wgmma_fence(strand: Strand, mask: Mask) -> None:
    """Run wgmma.fence: registers touched before it may be given to a wgmma after it."""
    mask = strand.warps(mask, "wgmma.fence")
    strand.registers_fenced[slice(None) if mask is None else mask] = strand.event


def wgmma_mma(
    strand: Strand, spec: Wgmma, a_type: str, d: tuple[LocalView, tuple[int, ...]],
    a: Any, b: Any, scale_d: Any, scales: tuple[int, int], majors: tuple[Any, Any],
    saturate: bool, mask: Mask,
) -> None:  # fmt: skip
    """Run wgmma.mma_async; ``a`` is a descriptor, or (view, columns) of registers."""
    mask = strand.warps(mask, "wgmma.mma_async")
    in_registers = isinstance(a, tuple)
    for rows in _warps(strand, mask):
        target = Registers(d[0], d[1], rows)
        source = Registers(a[0], a[1], rows) if in_registers else None
        operation = Operation(
            spec, a_type, None if in_registers else _same(strand, a, rows, "a descriptor"),
            _same(strand, b, rows, "a descriptor"), *majors,
            bool(_same(strand, scale_d, rows, "scale-d")), *scales, saturate,
        )  # fmt: skip
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
        strand.cta.add_hazard("missing-wgmma-fence", strand.event, buffer=registers.view.name,
                              threads=(strand.cta.local(int(strand.tids[rows.start])),),
                              other=latest)  # fmt: skip
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
            "register-in-flight", strand.event, buffer=view.name,
            threads=(strand.cta.local(int(strand.tids[rows[row]])),),
            offset=int(place) * REGISTER_BYTES, other=int(held[rows[row], place]),
            detail="a wgmma uses this register until its group is waited for",
        )  # fmt: skip
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
    return (yield from wait(Wait(
        strand.active(mask), strand.event, lambda: units.complete(strand, warps, in_flight),
        lambda: "a wgmma group that not all warps of the warpgroup have issued",
    )))  # fmt: skip
