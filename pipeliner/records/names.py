"""What a log calls a candidate: ``wgmma/tma 128x256x64 d4 c132``; what is usual is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, cast

from ..errors import WorkloadError
from ..machine import Machine
from ..plan.request import Instruction, Request
from ..schedules import ConvTile, Gemm, GemmTile
from ..schedules.tiles.raster import square_group
from ..schedules.workloads import Spec
from .candidate import Candidate

_NAME: Final = re.compile(
    r"(?P<instruction>\w+)/(?P<mechanism>\w+) (?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+) d(?P<depth>\d+)"
    r"(?: s(?P<splits>\d+))?(?: c(?P<persistent>\d+))?(?: x(?P<cluster>\d+))?(?: f(?P<phases>\d+))?"
    r"(?P<reordered> reordered)?"
)


def named_candidate(name: str, spec: Spec, machine: Machine) -> Candidate:
    """The candidate of ``spec`` that ``name`` names; WorkloadError: it names none."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise WorkloadError("log.candidate", value=name)
    m, n, k, depth = (int(found[part]) for part in ("m", "n", "k", "depth"))
    return candidate(
        spec,
        machine,
        (found["instruction"], found["mechanism"]),
        (m, n, k),
        depth,
        splits=int(found["splits"] or 1),
        persistent=int(found["persistent"] or 0),
        cluster=int(found["cluster"] or 1),
        phases=int(found["phases"] or 0),
        reordered=found["reordered"] is not None,
    )


def candidate(
    spec: Spec,
    machine: Machine,
    way: tuple[str, str],
    extents: tuple[int, int, int],
    depth: int,
    *,
    splits: int = 1,
    persistent: int = 0,
    cluster: int = 1,
    phases: int = 0,
    reordered: bool = False,
) -> Candidate:
    """One way to compute ``spec``, of which nothing is left to the pipeliner.

    ``way``: instruction and mechanism, which is ``auto`` where operands need different ones.
    ``persistent``: its CTAs; 0: one for each tile. ``phases``: of a convolution folded into runs;
    0: not folded. ``reordered``: of operands that are first written otherwise. The rasterisation is
    that of all logs so far.
    """
    tile = GemmTile(*extents)
    if not isinstance(spec, Gemm):
        tile = ConvTile(*extents, fold=phases > 0, phases=max(1, phases))
    tile = replace(tile, splits=splits, persistent=persistent or None, reordered=reordered)
    request = Request(
        depth=depth,
        mechanism=cast(Any, way[1]),
        instruction=cast(Instruction, way[0]),
        cluster=cluster,
        consumers="cooperative",
    )
    return Candidate(replace(tile, raster_group=square_group(tile.m, tile.n, machine)), request)


def name_of(one: Candidate, spec: Spec, machine: Machine) -> str:
    """What a log calls ``one``; WorkloadError: more is to be said of it than a name does."""
    tile, asked = one.tile, one.request
    if not isinstance(tile, GemmTile):
        raise WorkloadError("log.candidate", value=one.to_json())
    phases = tile.phases if isinstance(tile, ConvTile) and tile.fold else 0
    name = f"{asked.instruction}/{asked.mechanism} {tile.m}x{tile.n}x{tile.k} d{asked.depth}"
    name += f" s{tile.splits}" * (tile.splits > 1) + f" c{tile.persistent}" * bool(tile.persistent)
    name += f" x{asked.cluster}" * (asked.cluster != 1) + f" f{phases}" * bool(phases)
    name += " reordered" * tile.reordered
    if named_candidate(name, spec, machine) != one:
        raise WorkloadError("log.candidate", value=one.to_json())
    return name
