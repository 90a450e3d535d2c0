"""List the passes in the order in which they run, by the site where they do.

A function goes through the sites one after the other. The order is what ``lower`` and
``carry_out`` do; a test runs kernels through them and compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .copy.copies import lower_copies
from .device.addresses import split_addresses
from .device.alignment import show_alignment
from .device.check_arguments import check_arguments, take_addresses
from .device.counters import roll_counters
from .device.flattened import flatten_indices
from .device.joined_guards import join_guards
from .device.kept_rank import keep_rank
from .device.packed_bytes import pack_bytes
from .device.signed import keep_signed
from .device.typed_pointers import type_pointers
from .expand.rewrite import expand
from .ir.named_pass import Pass
from .ir.wide_indices import check_extents, widen_indices, widen_offsets
from .map.beside import map_beside
from .map.elementwise import map_elementwise
from .map.instructions import map_tiles
from .matmul.descriptors import compute_once
from .pipeline import pipeline_function
from .prepare.allocations import give_to_blocks
from .prepare.match_buffers import inline_matches
from .prepare.name_memory import name_memory
from .prepare.partial_sums import add_partial_sums
from .prepare.pinned_rings import pin_rings, unpin_rings
from .recognise.facts import recognise
from .schedule.loops import schedule_loops
from .smem.arena import apply_arena
from .smem.place import place
from .smem.shared_names import name_shared
from .specialise.slice import specialise
from .sync.labels import label
from .sync.launch import dependent_launches
from .sync.synchronise import synchronise


@dataclass(frozen=True, slots=True)
class Site:
    """A part of the pipeline: what it works on, the file that runs it, and its passes."""

    name: str
    file: str
    meaning: str
    passes: tuple[Pass[..., Any], ...]


SITES: Final = (
    Site(
        "preparation",
        "passes/lower.py",
        "on a scheduled function, among TVM's passes that make its blocks opaque",
        (
            add_partial_sums,
            give_to_blocks,
            inline_matches,
            name_memory,
            pin_rings,
            widen_indices,
            unpin_rings,
        ),
    ),
    Site("slot", "passes/lower.py", "on a prepared function", (pipeline_function,)),
    Site(
        "Pipeline",
        "passes/carry_out.py",
        "on a prepared function, for one plan after the other until one can be carried out",
        (
            recognise,
            map_tiles,
            lower_copies,
            schedule_loops,
            expand,
            specialise,
            map_elementwise,
            map_beside,
            place,
            synchronise,
            label,
            compute_once,
            dependent_launches,
        ),
    ),
    Site(
        "suffix",
        "passes/lower.py",
        "on a pipelined function, among TVM's passes that lower it to host and device functions",
        (
            widen_offsets,
            check_extents,
            flatten_indices,
            apply_arena,
            check_arguments,
            take_addresses,
        ),
    ),
    Site(
        "device",
        "passes/lower.py",
        "on device functions, before CUDA is printed",
        (
            split_addresses,
            roll_counters,
            keep_signed,
            show_alignment,
            join_guards,
            pack_bytes,
            type_pointers,
            keep_rank,
            name_shared,
        ),
    ),
)

PASSES: Final = tuple(one for where in SITES for one in where.passes)
"""All of them, in their order."""


def site_of(one: Pass[..., Any]) -> Site:
    """Return where ``one`` runs."""
    return next(where for where in SITES if one in where.passes)
