"""Our cost model as meta_schedule's, and as the check in place of its VerifyGPUCode.

VerifyGPUCode counts the buffers of a schedule, in which rings have one slot and what is unbound has
no threads. The plan knows better: a candidate passes where its request can be honoured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from ..errors import PipelinerError
from ..kernel.compiled import as_module, only_function
from ..machine import machine_for
from ..passes.lower import preparation
from ..passes.pipeline import recognised_info
from ..passes.schedule.annotations import annotated_request
from ..plan import KernelPlan
from ..space.ranking import choose
from ..targets import accelerated


def cost_model() -> Any:
    """The model of ``pipeliner.cost`` as a cost model of meta_schedule's; it learns nothing."""
    return _Model()


def postproc() -> Any:
    """Whether the plan of a candidate can be made; in place of VerifyGPUCode."""
    return _Fits()


def planned(schedule: Any, target: Any) -> KernelPlan:
    """The plan of a schedule with what it is annotated with; raises what choosing it raises."""
    chosen = accelerated(target)
    function = only_function(as_module(schedule)).with_attr("target", chosen)
    machine = machine_for(chosen)
    with chosen:
        prepared = only_function(tvm.transform.Sequential(preparation())(as_module(function)))
        request = annotated_request(prepared)
        return choose(recognised_info(prepared, machine, request), machine, request)


@derived_object
class _Model(ms.cost_model.PyCostModel):
    """Scores are runs a second, as predicted; 0 for what cannot be planned."""

    def load(self, path: str) -> None:
        """Nothing was learnt."""

    def save(self, path: str) -> None:
        """Nothing was learnt."""

    def update(self, context: Any, candidates: list[Any], results: list[Any]) -> None:
        """Nothing is learnt: the constants of a machine are measured, not fitted to a task."""

    def predict(self, context: Any, candidates: list[Any]) -> Any:
        """A score for each candidate."""
        times = [_predicted_us(one.sch, context.target) for one in candidates]
        return np.array([1e6 / us if us else 0.0 for us in times], dtype="float64")


@derived_object
class _Fits(ms.postproc.PyPostproc):
    """See ``postproc``."""

    def __init__(self) -> None:
        super().__init__()
        self._target: Any = None

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._target = context.target

    def apply(self, sch: Any) -> bool:
        try:
            planned(sch, self._target)
        except PipelinerError:
            return False
        return True

    def clone(self) -> Any:
        return _Fits()


def _predicted_us(schedule: Any, target: Any) -> float:
    try:
        return planned(schedule, target).predicted_us
    except PipelinerError:
        return 0.0
