"""Sentences about the choice of a kernel: what is taken, what is not, and by which numbers."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "reason.all": "{reasons}",
    "request.asked": "asked for",
    # What was compared
    "choice.predicted": (
        "predicted {us:.1f} us on {machine}, limited by {limiter}: {where}; the arithmetic by "
        "itself takes {arithmetic_us:.1f}"
    ),
    "choice.where": (
        "{start_us:.1f} to start and end, {sms_us:.1f} of the SMs with {steps_us:.1f} in steps"
    ),
    "choice.where_memory": (
        "{start_us:.1f} to start and end, {sms_us:.1f} of the SMs with {steps_us:.1f} in steps, "
        "{memory_us:.1f} of memory beside them"
    ),
    "choice.taken": "{what} is taken: {why}",
    "choice.not_taken": "{what} is not taken: {why}",
    "choice.asked": "{what} is taken, as asked for: {why}",
    "choice.times": "{us:.1f} us predicted, {other_us:.1f} us with {other}",
    "choice.only": "nothing else does what is asked for",
    "choice.only_possible": "nothing else can be had: {why}",
    "choice.only_holds": "no other instruction holds tile {tiles}",
    "choice.tile": "{tile:by}",
    "choice.sm_90": "it needs sm_90a, which the same GPU runs; the target is sm_90",
    "choice.warps_asked": (
        "a mapping to warps or threads is asked for, which mma.sync and simt have"
    ),
    "choice.persistent": (
        "the kernel is persistent, and only a producer warp copies on from one tile to the next"
    ),
    "choice.cluster": (
        "clusters of {cluster} CTAs share {copies:quoted}: {us:.1f} us predicted, {other_us:.1f} "
        "us without"
    ),
    "choice.one_thread": (
        "one thread runs the whole kernel: it binds no threads, and its nests are not shared out"
    ),
    "choice.as_made": "listed with {us:.1f} us predicted; the passes made it otherwise",
    "choice.left_alone": (
        "listed with {us:.1f} us predicted; then loop '{loop}' was left alone: {why}"
    ),
    "choice.if_asked": "it is taken only where it is asked for",
    "choice.if_none_lowers": "it is taken only where none of those that are compared lowers",
    "choice.margin": "it would have to be faster by {percent:.0%}",
    "choice.no_prediction": "no loop has a prediction",
    "choice.in_statement": "the statement waits for its load: no slot hides that",
    "elementwise.predicted": "predicted {us:.1f} us, {launch_us:.1f} us of them its launch",
    # Warp specialisation and ping-pong
    "consumers.refused": "cannot have consumers of '{kernel}' ping-pong: {why}",
    "consumers.registers": (
        "{groups:count warpgroup} for the arithmetic: {registers} registers a thread after "
        "{launched} at launch, with what the producer gives up"
    ),
    "consumers.warps": (
        "cooperative: {warps:count warp} for the arithmetic, with the registers of the launch"
    ),
    "consumers.ping_pong": (
        "ping-pong: {groups} groups of {each:count warpgroup} alternate on whole tiles, one stores "
        "while the other multiplies"
    ),
    "consumers.cooperative": "cooperative: all share each tile",
    "consumers.not_ping_pong": "cooperative, all share each tile: {why}",
    "producer.one_thread": (
        "one thread issues every copy; registers are given up by whole warpgroups"
    ),
    "producer.one_warp": "one thread of a warp issues every copy",
    "producer.epilogue": (
        "cannot give loop '{loop}' a {epilogue} epilogue: its producer warp runs ahead by itself, "
        "nothing is left to drain"
    ),
    "ping_pong.no_producer": "no producer warp copies for them by TMA",
    "ping_pong.by_warp": "only groups of warpgroups ping-pong, {warps:count warp} multiply",
    "ping_pong.one_tile": "a CTA has one tile, only a persistent kernel has several",
    "ping_pong.loops": (
        "the kernel is not one loop over tiles, each of which runs {loops:quoted} once"
    ),
    "ping_pong.pixels": "both groups would wait for the next tile's pixels ({view})",
    "ping_pong.accumulators": (
        "a thread of a group has {registers} accumulators, ping-pong gains from {least} on"
    ),
    "ping_pong.by_tile": (
        "each iteration of loop {loop} copies '{buffer}' to the same slot, which both groups would "
        "wait for before they have the token"
    ),
    "ping_pong.dtypes": "what ping-pong gains is measured for operands of 16 bits and fp8",
    "ping_pong.promoted": (
        "the sums of each step are promoted, and while one group waits for them and adds them none "
        "multiplies (at 8192 cubed, on an H100, 1.6 times as long as the same tile shared)"
    ),
    "ping_pong.fp8_columns": (
        "instructions have {columns} columns, ping-pong with fp8 gains from {least} on"
    ),
    "ping_pong.fp8_step": "steps have {k} of K, ping-pong with fp8 gains from {least} on",
    # mbarriers
    "release.never": "copied once",
    "release.by_tile": (
        "copied anew for each iteration of loop {loop}, while consumers finish the one before"
    ),
    "release.together": (
        "its slots are released with those of the shallowest ring, which are waited for first: "
        "that they are free is known by then"
    ),
    "release.late": (
        "a slot is released one step late, when its arithmetic is done and the next step's runs: "
        "{arrival}"
    ),
    "release.fragments": "a slot is released once its fragments are in registers: {arrival}",
    "release.by_warp": "one arrival a warp, behind a fence: its lanes read the slot",
    "release.by_warpgroup": "one arrival a warpgroup",
    # Clusters and launches
    "cluster.no_tma": "only TMA copies for several CTAs",
    "launch.pdl": "cannot launch '{kernel}' early on {machine}: griddepcontrol needs sm_90",
    "launch.cooperative": (
        "cannot launch '{kernel}' early: it is launched cooperatively, all of its CTAs at once"
    ),
    "launch.together": "it asks for all of its CTAs at once: no kernel starts early",
    "launch.trigger": (
        "cannot let a kernel start early behind kernel {number} of '{kernel}': it launches "
        "{kernels}"
    ),
    "launch.hidden": "a kernel's launch is hidden behind the end of the one before it",
    # Nests that are shared out over threads
    "shared_out.bound": "cannot share out '{kernel}': it binds its threads itself",
    "shared_out.no_instruction": ("not pipelined: no instruction holds what the loop computes"),
    "shared_out.nests": "not pipelined: its nests are shared out over threads, each as a whole",
    "shared_out.scalar": (
        "each thread computes elements of the tile in shared memory, one after the other"
    ),
}
