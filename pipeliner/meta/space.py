"""The design space: a sketch for each good tile, the plan's choices sampled within it."""

from __future__ import annotations

from typing import Any, Final

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from ..bench.peers import tensor_intrinsics
from ..errors import WorkloadError
from ..machine import machine_for
from ..records.functions import Knobs
from ..tuning.space import Point
from ..tuning.space import space as points_of
from .model import postproc
from .workload import annotate, replays, spec_of

SKETCHES: Final = 32
"""Tiles, the best predicted, that become a sketch each."""


def space(sketches: int = SKETCHES) -> Any:
    """A space generator for ``pipeliner.meta.workload``: ``sketches`` tiles with their choices.

    Of tiles that a trace can replay: reductions are not split, images not tiled one by one, which
    ``pipeliner.tune`` tries too. WorkloadError, from the search: there is none, as of a depthwise
    convolution.
    """
    tensor_intrinsics()  # meta_schedule loads them for any task: 20 seconds when it does it itself
    return _Space(sketches)


@derived_object
class _Space(ms.space_generator.PySpaceGenerator):
    """See ``space``."""

    def __init__(self, sketches: int) -> None:
        super().__init__()
        self.sch_rules: list[Any] = []
        self.postprocs = [postproc()]
        self.mutator_probs: dict[Any, float] = {}
        self._sketches = sketches
        self._machine: Any = None
        self._target: Any = None

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._target = context.target
        self._machine = machine_for(context.target)
        for one in self.postprocs:
            one._initialize_with_tune_context(context)

    def generate_design_space(self, mod: Any) -> list[Any]:
        """A schedule for each tile, in the order of their predictions."""
        spec = spec_of(mod)
        tiles: dict[Any, list[Point]] = {}
        for point in points_of(spec, self._machine):
            tile = point.candidate.tile
            if not isinstance(tile, Knobs) and replays(tile):
                tiles.setdefault(tile, []).append(point)
        if not tiles:
            raise WorkloadError("tune.traces", workload=spec.name)
        made = []
        for points in list(tiles.values())[: self._sketches]:
            candidates = [point.candidate for point in points]
            schedule = candidates[0].function(spec)
            share = [1.0 / len(candidates)] * len(candidates)
            choice = schedule.sample_categorical(list(range(len(candidates))), share)
            annotate(schedule, candidates[0], [one.request for one in candidates], choice)
            made.append(schedule)
        return made

    def clone(self) -> Any:
        return _Space(self._sketches)
