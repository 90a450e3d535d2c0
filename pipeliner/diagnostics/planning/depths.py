"""Sentences about depths: how many slots a ring gets, and why not one less or one more."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # What cannot be had
    "depth.kernel": "cannot give depth {depth} to kernel '{kernel}': {why}",
    "depth.loop": "cannot give depth {depth} to loop '{loop}': {why}",
    "depth.of_loop": "loop '{loop}': {why}",
    "depth.no_serial_loop": "it has no serial loop",
    "depth.no_load": "it has no ring, as no load of it can have one",
    "depth.not_allocated": (
        "it has no ring, as its body does not allocate what its copies fill ({buffers:quoted})"
    ),
    "depth.unknown_ring": "cannot give a depth to '{ring}': '{kernel}' has rings {rings:quoted}",
    "depth.given": "depth {depth} to {buffers}",
    "depth.given_each": "depths {depths:list} to {buffers:list}",
    "depth.smem": (
        "cannot give {given}: this needs {smem} bytes of shared memory, a CTA of {machine} has "
        "{most}"
    ),
    "depth.registers": (
        "cannot give {given}: {threads} threads of about {registers} registers do not fit an SM of "
        "{machine}"
    ),
    "depth.no_fit": (
        "one slot of its tiles needs {smem} bytes of shared memory and {threads} threads of "
        "{registers} registers, more than {machine} gives a CTA"
    ),
    # The numbers of the choice
    "depth.law": (
        "R = {latency:.0f} latency + {arrival:.0f} arrival of {nbytes} bytes + {consume:.0f} "
        "consume = {response:.0f} cycles; II = {resident} x {ii:.0f} ({limiter}); ceil(R / II) = "
        "{law}"
    ),
    "depth.taken": (
        "depth {depth}: {cycles:.0f} cycles a step with {resident:count CTA} an SM ({limiter} "
        "limits)"
    ),
    "depth.less": "one less: {cycles:.0f} cycles a step, {change}",
    "depth.more": "one more: {cycles:.0f} cycles a step, {change}",
    "depth.more_fewer_ctas": (
        "one more: {cycles:.0f} cycles a step, {change}, {smem} bytes leave {left} of {resident} "
        "CTAs an SM"
    ),
    "depth.more_trip": "one more: the loop has only {trip:count iteration}",
    "depth.more_most": "one more: {most} is the most that is considered",
    "depth.more_smem": "one more: {smem} bytes of shared memory exceed {most}",
    "depth.more_registers": "one more: {registers} registers a thread do not fit",
    "depth.equal": "the same time",
    "depth.slower": "{share:.1%} slower",
    "depth.faster": "{share:.1%} faster",
    "depth.spare": (
        "{slots:count slot} more than that hide a loaded memory system: {smem} bytes are cheap"
    ),
    "depth.deepest": (
        "{depth:count slot}: the deepest ring of up to {most} that fits, with one CTA an SM"
    ),
    "depth.deepest_in_step": (
        "{depth:count slot}: the deepest ring of up to {most} that fits, with one CTA an SM: all "
        "CTAs read the same steps, memory has no more in flight than those of one ring"
    ),
    "depth.memory": ("{depth:count slot}: more bytes in flight, for memory to deliver at its rate"),
    "depth.enough": (
        "more are not compared: {enough_mb:.1f} MB in flight are enough for memory, and all CTAs "
        "read {step_mb:.1f} a step"
    ),
    "depth.left_alone": (
        "left alone, its copies would pass through registers: {us:.1f} us, {ring_us:.1f} us with "
        "a ring"
    ),
    "depth.gains_nothing": (
        "a deeper ring gains nothing: {resident:count CTA} an SM already hide R = {response:.0f} "
        "cycles at {cycles:.0f} a step (bound by {limiter})"
    ),
    # Depth per ring
    "depth.per_ring": (
        "depth per ring, {slots:list} slots of {rings:list}: {cycles:.0f} cycles a step with "
        "{resident:count CTA} an SM"
    ),
    "depth.rather_than_equal": (
        "{per_ring}; {depth} of each: {cycles:.0f} cycles, {change}, {resident:count CTA} an SM"
    ),
    "depth.idle": "of {rings:list} no more than {most} slots are in flight: {why}",
    "depth.in_order": "copies land in the order in which they were issued",
    "depth.in_registers": "one tile is staged in registers",
    "depth.from_memory": "from memory: R = {response:.0f} cycles, ceil(R / II) = {law}",
    "depth.from_l2": (
        "from L2, where all CTAs find it: R = {response:.0f} cycles, ceil(R / II) = {law}"
    ),
    # Steps of wgmma in flight
    "in_flight.asked": "steps whose wgmma stays in flight in the next: {steps}, as asked for",
    "in_flight.cannot": (
        "no wgmma of loop '{loop}' can stay in flight across steps: for that its threads copy by "
        "cp.async or TMA, and one wgmma with both operands in shared memory multiplies a step"
    ),
    "in_flight.depth": (
        "wgmma stays in flight across steps with {least} slots or more, not with {depth}"
    ),
    "in_flight.no_fit": (
        "wgmma stays in flight across steps with {least} slots or more, which take {smem} bytes of "
        "shared memory and do not fit an SM of {machine}"
    ),
    "in_flight.ctas": (
        "each step waits for its wgmma: with {slots} slots an SM has more than one CTA"
    ),
    "in_flight.one": (
        "one wgmma stays in flight across steps: {us:.1f} us, {other_us:.1f} us where each step "
        "waits for its own"
    ),
    "in_flight.none": (
        "each step waits for its wgmma: {us:.1f} us, {other_us:.1f} us with one in flight and "
        "copies a slot less ahead"
    ),
    # Loops
    "pipelined.refused": "cannot pipeline loop '{loop}': {why}",
    "pipelined.annotated": "stages and order are the schedule's own annotation",
    "pipelined.one_slot": "one slot, as asked for: nothing overlaps",
    "pipelined.short": "{trip:count iteration}: nothing to overlap",
    "pipelined.no_load": "no statement of the loop loads from global memory",
    "pipelined.nothing_ahead": "nothing can be loaded ahead: {why}",
    # Overrunning loads
    "clamped.taken": (
        "copies past the end are clamped to the last tile, without a branch in every step"
    ),
    "clamped.guarded": "copies past the end are guarded: {why}",
    "clamped.dearer": "repeating the last tile would cost more",
    "clamped.kernel": (
        "cannot clamp the epilogue of '{kernel}': no copy is asynchronous, it has {copies:list}"
    ),
    "clamped.loop": (
        "cannot clamp the epilogue of loop '{loop}': no copy is asynchronous, it has {copies:list}"
    ),
    "clamped.copy": "'{copy}' by {mechanism}",
    "clamped.none": "none",
    "clamped.overwritten": (
        "cannot clamp the epilogue of loop '{loop}': {why}; copies past the end would read the "
        "last tile again when it is written; expected a rolled epilogue"
    ),
    "k_tail.left_out": (
        "straight code for the last iterations leaves out {idle} of {steps:count k-step} of the "
        "last one, which are padding: {share:.1%} of the loop"
    ),
    "k_tail.no_padding": (
        "cannot leave '{op}' out of the last iteration of loop '{loop}': it works on more than "
        "padding there"
    ),
    # A plan that is handed in
    "decided.annotation": (
        "cannot pipeline loop '{loop}': the plan's source is 'annotation', the schedule's loop "
        "lacks TVM's pipeline annotations"
    ),
    "decided.not_waited": (
        "cannot copy '{copy}' by {mechanism}: the plan does not pipeline its loop '{loop}', and "
        "nothing waits for it there; expected register or direct"
    ),
    "decided.wgmma": (
        "cannot leave loop '{loop}' alone: wgmma reads what is copied for it asynchronously"
    ),
    "decided.mixed": (
        "cannot copy '{copy}' by {mechanism}: a producer warp makes the other copies of loop "
        "'{loop}', by tma"
    ),
    "decided.no_ring": (
        "cannot copy '{copy}' by tma: the plan gives '{buffer}' no ring in loop '{loop}'"
    ),
}
