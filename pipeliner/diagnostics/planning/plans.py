"""Sentences about plans: how they are written, looked up, asked for and drawn."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "plan.no_json": "cannot read plan: it is no JSON ({why})",
    "plan.deep": "cannot read plan: its lists or objects nest too deep",
    "plan.version": "cannot read plan: expected version {version} or the one before, not {found}",
    "plan.choice": "cannot read plan: expected one of {choices} at {where}, not {value}",
    "plan.type": "cannot read plan: expected {expected} at {where}, not {value}",
    "plan.unknown_field": "cannot read plan: unknown field '{name}' at {where}",
    "plan.fields": "cannot read plan: {why} at {where}",
    "plan.reason": "cannot read plan: expected a reason at {where}: {why}",
    "plan.count": "cannot read plan: expected {count:count value} at {where}, not {found}",
    "plan.not_found": "cannot find {what} '{name}' in '{where}': it has {known}",
    "plan.nothing": "none",
    "plan.no_slot": "cannot give ring '{ring}' {depth} slots: expected at least 1",
    "plan.no_ring": "cannot find ring '{ring}' in kernel '{kernel}': it has {known}",
    "plan.again": "cannot pipeline '{function}' again: it carries a plan; give the original",
    "plan.no_kernel": "cannot pipeline: {why}",
    "plan.left_alone": "cannot find a plan, the function was left alone: {why}",
    "plan.none": "cannot find a plan on '{function}': expected what pipeliner.pipeline returned",
    "plan.why_given": "cannot name the alternatives to a plan that is given: nothing was chosen",
    "refine.depth_given": "cannot choose a depth by compiling several: a {asked} is asked for",
    "refine.pipelined": ("cannot refine a function that is pipelined already; give the original"),
    "refine.roles": "depths are not compiled: roles set their registers themselves",
    "refine.loops": "depths are not compiled: expected one loop, the kernel has {loops}",
    "refine.no_matmul": (
        "depths are not compiled: expected a matmul, by which the loop is found in machine code"
    ),
    "refine.not_built": "not built with {depth:count slot}: {why}",
    "refine.registers": (
        "as built with {depth:count slot}: {registers} registers of a thread do not fit an SM of "
        "{machine}"
    ),
    "refine.stands": ("the choice stands: what ptxas made of these depths corrects no prediction"),
    "refine.depth": (
        "as built with {depth:count slot}: {us:.1f} us, {before_us:.1f} us before; {registers} "
        "registers, {estimated} estimated; {code}"
    ),
    "refine.taken": "{depth}; taken",
    "refine.no_loop": "its loop is not found in machine code",
    "refine.instructions": "{count:.0f} instructions of a warp in each step",
    "refine.conflicts": "{count:.0f} of them wait for a register bank",
    "refine.spills": "{count:.0f} of them spill or reload registers",
    "recorded.not_used": (
        "records are not used: something else is asked for than the fastest in {file}"
    ),
    "recorded.no_file": "not tuned: there is no file {file} yet; the model's choice",
    "recorded.tuned": (
        "tuned: {us:.1f} us measured, the fastest of {tried:count candidate} in {file}"
    ),
    "recorded.with_proof": "{why}; {proof}",
    "recorded.proved": "proved when it was tuned: {said:list}",
    "recorded.not_proved": "not proved when it was tuned: {said:list}",
    "recorded.setting": "knobs {setting}; {why}",
    "recorded.no_record": (
        "not tuned: {file} has no record of it on {machine} with {versions}; the model's choice"
    ),
    "recorded.other_versions": (
        "not tuned: {file} has it with {found}, not {versions}; the model's choice"
    ),
    "smaller.large": "on its own it has {flops:,} operations, more than {most:,}",
    "smaller.none": "cannot run '{workload}' on smaller extents: its plan fits none; {why}",
    "timeline.never_serial": (
        "cannot draw loop '{loop}' un-pipelined: with one slot in each ring it still has "
        "{stages:count stage}"
    ),
    "timeline.not_pipelined": "cannot draw loop '{loop}': it is not pipelined: {why}",
    "timeline.no_loop": "cannot draw '{kernel}': none of its loops is pipelined: {why}",
    "timeline.no_reason": "its plan gives no reason",
    "timeline.loopless": "it has no loop",
    "timeline.loop": "{loop}: {why}",
    "timeline.iterations": "expected iterations to be 1 to {most}, not {value}",
    "timeline.trip": "cannot draw {value} iterations of loop '{loop}': it has {trip}",
}
