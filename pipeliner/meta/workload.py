"""A workload as meta_schedule knows it, and what its schedules say of themselves."""

from __future__ import annotations

import json
from typing import Any, Final

import tvm
from tvm.target import Target

from ..errors import WorkloadError
from ..kernel.compiled import only_function
from ..passes.schedule.annotations import CHOICE, REQUESTS
from ..plan.request import Request
from ..records.candidate import Candidate, workload_key, workload_of
from ..schedules import ConvTile, DepthwiseTile, GemmTile, GroupTile
from ..schedules.tiles import Tile
from ..schedules.workloads import Spec
from ..targets import accelerated, cuda_target

WORKLOAD: Final = "pipeliner.workload"
"""Attribute of a workload's function: the workload, as records know it."""

TILE: Final = "pipeliner.tile"
"""Annotation of a schedule's root block: its tile, as JSON of a candidate."""

MAIN: Final = "main"


def workload(spec: Spec) -> Any:
    """The un-scheduled function of ``spec`` as an IRModule, which remembers what it computes."""
    function = spec.function().with_attr(WORKLOAD, workload_key(spec))
    return tvm.IRModule({MAIN: function.with_attr("global_symbol", MAIN)})


def spec_of(mod: Any) -> Spec:
    """The workload that a module was made of; WorkloadError: it is another's."""
    function = only_function(mod)
    key = (function.attrs or {}).get(WORKLOAD)
    if key is None:
        raise WorkloadError("tune.not_workload")
    return workload_of(str(key))


def target(name: Any = None) -> Any:
    """The target ``name`` as meta_schedule needs it: with what it checks kernels against."""
    chosen = accelerated(cuda_target(name))
    return Target({**dict(chosen.attrs), "kind": "cuda", "max_threads_per_block": 1024})


def annotate(schedule: Any, candidate: Candidate, requests: list[Request], choice: Any) -> None:
    """Leave on the root block which tile this is, and which requests may be made of it."""
    root = schedule.get_sblock("root")
    schedule.annotate(root, TILE, Candidate(candidate.tile).to_json())
    schedule.annotate(root, REQUESTS, json.dumps([one.as_dict() for one in requests]))
    schedule.annotate(root, CHOICE, choice)


def replays(tile: Tile) -> bool:
    """Whether a schedule by ``tile`` begins with the workload's own function, as a trace has to.

    What splits its reduction, tiles image by image, folds runs, reorders operands or goes by
    channel or by row begins with another one, which no step of a trace makes.
    """
    if isinstance(tile, (DepthwiseTile, GroupTile)):
        return False
    if isinstance(tile, ConvTile) and (tile.fold or tile.by_image or tile.phases > 1):
        return False
    return not isinstance(tile, GemmTile) or (tile.splits == 1 and not tile.reordered)


def candidate_of(schedule: Any) -> Candidate:
    """The candidate that a schedule of our space is; WorkloadError: it is another's."""
    root = schedule.get(schedule.get_sblock("root")).annotations
    if TILE not in root or REQUESTS not in root:
        raise WorkloadError("tune.other_space")
    tile = Candidate.from_json(str(root[TILE])).tile
    asked = json.loads(str(root[REQUESTS]))[int(root[CHOICE])]
    return Candidate(tile, Request.from_dict(asked))
