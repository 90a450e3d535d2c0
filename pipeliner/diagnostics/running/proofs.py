"""Sentences about what holds for every trip count and every interleaving."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # What holds
    "proof.proved": "{kernel}: no hazard in any interleaving, for {counts:list}",
    "proof.with_states": "{said}: {states:count state}, each met within {bound:count decision}",
    "proof.all": "every trip count of {loop} from {least} on",
    "proof.all_ends": (
        "every trip count of {loop} from {least} on, constants near its end read as so far from it"
    ),
    "proof.only": "{count} iterations of {loop}",
    "proof.values": "every value of {name} from {least} on",
    "proof.value": "{name} = {value}",
    "proof.no_loops": "its one path",
    "proof.every_order": (
        "nothing that is loaded decides a condition, an address or a wait, so that one order of "
        "threads decides all"
    ),
    # Why nothing does, or not for all
    "proof.refuted": "{kernel}: WRONG for {counts:list}: {hazard}",
    "proof.wrong": "the kernel is wrong: {said}",
    "proof.run": "at {trips:list}: {hazard}",
    "proof.trip": "{count} iterations of {loop}",
    "proof.trip_at": "{count} iterations of {loop} in iteration {around}",
    "proof.unproved": "{kernel}: not proved: {why}",
    "proof.order_matters": "one order of threads decides no other: {why}",
    "proof.seconds": "not all states were reached in {seconds:.0f} s",
    "proof.beside_nvcc": (
        "not proved in the {seconds:.1f} s that nvcc took: verify --prove takes as long as it needs"
    ),
    "proof.generations": (
        "a thread arrives at {names:list} without knowing that the phase before has completed: "
        "another order may count it in another phase"
    ),
    "proof.uneven_grid_barrier": (
        "the number of a CTA decides '{condition}', and with it which CTAs come to a barrier of "
        "the grid: some may wait for ever"
    ),
    "proof.of_extents": (
        "not for every value of {names:list}: '{decides}' decides, and is neither the same from "
        "some value on nor a comparison of a loop's variable with its trip count: values can be "
        "given"
    ),
    "proof.loops_that_grow": (
        "the trip counts of {loops:list} grow with symbolic extents, and cannot be left open: "
        "values can be given"
    ),
    "proof.many_values": (
        "what decides has too many different values of {names:list} to prove each: values can be "
        "given"
    ),
    "proof.no_launch": "with no values of {names:list} that were tried anything is launched",
    "proof.host_decides": (
        "symbolic extents decide '{condition}' on the host, and with it what is launched: values "
        "can be given"
    ),
    "proof.grid_grows": (
        "the grid grows with {names:list}, and the number of a CTA decides '{decides}': values can "
        "be given"
    ),
    "proof.renamed": "the host passes '{name}' as '{parameter}': values can be given",
    "proof.not_met": (
        "trip counts that are left open more than they are may be wrong, but no values were found "
        "that are ({run}): values can be given"
    ),
    "proof.not_determined": "one way on leads from one state to two: the state lacks something",
    "proof.load_decides": (
        "what is loaded from '{buffer}' decides a condition, an address or a wait"
    ),
    "proof.result_decides": (
        "'{buffer}', which {call} writes, decides a condition, an address or a wait"
    ),
    "proof.call_decides": "the result of {call} decides a condition, an address or a wait",
    # Where the plan says otherwise
    "proof.otherwise": "the code does otherwise than its plan: {said:list}",
    "proof.plan_threads": "the plan says {planned:count thread} a CTA, the code has {found:list}",
    "proof.plan_cluster": (
        "the plan says clusters of {planned:count CTA}, the code has {found:list}"
    ),
    "proof.plan_bytes": (
        "the plan says {planned:count byte} of shared memory, the code takes {found}"
    ),
    "proof.plan_slots": (
        "the plan says {planned:count slot} of {buffer}, the code fills slots {found:list}"
    ),
    "proof.plan_arrivals": (
        "the plan says {planned:count arrival} at {mbarrier}, the code waits for {found:list}"
    ),
    "proof.plan_barriers": "the plan says {planned:count barrier}, the code has {found}",
    "proof.plan_waits": (
        "the plan says that waits leave {planned:list} groups in flight, the code leaves "
        "{found:list}"
    ),
    # What is assumed
    "proof.of_global": "races in global memory and its bounds are judged by verify, not here",
    "proof.of_model": "the machine is as the emulator has it",
    "proof.at_gpu_scope": (
        "{kernel}: CTAs synchronise at the scope of the GPU ({calls:list}): nothing that is loaded "
        "there may decide, and each cluster runs alone; what it orders in global memory is judged "
        "by verify"
    ),
    "proof.of_ctas": (
        "the number of a CTA tells apart too many kinds of CTAs: the first cluster and the last ran"
    ),
}
