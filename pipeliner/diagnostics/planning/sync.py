"""Sentences about order between threads: barriers, roles, and the shared memory that both need."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Barriers
    "sync.barrier": "barrier for {conflict}",
    "sync.conflict": "{kind} on '{buffer}'",
    "sync.conflict_between": "{kind} on '{buffer}' ({first} before {second})",
    "sync.conflict_in_bytes": "{kind} on '{buffer}' and '{other}' in the same bytes",
    "sync.conflict_in_bytes_between": (
        "{kind} on '{buffer}' and '{other}' in the same bytes ({first} before {second})"
    ),
    "sync.divergent": (
        "cannot order shared memory under the thread-dependent {where}: {conflict} needs a "
        "barrier that some threads miss"
    ),
    "sync.loop": "loop '{var}'",
    "sync.condition": "condition '{condition}'",
    "sync.needs_wgmma_wait": (
        "cannot order shared memory: {conflict} needs a wait for wgmma between, which a barrier "
        "is not"
    ),
    "sync.variable": (
        "cannot order shared memory: two loops of different ranges share variable '{variable}'"
    ),
    "sync.no_mbarriers": "cannot order '{buffer}' between roles: it has no pair of mbarriers",
    "sync.inside_role": "cannot order '{buffer}' between the statements of a role",
    # Roles
    "role.kernel": "cannot specialise the kernel by warps: {why}",
    "role.loop": "cannot specialise loop '{loop}' by warps: {why}",
    "role.outside": "'{buffer}' is shared memory outside the rings that mbarriers order",
    "role.use": "'{op}' uses '{buffer}' otherwise than as an operand of its matmul",
    "role.no_copies": "nothing is left to copy",
    "role.lacks_loop": "it lacks a loop of its plan",
    "role.no_mbarriers": "it has no pair of mbarriers",
    "role.condition": ("condition {condition} around a loop depends on what its threads compute"),
    "role.steps": (
        "{slots} slots of {rings:list} are filled {steps} steps before {fewest} of "
        "{fewest_rings:list}"
    ),
    "role.ping_pong": (
        "cannot alternate warpgroups on tiles (ping-pong): all of the kernel must be one loop "
        "over tiles, each of which runs the pipelined loop once"
    ),
    # Shared memory
    "smem.shape": (
        "cannot place shared buffer '{buffer}': its shape ({shape:list}) is not constant"
    ),
    "smem.full": (
        "cannot fit the shared memory of kernel '{kernel}': it needs {nbytes} bytes "
        "({buffers:list}), a CTA may have {budget}"
    ),
    "smem.buffer": "'{buffer}' {nbytes}",
    "smem.shared": "never alive at the same time",
    # Calls
    "call.extent": (
        "cannot call '{function}': '{extent}' of argument #{at} '{name}' is beyond {most}, all "
        "that its type int32 holds: expected type int64"
    ),
    "call.overlap": (
        "cannot call '{function}': argument #{other_at} '{other}' overlaps argument #{at} "
        "'{name}', which it writes"
    ),
    "call.partial_overlap": (
        "cannot call '{function}': argument #{other_at} '{other}' overlaps argument #{at} "
        "'{name}', which it writes, and is not the same array"
    ),
    "call.alignment": (
        "cannot call '{function}': argument #{at} '{name}' is not aligned to {nbytes} bytes, "
        "which are read or written at once; a view that begins inside an array may be: pass a "
        "copy of it"
    ),
    "call.elements": (
        "cannot index '{name}' of {elements} elements by 32 bits: expected at most {most} of "
        "them, or extents of type int64"
    ),
    "call.tensor_map": ("cannot encode tensor map '{name}': {function} of {driver} failed"),
}
