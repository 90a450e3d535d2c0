"""Sentences about loops that are left alone, and about what orders their iterations."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Loops that are no candidates
    "loop.too_short": "{trip} iterations inside another loop: too few to overlap",
    "loop.trip": "{trip:count iteration}: nothing to overlap",
    "loop.thread_trip": "trip count depends on the thread",
    "loop.loaded_trip": "trip count is loaded from memory: threads may disagree on it",
    "loop.none": "the kernel has no serial loop: nothing repeats that could overlap",
    "loop.no_load": "no statement of the loop loads from global memory",
    "loop.divergent": "threads disagree on whether the loop runs, so no barrier can stand in it",
    "loop.own_barriers": "the body places its own barriers",
    "loop.fence": "the body {fence}: no load may move above that",
    "loop.inner_trip": (
        "a trip count in the body is loaded from '{buffer}', which others may write"
    ),
    "loop.allreduce": "a reduction across threads in the body, whose uses TVM keeps next to it",
    "loop.only_fills": "the loop only fills {buffers:list}: it belongs to the loop around it",
    "loop.indexes_registers": (
        "the loop variable indexes register buffer '{buffer}', so the loop has to be unrolled, "
        "not pipelined"
    ),
    "loop.opaque_call": "opaque call of '{function}': it may touch any memory",
    "loop.carried_loads": (
        "every load is loop-carried: it reads {buffers:quoted}, which earlier iterations write"
    ),
    "loop.carried_addresses": (
        "every load is loop-carried: its address comes from the previous iteration"
    ),
    "loop.atomic": ("the body is one atomic update, whose order with its neighbours has to stay"),
    "loop.inner": "a loop inside it is pipelined instead",
    "loop.on_host": "the loop runs on the CPU: nothing around it is bound to the GPU",
    "loop.no_kernel": (
        "no loop of '{function}' is bound to blockIdx or threadIdx: bind its loops "
        "(Schedule.bind), or schedule a workload by pipeliner.schedules"
    ),
    "host.access": (
        "'{block}' of '{function}' would run on the CPU, which cannot reach '{buffer}' in the "
        "GPU's memory: bind one of its loops to blockIdx"
    ),
    # What nothing moves across
    "fence.leaves": "leaves by '{by}'",
    "fence.takes": "takes what '{by}' found",
    "fence.waits": "waits by '{by}'",
    "fence.orders": "orders memory by '{by}'",
    "fence.polls": "waits in a loop that '{buffer}' ends",
    "fence.calls": "calls '{function}', which may touch any memory",
    "fence.in_flight": "waits for what is in flight behind the threads",
    # Buffers that keep one version
    "version.viewed": "a buffer of another type, or of padded rows, is a view of it",
    "version.moves": "its index moves with the loop",
    "version.read_first": "it is read before it is written",
    "version.loaded_condition": "it is written under a condition loaded from memory",
    "version.not_always_written": "some iterations read it without writing it",
    "version.outside": "the loop's body does not allocate it",
    "version.kept": "'{buffer}' keeps one version: {why}",
    # Epilogues
    "clamp.aliased": "a call may give one array as '{read}' and '{written}'",
    "clamp.fence": "'{op}' {fence}, and may write what copies read",
    "clamp.written": "'{writer}' writes '{buffer}', which '{copy}' reads",
    # Nests whose iterations threads may share
    "share.viewed": "bytes of '{buffer}' may be read through another view in other iterations",
    "share.reads": "it reads {read} where it stores {stored}, which another thread may write",
    "share.same_element": (
        "nothing shows that its iterations store different elements of '{buffer}', at {stored}"
    ),
    "share.loaded_index": (
        "iterations may store to the same element of '{buffer}', at {stored}: a block whose index "
        "names none twice promises so by the attribute 'pipeliner.distinct'"
    ),
    "share.one_element": "each of its statements stores one element",
    "share.in_place": "each iteration makes '{buffer}' anew of what the one before left",
    "share.block": "'{block}': {why}",
    "share.nothing": "one thread runs all: {why}",
}
