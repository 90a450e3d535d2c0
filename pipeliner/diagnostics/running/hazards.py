"""Sentences about hazards: what an execution did that nothing orders, bounds or allows."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Conflicts
    "hazard.other_cta": "a thread of CTA ({block:list}) of the cluster",
    "hazard.unordered_cta": "a thread of CTA ({block:list}), and nothing orders the two",
    "hazard.unordered_copy": (
        "an asynchronous copy of CTA ({block:list}), and nothing orders the two"
    ),
    "hazard.aliased": (
        "{buffers[0]} and {buffers[1]} share these bytes, and nothing orders their uses"
    ),
    "hazard.register_in_use": "a wgmma uses this register until its group is waited for",
    # Addresses
    "hazard.index_wraps": "an index of {bits} bits wraps at {value}",
    "hazard.alignment": (
        "an access of {nbytes} bytes needs an address that is a multiple of {nbytes}"
    ),
    "hazard.shared_alignment": "its shared address needs to be a multiple of {multiple} bytes",
    "hazard.source_alignment": (
        "cp.async of {nbytes} bytes needs a source address that is a multiple of {nbytes}"
    ),
    "hazard.bulk_alignment": (
        "a bulk copy of {nbytes} bytes needs an address and a size that are multiples of {multiple}"
    ),
    "hazard.rank": "it is of the CTA of rank {rank} in a cluster of {size}",
    "hazard.multicast": "it is multicast to the CTA of rank {rank} in a cluster of {size}",
    "hazard.foreign_mbarrier": "its mbarrier is in another CTA than its destination",
    # Work that is never waited for
    "hazard.group_unwaited": (
        "a {operation} is in flight at exit, and its group is never waited for"
    ),
    "hazard.group_uncommitted": (
        "a {operation} is in flight at exit, and its group is never committed"
    ),
    "hazard.load_unwaited": "a bulk load is in flight at exit: {mbarrier} counts it",
    "hazard.bytes_unwaited": "no thread waits for its bytes at {mbarrier}",
    # Dependent launches
    "hazard.preceding_kernel": "the preceding kernel may still run",
    "hazard.preceding_unwaited": (
        "no wait for the preceding kernel: what waits for this one may start before that has ended"
    ),
    # Threads that an instruction needs together
    "hazard.partial_warp": "{operation} needs whole warps, the CTA has {threads:count thread}",
    "hazard.divergence": "{operation} without all threads of a warp",
    "hazard.varies": "{operand} varies within a warp",
    "hazard.inactive_lane": "it reads the register of an inactive lane",
    "hazard.partial_warpgroup": "wgmma in a warpgroup of fewer than four warps",
    "hazard.different_wgmma": "the warps of a warpgroup issue different wgmma",
    # Barriers of a CTA and of a cluster
    "hazard.not_cooperative": "grid.sync() needs a cooperative launch",
    "hazard.part_of_warp": "part of a warp arrives",
    "hazard.different_counts": "threads expect different counts: {expected:list}",
    "hazard.surplus_threads": "{arrived} threads arrive where {expected} are expected",
    "hazard.different_statements": "threads meet from {count} different statements",
    "hazard.passed_by": "{arrived} of {expected} threads arrive ({who}): the CTA stops here",
    "hazard.cluster_arrives_twice": "it arrives at the cluster barrier twice without a wait",
    "hazard.cluster_waits_first": "it waits at the cluster barrier without an arrival",
    # mbarriers
    "hazard.mbarrier": "mbarrier {buffer} at byte {offset}",
    "hazard.of_cta": "{what} of CTA ({block:list})",
    "hazard.mbarrier_none": "no mbarrier is initialised there",
    "hazard.mbarrier_again": "it is initialised again without mbarrier.inval",
    "hazard.mbarrier_unordered": "its initialisation is not ordered before this use",
    "hazard.mbarrier_unfenced": "no fence.mbarrier_init follows its initialisation",
    "hazard.mbarrier_count": "it is for {arrivals:count arrival}, expected 1 to {most}",
    "hazard.surplus_arrivals": "{count:count arrival} too many: {state}",
    "hazard.phase": "phase {phase} has {arrived} of {expected:count arrival}",
    "hazard.phase_lacks": "{phase}, {nbytes:count byte} missing",
    "hazard.phase_exceeds": "{phase}, {nbytes:count byte} more than expected",
    "hazard.at_exit": "at exit {state}",
    "hazard.parity_gone": (
        "phase {phase} completes without this wait on phase {waited}, which may find its parity "
        "gone"
    ),
    "hazard.peer_started": "CTA ({block:list}) may not have started by then",
    "hazard.peer_exited": "CTA ({block:list}) may have exited by then",
    # Deadlocks
    "hazard.deadlock": "{waits:list}",
    "hazard.all_of": "{waits:list}",
    "hazard.more_waits": "and {count} more",
    "hazard.waits_for": "{who} wait for {what}",
    "hazard.waits_at": "{who} wait at barrier {barrier}: {arrived} of {expected:count thread}",
    "hazard.parity": "parity {parity} of {mbarrier}: {state}",
    "hazard.poll": "what a loop reads to change",
    "hazard.ctas_run": "{ran} of {total} CTAs are run",
    "hazard.not_resident": "the CTA that writes it may not be resident: {why}",
    "hazard.room": (
        "{machine} holds at most {most} CTAs of {threads} threads with about {registers} registers "
        "each and {nbytes} bytes of shared memory, limited by {limiter}"
    ),
    "hazard.grid_barrier": "the barrier of the grid: {arrived} of {expected:count thread}",
    "hazard.cluster_barrier": "the cluster barrier: {arrived} of {expected:count thread}",
    "hazard.wgmma_unissued": "a wgmma group that not all warps of the warpgroup have issued",
}
