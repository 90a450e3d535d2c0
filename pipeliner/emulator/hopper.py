"""mbarriers, clusters and warps of sm_90, as the generated code calls them.

Shared addresses are byte offsets in the CTA's window, or shared::cluster addresses, which carry
the rank of their CTA above ``RANK_SHIFT``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import Reason
from .fragments import WARP, stmatrix_rows
from .mbarrier import RANK_SHIFT, SIZE, Mbarrier, by_address
from .requests import Barrier, Fork, Program, Wait, Waiting
from .warp import active_warps, rows_of, shared_rows

if TYPE_CHECKING:
    from .machine import Strand

Array = np.ndarray[Any, Any]
Mask = Array | None


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

    def describe() -> Reason:
        late = [(b, p) for b, _, p in targets if not b.passed(p)]
        waits = [
            Reason("hazard.parity", parity=p, mbarrier=b.named(), state=b.state()) for b, p in late
        ]
        return waits[0] if len(waits) == 1 else Reason("hazard.all_of", waits=tuple(waits))

    strand.count("waits")
    keys = tuple(barrier for barrier, _, _ in targets)
    return (yield from wait(Wait(tids, event, attempt, describe, keys, patient)))


def wait(request: Wait) -> Waiting:
    """Wait only if it is necessary."""
    if request.attempt():
        return True
    return (yield request)


def proxy_fence(strand: Strand, spaces: tuple[str, ...], mask: Mask) -> None:
    """fence.proxy.async of these spaces."""
    tids = strand.active(mask)
    strand.cta.cluster.clocks.fence(tids, strand.event, spaces=spaces)
    if "shared" in spaces:
        strand.cta.cluster.mbarriers.fence(tids)


def mbarrier_fence(strand: Strand, mask: Mask) -> None:
    """fence.mbarrier_init.release.cluster."""
    strand.cta.cluster.mbarriers.fence(strand.active(mask))


def grid_wait(strand: Strand, mask: Mask) -> None:
    """griddepcontrol.wait: the kernel before has ended, and its writes are visible."""
    tids, cta = strand.active(mask), strand.cta
    cta.early[tids - cta.first] = False
    cta.cluster.grid.waited = True
    cta.cluster.waited.append((int(tids[0]), strand.event))


# Clusters


def map_address(strand: Strand, addr: Any, rank: Any, mask: Mask) -> Array:
    """The address of the same byte in the CTA of that rank (mapa)."""
    ranks, size = rows_of(strand, rank, None), len(strand.cta.cluster.ctas)
    stray = (ranks < 0) | (ranks >= size)
    wrong = stray if mask is None else stray & mask
    if wrong.any():
        row = int(np.argmax(wrong))
        strand.hazard(
            "out-of-bounds",
            thread=int(strand.tids[row]),
            detail=Reason("hazard.rank", rank=int(ranks[row]), ctas=size),
        )
    offsets = rows_of(strand, addr, None) & ((1 << RANK_SHIFT) - 1)
    return (offsets + (np.where(stray, strand.cta.rank, ranks) + 1 << RANK_SHIFT)).astype(np.uint32)


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
    return (
        yield from wait(
            Wait(tids, strand.event, lambda: barrier.passed(strand, tids), barrier.state)
        )
    )


# Warps


def elect(strand: Strand, mask: Mask) -> tuple[Array, Array]:
    """elect.sync: the leader's lane, and whether each thread is it."""
    on = np.ones(strand.n, np.bool_) if mask is None else mask
    padded = np.zeros(-(-strand.n // WARP) * WARP, np.bool_)
    padded[: strand.n] = on
    leader = np.repeat(padded.reshape(-1, WARP).argmax(axis=1), WARP)[: strand.n]
    lane = strand.tids % WARP
    return leader.astype(np.uint32), (lane == leader) & on


def named_barriers(
    strand: Strand, mask: Mask, numbers: Any, count: int | None = None
) -> Barrier | Fork:
    """The request for a named barrier whose number is each thread's own."""
    tids, of = strand.active(mask), rows_of(strand, numbers, mask)

    def arrive(number: int) -> Program:
        yield Barrier(tids[of == number], strand.at, number, count, aligned=False)

    first, *others = (int(number) for number in np.unique(of))
    if not others:
        return Barrier(tids, strand.at, first, count, aligned=False)
    return Fork(tuple(arrive(number) for number in (first, *others)))


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
