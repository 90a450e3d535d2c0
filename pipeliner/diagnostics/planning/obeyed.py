"""Sentences about plans that are obeyed, about what was asked for, and about what was not taken."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Where plans differ
    "difference.entries": "{where} has {entries} entries, expected {expected} ({names:list})",
    "difference.count": "{where} has {entries} entries, expected {expected}",
    "difference.value": "{where} is {value}, expected {expected}",
    # A plan that is handed in
    "obeyed.asked": (
        "cannot obey the plan of '{kernel}' and ask for {options:list} too: the plan decides it"
    ),
    "obeyed.differs": "cannot obey the plan of '{kernel}': {difference}",
    "obeyed.follows": (
        "cannot obey the plan of '{kernel}': {difference}; leave '{field}' out to have it made anew"
    ),
    "obeyed.not_pipelined": (
        "cannot obey the plan of '{kernel}': loop '{loop}' is not pipelined: {why}"
    ),
    "obeyed.slots": (
        "cannot obey the plan of '{kernel}': ring '{buffer}' of loop '{loop}' gets {slots} slots, "
        "not {planned}"
    ),
    "obeyed.field": (
        "cannot obey the plan of '{kernel}': {field} of loop '{loop}' is {planned!r}, expected "
        "{made!r}"
    ),
    # What was asked for, and a finished plan has otherwise
    "asked.mechanism": (
        "cannot give '{kernel}' copy '{copy}' by {asked}, as asked for: as it is built, it has "
        "{found}"
    ),
    "asked.instruction": (
        "cannot give '{kernel}' '{matmul}' by {asked}, as asked for: as it is built, it has {found}"
    ),
    "asked.warps": (
        "cannot give '{kernel}' ({asked:list}) warps of '{matmul}', as asked for: as it is built, "
        "it has ({found:list})"
    ),
    "asked.thread_tile": (
        "cannot give '{kernel}' a thread tile of ({asked:list}) for '{matmul}', as asked for: as "
        "it is built, it has ({found:list})"
    ),
    "asked.operand": (
        "cannot give '{kernel}' an operand of '{matmul}' in {asked}, as asked for: as it is "
        "built, it has {found}"
    ),
    "asked.accumulate": (
        "cannot give '{kernel}' {asked} sums of '{matmul}', as asked for: as it is built, it has "
        "{found} ones, which tensor cores add up alone"
    ),
    "asked.store": (
        "cannot give '{kernel}' store '{store}' by {asked}, as asked for: as it is built, it has "
        "{found}"
    ),
    "asked.roles": (
        "cannot give '{kernel}' {asked} consumer warpgroups, as asked for: as it is built, it has "
        "{found}"
    ),
    "asked.no_box": (
        "cannot give '{kernel}' {asked} consumer warpgroups, as asked for: no producer warp can "
        "issue copy '{copy}', {why}"
    ),
    "asked.consumers": (
        "cannot give '{kernel}' {asked} consumers, as asked for: as it is built, it has {found}"
    ),
    "asked.cluster": (
        "cannot give '{kernel}' clusters of {asked}, as asked for: as it is built, it has {found}"
    ),
    "asked.pdl": (
        "cannot give '{kernel}' programmatic dependent launch {asked}, as asked for: as it is "
        "built, it has {found}"
    ),
    "asked.epilogue": (
        "cannot give '{kernel}' a {asked} epilogue of loop '{loop}', as asked for: as it is "
        "built, it has {found}"
    ),
    "asked.depth": (
        "cannot give '{kernel}' depth {asked} of '{buffer}', as asked for: as it is built, it has "
        "{found}"
    ),
    "asked.no_ring": (
        "cannot give '{kernel}' rings of depth {asked}, as asked for: as it is built, it has none"
    ),
    # Plans that were not taken
    "plan.left_to_tvm": "left to TVM's own passes, which pipeline nothing: {why}",
    "plan.not_taken": "{name} is not taken: {why}",
    "plan.bug": "bug in pipeliner: {error}",
    "plan.no_target": (
        "cannot pipeline '{function}': it has no target; bind one or enter a target's scope"
    ),
}
