"""mbarriers, clusters and warps of sm_90, as the generated code calls them.

Shared addresses are byte offsets in the CTA's window, or shared::cluster addresses, which carry
the rank of their CTA above ``RANK_SHIFT``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...diagnostics import Reason
from ..base.requests import Barrier, Fork, Program, Wait, Waiting
from ..memory.spaces import select
from .fragments import WARP, stmatrix_rows
from .issuing import IssuingGroup
from .mbarrier import RANK_SHIFT, SIZE, Mbarrier, by_address
from .warp import active_warps, rows_of, shared_rows

Array = np.ndarray[Any, Any]
Mask = Array | None


# mbarrier


def mbarrier_init(group: IssuingGroup, name: str, addr: Any, count: Any, mask: Mask) -> None:
    """Run mbarrier.init; ``name`` is the buffer's."""
    at = shared_rows(group, addr, SIZE, mask, name)
    counts = rows_of(group, count, mask)
    for tid, offset, number in zip(group.active(mask), at, counts, strict=True):
        group.cta.cluster.mbarriers.init(group, int(tid), int(offset), int(number), name)


def mbarrier_inval(group: IssuingGroup, name: str, addr: Any, mask: Mask) -> None:
    """Run mbarrier.inval."""
    at = shared_rows(group, addr, SIZE, mask, name)
    for tid, offset in zip(group.active(mask), at, strict=True):
        group.cta.cluster.mbarriers.invalidate(group, int(tid), int(offset))


def mbarrier_arrive(
    group: IssuingGroup, addr: Any, count: Any, nbytes: Any, release: bool, mask: Mask
) -> None:
    """Run mbarrier.arrive, with expect_tx if ``nbytes`` is given; ``count`` 0: expect_tx alone."""
    mbarriers = group.cta.cluster.mbarriers
    tids = group.active(mask)
    at, counts = rows_of(group, addr, mask), rows_of(group, count, mask)
    expected = None if nbytes is None else rows_of(group, nbytes, mask)
    group.count("arrivals", len(tids))
    for address, who in by_address(tids, at):
        barrier = mbarriers.use(group, who, address)
        if barrier is None:
            continue
        here = at == address
        if expected is not None:
            mbarriers.expect(barrier, int(expected[here].sum()))
        if counts.any():
            mbarriers.arrive(group, barrier, who, int(counts[here][0]), release=release)


def mbarrier_complete(group: IssuingGroup, addr: Any, nbytes: Any, mask: Mask) -> None:
    """Run mbarrier.complete_tx."""
    mbarriers = group.cta.cluster.mbarriers
    at, done = rows_of(group, addr, mask), rows_of(group, nbytes, mask)
    for address, who in by_address(group.active(mask), at):
        barrier = mbarriers.use(group, who, address)
        if barrier is not None:
            mbarriers.complete(barrier, int(done[at == address].sum()))


def cp_async_arrive(group: IssuingGroup, addr: Any, counted: bool, mask: Mask) -> None:
    """Run cp.async.mbarrier.arrive; ``counted``: it expects the arrival that it makes."""
    cluster, tids = group.cta.cluster, group.active(mask)
    at = rows_of(group, addr, mask)
    for address, who in by_address(tids, at):
        barrier = cluster.mbarriers.use(group, who, address)
        if barrier is None:
            continue
        if counted:
            barrier.pending += len(who)
        cluster.mbarriers.note_order(barrier, who)
        group.cta.copies.arrive_on(barrier, who, group.event)


def mbarrier_wait(
    group: IssuingGroup, addr: Any, parity: Any, mask: Mask, *, patient: bool = True
) -> Waiting:
    """Wait by parity; the answer is False only for a try_wait (not ``patient``) that gave up."""
    mbarriers = group.cta.cluster.mbarriers
    tids, event = group.active(mask), group.event
    at, parities = rows_of(group, addr, mask), rows_of(group, parity, mask) & 1
    targets: list[tuple[Mbarrier, Array, int]] = []
    for both, who in by_address(tids, at * 2 + parities):
        barrier = mbarriers.use(group, who, both // 2)
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

    group.count("waits")
    keys = tuple(barrier for barrier, _, _ in targets)
    return (yield from wait(Wait(tids, event, attempt, describe, keys, patient)))


def wait(request: Wait) -> Waiting:
    """Wait for ``request`` only if it is necessary; whether it succeeded."""
    if request.attempt():
        return True
    return (yield request)


def proxy_fence(group: IssuingGroup, spaces: tuple[str, ...], mask: Mask) -> None:
    """Run fence.proxy.async of these spaces."""
    tids = group.active(mask)
    group.cta.cluster.clocks.fence(tids, group.event, spaces=spaces)
    if "shared" in spaces:
        group.cta.cluster.mbarriers.fence(tids)


def mbarrier_fence(group: IssuingGroup, mask: Mask) -> None:
    """Run fence.mbarrier_init.release.cluster."""
    group.cta.cluster.mbarriers.fence(group.active(mask), inits=True)


def grid_wait(group: IssuingGroup, mask: Mask) -> None:
    """Run griddepcontrol.wait: the preceding kernel has ended, and its writes are visible."""
    tids, cta = group.active(mask), group.cta
    cta.unwaited[tids - cta.first] = False
    cta.cluster.grid.waited = True
    cta.cluster.waited.append((int(tids[0]), group.event))


# Clusters


def map_address(group: IssuingGroup, addr: Any, rank: Any, mask: Mask) -> Array:
    """Return the address of the same byte in the CTA of that rank (mapa)."""
    ranks, size = rows_of(group, rank, None), len(group.cta.cluster.ctas)
    outside = (ranks < 0) | (ranks >= size)
    wrong = outside if mask is None else outside & mask
    if wrong.any():
        row = int(np.argmax(wrong))
        group.hazard(
            "out-of-bounds",
            thread=int(group.tids[row]),
            detail=Reason("hazard.rank", rank=int(ranks[row]), size=size),
        )
    offsets = rows_of(group, addr, None) & ((1 << RANK_SHIFT) - 1)
    return (offsets + (np.where(outside, group.cta.rank, ranks) + 1 << RANK_SHIFT)).astype(
        np.uint32
    )


def rank_of_address(group: IssuingGroup, addr: Any) -> Array:
    """Return the rank of the CTA that an address belongs to (getctarank)."""
    ranks = (rows_of(group, addr, None) >> RANK_SHIFT) - 1
    return np.where(ranks < 0, group.cta.rank, ranks).astype(np.uint32)


def store_cluster(
    group: IssuingGroup, addr: Any, values: list[Any], dtype: str, mask: Mask
) -> None:
    """Run st.shared::cluster of neighbouring ``values`` of 4 bytes, a vector of them at once."""
    cluster, tids = group.cta.cluster, group.active(mask)
    at = rows_of(group, addr, mask)
    words = [_words(group, value, dtype, mask, len(at)) for value in values]
    size = 4 * len(words)
    ranks = np.where(at >> RANK_SHIFT == 0, group.cta.rank, (at >> RANK_SHIFT) - 1)
    for rank in np.unique(ranks):
        here, peer = ranks == rank, cluster.ctas[int(rank)]
        offsets, who = at[here] & (1 << RANK_SHIFT) - 1, tids[here]
        bad = (offsets % size != 0) | (offsets > peer.window.nbytes - size)
        if bad.any():
            row = int(np.argmax(bad))
            misaligned = bool(offsets[row] % size)
            group.hazard(
                "misaligned" if misaligned else "out-of-bounds",
                "st.shared::cluster",
                int(offsets[row]),
                thread=int(who[row]),
                detail=Reason("hazard.shared_alignment", multiple=size) if misaligned else "",
            )
            continue
        if not cluster.barrier.met(who):
            cluster.peers.check_started(group, who, peer)
        cluster.peers.reach(group, who, peer)
        grains = offsets[:, None] // peer.granule + np.arange(max(1, size // peer.granule))
        peer.shadow.write(who, grains, group.event)
        if cluster.moves_data:
            stored = np.stack([word[here] for word in words], axis=-1).view(np.uint8)
            peer.window.bytes[offsets[:, None] + np.arange(size)] = stored
    group.count("remote_stores", active_warps(group, mask))


def _words(group: IssuingGroup, value: Any, dtype: str, mask: Mask, count: int) -> Array:
    """Return the bits of ``value`` for each of ``count`` active threads."""
    picked = np.broadcast_to(np.asarray(select(value, mask, group.n), dtype), (count,))
    return np.ascontiguousarray(picked).view(np.uint32)


def cluster_arrive(group: IssuingGroup, release: bool, mask: Mask) -> None:
    """Run barrier.cluster.arrive."""
    cluster, tids = group.cta.cluster, group.active(mask)
    cluster.barrier.arrive(group, tids, cluster.mbarriers.told_by(tids), release=release)


def cluster_wait(group: IssuingGroup, mask: Mask) -> Waiting:
    """Run barrier.cluster.wait."""
    barrier, tids = group.cta.cluster.barrier, group.active(mask)
    group.count("cluster_waits")
    return (
        yield from wait(Wait(tids, group.event, lambda: barrier.passed(group, tids), barrier.state))
    )


# Warps


def elect(group: IssuingGroup, mask: Mask) -> tuple[Array, Array]:
    """Run elect.sync and return the leader's lane, and whether each thread is it."""
    on = np.ones(group.n, np.bool_) if mask is None else mask
    padded = np.zeros(-(-group.n // WARP) * WARP, np.bool_)
    padded[: group.n] = on
    leader = np.repeat(padded.reshape(-1, WARP).argmax(axis=1), WARP)[: group.n]
    lane = group.tids % WARP
    return leader.astype(np.uint32), (lane == leader) & on


def named_barriers(
    group: IssuingGroup, mask: Mask, numbers: Any, count: int | None = None
) -> Barrier | Fork:
    """Return the request for a named barrier whose number is each thread's own."""
    tids, of = group.active(mask), rows_of(group, numbers, mask)

    def arrive(number: int) -> Program:
        yield Barrier(tids[of == number], group.at, number, count, aligned=False)

    first, *others = (int(number) for number in np.unique(of))
    if not others:
        return Barrier(tids, group.at, first, count, aligned=False)
    return Fork(tuple(arrive(number) for number in (first, *others)))


def stmatrix(
    group: IssuingGroup, addr: Any, registers: list[Any], transposed: bool, mask: Mask
) -> None:
    """Run stmatrix .m8n8 .b16."""
    mask = group.warps(mask, "stmatrix")
    count = len(registers)
    writers = np.arange(group.n) % WARP < 8 * count
    if mask is not None:
        writers = writers & mask
    at = shared_rows(group, addr, 16, writers, "stmatrix")
    cta = group.cta
    grains = at[:, None] // cta.granule + np.arange(max(1, 16 // cta.granule))
    cta.shadow.write(group.active(writers), grains, group.event)
    group.count("stmatrix", active_warps(group, mask))
    if not cta.cluster.moves_data:
        return
    words = [np.broadcast_to(np.asarray(r), (group.n,)).view(np.uint32) for r in registers]
    stacked = np.stack(words, axis=-1).reshape(-1, WARP, count)
    rows = stmatrix_rows(stacked, transposed=transposed)
    cta.window.bytes[at[:, None] + np.arange(16)] = rows.reshape(group.n, 16)[writers]
