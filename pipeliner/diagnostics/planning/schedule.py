"""Sentences about modulo schedules and rings: what they may be, and why they are as they are."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Ops of a schedule
    "schedule.op_twice": "cannot pipeline loop '{loop}': the plan names op '{op}' twice",
    "schedule.op_lacks": "cannot pipeline loop '{loop}': the plan lacks op '{op}'",
    "schedule.op_unknown": "cannot pipeline loop '{loop}': the loop has no op '{op}'",
    "schedule.op_names": "cannot pipeline loop '{loop}': op names are not unique",
    "schedule.stage": (
        "cannot pipeline loop '{loop}': op '{op}' has stage {stage}, expected 0 or more"
    ),
    "schedule.order": (
        "cannot pipeline loop '{loop}': ops {ops:quoted} have the same order {order}"
    ),
    "schedule.kind": (
        "cannot pipeline loop '{loop}': op '{op}' is of kind {kind}, the plan says {planned}"
    ),
    "schedule.of_consumers": (
        "cannot schedule loop '{loop}': consumers run one iteration a step, or two with all waits "
        "in the first stage and each ring read in one; {ops:quoted} have stages {first} and {last}"
    ),
    "schedule.pipes": "busy in a step: {pipes}",
    "schedule.busy": "{pipe} for {cycles} cycles",
    "schedule.not_overlapped": "'{op}' does not run under the arithmetic of the next step: {why}",
    "schedule.overlapped": "'{op}' of each step runs under the arithmetic of the next one",
    "schedule.loop_unknown": "cannot find loop '{loop}': the kernel has {loops:quoted}",
    # Dependences
    "schedule.dependence": (
        "cannot pipeline loop '{loop}': op '{op}' of iteration {iteration} must run after "
        "'{after}' of iteration i, {why} ({kind}), but stage {stage}, order {order} puts it "
        "{late} than stage {after_stage}, order {after_order}"
    ),
    "schedule.one_version": "{refused}; '{buffer}' has one version: {why}",
    "schedule.steps_earlier": "{steps:count step} earlier",
    "schedule.earlier_in_step": "earlier in the same step",
    "edge.fence": "the barrier '{op}' orders them",
    "edge.RAW": "it reads what it writes to '{buffer}'",
    "edge.WAR": "it overwrites what it reads from '{buffer}'",
    "edge.WAW": "it overwrites what it writes to '{buffer}'",
    # Waits
    "schedule.not_waited": (
        "cannot pipeline loop '{loop}': no wait makes the copy '{copy}' to '{buffer}' land"
    ),
    "schedule.read_before_wait": (
        "cannot pipeline loop '{loop}': op '{op}' of iteration {iteration} reads '{buffer}' with "
        "no wait between it and the copy '{copy}'"
    ),
    "schedule.overwrite_before_wait": (
        "cannot pipeline loop '{loop}': op '{op}' of iteration {iteration} overwrites '{buffer}' "
        "with no wait between it and the copy '{copy}'"
    ),
    "schedule.left_in_flight": (
        "cannot pipeline loop '{loop}': '{wait}' of stage {wait_stage} leaves '{op}' of stage "
        "{stage} in flight, which must then be of the last stage that does anything else, {last}"
    ),
    "schedule.in_flight": (
        "cannot pipeline loop '{loop}': the plan says that {planned} steps of '{op}' stay in "
        "flight, the stages of it and of '{op}.mma_wait' leave {left}"
    ),
    "schedule.waits_for_none": "cannot expand loop '{loop}': '{op}' waits for no copy",
    "schedule.waits_too_early": (
        "cannot expand loop '{loop}': '{op}' comes before what it waits for"
    ),
    "schedule.groups": (
        "cannot expand loop '{loop}': '{wait}' leaves '{op}' in flight across steps, which "
        "commits {groups} groups, not 1"
    ),
    # Resources
    "schedule.pipe": (
        "cannot pipeline loop '{loop}': pipe {pipe} is busy for {cycles} cycles of each "
        "iteration, the initiation interval is {ii}"
    ),
    "schedule.clamped": (
        "cannot clamp the epilogue of loop '{loop}': '{writer}' writes '{buffer}', which '{copy}' "
        "would read once more"
    ),
    "schedule.peeled": (
        "cannot peel the epilogue of loop '{loop}': its trip count is dynamic and rings in "
        "registers need constant slots (unrolled by {unroll})"
    ),
    # Rings
    "ring.slots": "cannot give '{buffer}' {slots} slots in loop '{loop}': {why}",
    "ring.unused": "its dependences let at most {used} be in use",
    "ring.overwritten": (
        "cannot pipeline loop '{loop}': op '{writer}' of iteration i + {depth} would overwrite "
        "slot i % {depth} of '{buffer}' before '{user}' of iteration i used it: {needed} slots "
        "needed, the ring has {depth}"
    ),
    "ring.shape": "cannot give '{buffer}' {slots} slots: its shape is not constant",
    "ring.fragments": "cannot give '{buffer}' slots: the size of its fragments is unknown",
    "ring.form": "cannot give '{buffer}' slots: it is used in a form that cannot name a slot",
    "ring.annotated": "as the annotated stages need",
    # Why a schedule is as it is
    "schedule.nothing_overlaps": ("nothing overlaps: {limiter} sets an interval of {ii} cycles"),
    "schedule.no_overlap": "nothing of loop '{loop}' overlaps: {why}",
    "schedule.none_in_flight": "no wgmma stays in flight across steps: {why}",
    "schedule.narrowed": (
        "{buffers:quoted} keep one version: more would make the interval {wide} instead of "
        "{interval} cycles"
    ),
    "schedule.no_room": (
        "'{buffer}' keeps {versions:count version}: one more does not fit in {nbytes} bytes of "
        "shared memory"
    ),
    "schedule.too_many_versions": (
        "all but copies in program order: versions of {buffers:quoted} would need {needed} of the "
        "{room} registers that a thread has beside its accumulators"
    ),
    "schedule.too_many_alive": (
        "all but copies in program order: {buffers:quoted} would take {needed} of the {room} "
        "registers that a thread has beside its accumulators at once"
    ),
    "schedule.registers": (
        "at most {versions} of each of {buffers:quoted} in registers: more would make the "
        "interval {wide} instead of {interval} cycles, and unroll the loop"
    ),
    "schedule.interval": (
        "interval {interval} instead of {bound} cycles: no placement of {ops} ops on their pipes "
        "was found for less"
    ),
    "schedule.copies_first": "copies are issued before wgmma: the next step waits for them",
    "schedule.copies_under": (
        "copies are issued while wgmma runs: they have {steps:count step} to land"
    ),
    "schedule.wgmma_in_flight": (
        "wgmma of {steps:count step} stays in flight when the next one starts: its slot is "
        "refilled {refilled} steps later"
    ),
    "ring.fewer_slots": "{rings:list}: {why}",
    "ring.has_slots": "'{buffer}' has {slots} slots instead of {planned}",
    "ahead.polled": "no copy goes above the wait for '{buffer}'",
    "ahead.fence": "the body {fence}, and no copy goes above that",
    "ahead.none": "no more are ever in use",
    # Annotations
    "annotation.unreadable": "cannot read annotation '{key}': {error}",
    "annotation.entries": (
        "cannot pipeline loop '{loop}': {key} has {entries} entries, its body has {statements} "
        "statements"
    ),
    "annotation.lengths": (
        "cannot pipeline loop '{loop}': {stage_key} has {stages} entries, {order_key} has {orders}"
    ),
    "annotation.order_twice": "cannot pipeline loop '{loop}': {key} uses {order} twice",
    "annotation.stage": "cannot pipeline loop '{loop}': {key} has stage {stage}",
    "annotation.missing": "cannot pipeline loop '{loop}': it is annotated without {key}",
    "annotation.integers": "cannot pipeline loop '{loop}': expected integers in {key}",
    "annotation.whole": "'{statement}' runs whole in stage {stage}: its {entries} entries differ",
    "annotation.staged": "annotated to pass through registers",
    "annotation.not_async": "not among the loop's software_pipeline_async_stages",
}
