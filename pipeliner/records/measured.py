"""What records hold of the kernels that a plan is compared with."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import knobs
from ..errors import PipelinerError
from ..plan import KernelPlan, LoopPlan
from ..schedules import GemmTile
from ..schedules.workloads import Spec
from . import OURS, Record, Records
from .candidate import Candidate, machine_key, versions_key, workload_key


@dataclass(frozen=True, slots=True)
class Measured:
    """The fastest times on record, in microseconds.

    ``depths``: of kernels like the planned one in all but their depths, by loop and by slots
    (``3``, or ``3+2`` where rings differ). ``tiles``: by tile. ``source``: of how many kernels, or
    empty.
    """

    depths: Mapping[tuple[str, str], float] = field(default_factory=dict)
    tiles: Mapping[GemmTile, float] = field(default_factory=dict)
    source: str = ""


def measured(
    spec: Spec, target: Any, plan: KernelPlan, tile: GemmTile, db: str | Path | None
) -> Measured:
    """What the records ``db`` (None: what PIPELINER_DB names, if there is such a file) hold.

    Of the workload, the GPU and the versions at hand. RecordsError: ``db`` is missing, or no file
    of records.
    """
    named = db or knobs.records()
    if named is None or (db is None and not Path(named).exists()):
        return Measured()
    with Records(named, create=False) as records:
        found = records.find(workload_key(spec), machine_key(target), versions_key())
    timed = [one for one in found if one.contender == OURS and not one.failure]
    depths: dict[tuple[str, str], float] = {}
    tiles: dict[GemmTile, float] = {}
    for record in timed:
        made = _tile(record)
        if made is None:
            continue
        tiles[made] = min(record.us, tiles.get(made, record.us))
        other = _plan(record) if made == tile else None
        if other is None or _apart_from_depth(other) != _apart_from_depth(plan):
            continue
        for loop in other.loops:
            at = (loop.name, _slots(loop))
            depths[at] = min(record.us, depths.get(at, record.us))
    source = f"{len(timed)} kernels in {Path(named).name}" if timed else ""
    return Measured(depths, tiles, source)


def _tile(record: Record) -> GemmTile | None:
    try:
        made = Candidate.from_json(record.candidate).tile
    except PipelinerError:  # of another version
        return None
    return made if isinstance(made, GemmTile) else None


def _plan(record: Record) -> KernelPlan | None:
    try:
        return KernelPlan.from_json(record.plan)
    except PipelinerError:  # there is none, as of what was imported
        return None


def _apart_from_depth(plan: KernelPlan) -> Hashable:
    return (
        tuple((one.instruction, one.warps) for one in plan.matmuls),
        tuple((one.op, one.mechanism) for one in plan.copies),
        plan.cluster,
        plan.ping_pong_groups,
    )


def _slots(loop: LoopPlan) -> str:
    """As a DepthOption has it."""
    depths = [ring.depth for ring in loop.rings if ring.scope.startswith("shared")] or [1]
    return str(depths[0]) if len(set(depths)) == 1 else "+".join(map(str, depths))
