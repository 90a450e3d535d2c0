"""One request for one function of the corpus: pipelined as asked and judged, or refused."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pipeliner import plan_of
from pipeliner.errors import PipelinerError
from pipeliner.kernel.building import pipeline_with
from pipeliner.plan.request import Request

from ..corpus.case import Case as Function
from ..corpus.harness import assert_right, run
from ..corpus.test_corpus import CASES

FUNCTIONS: Final = {case.name: case for case in CASES}

DEPTHS: Final = (1, 2, 3, 4, 5, 6)

FACTORS: Final[Mapping[str, Any]] = {
    "name": tuple(FUNCTIONS),
    "depth": DEPTHS,
    "mechanism": ("auto", "cp_async", "register", "direct"),
    "epilogue": ("auto", "rolled", "clamped", "peeled"),
    "target": ("sm_75", "sm_80", "sm_90"),
    "timing": ("late", "early", "random"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One value of each factor."""

    name: str
    depth: int
    mechanism: str = "auto"
    epilogue: str = "auto"
    target: str = "sm_80"
    timing: str = "late"

    @property
    def is_possible(self) -> bool:
        """Whether the GPU has what is asked for, and what is clamped is asynchronous."""
        if self.target == "sm_75" and self.mechanism == "cp_async":
            return False
        return self.epilogue != "clamped" or (
            self.mechanism in ("auto", "cp_async") and self.target != "sm_75"
        )

    def request(self) -> Request:
        return Request(depth=self.depth, mechanism=self.mechanism, epilogue=self.epilogue)


def outcome(asked: Asked, inputs: Mapping[str, Any] | None = None) -> str:
    """``right`` or ``refused``, in one line; anything else is an AssertionError.

    ``inputs``: default those of the corpus.
    """
    function = FUNCTIONS[asked.name]
    try:
        fast = pipeline_with(function.build(), asked.target, asked.request())
    except PipelinerError as err:
        if len(str(err).splitlines()) == 1:
            return "refused"
        raise
    inputs = function.inputs(np.random.default_rng(0)) if inputs is None else inputs
    truth = function.reference(copy.deepcopy(dict(inputs)))
    emulation = run(fast, inputs, truth, arch=asked.target, timing=asked.timing)
    assert_right(emulation, truth, function.tolerance)
    return "right"


def annotated_depths(name: str) -> set[int]:
    """Depths of the rings that the schedule's own annotations give; none without annotations."""
    plan = plan_of(pipeline_with(FUNCTIONS[name].build(), "sm_80", Request()))
    loops = [loop for loop in plan.loops if loop.pipelined and loop.source == "annotation"]
    return {ring.depth for loop in loops for ring in loop.rings}


def of_trips(function: Function, trips: int) -> dict[str, Any] | None:
    """Inputs that make the loop of ``function`` run ``trips`` times; None where they cannot."""
    rng = np.random.default_rng(trips)
    inputs = function.inputs(rng)
    if function.name == "stream_scale_dynamic":
        n = max(trips * 128 - 3, 0)
        return {"A": rng.random(n, "float32"), "n": n}
    if function.name == "annotated_dynamic_trip":
        return {"A": rng.random((16, trips), "float32"), "n": trips}
    if function.name == "grouped_gemm":
        return inputs | {"first": np.array([0, 8 * trips, 8 * trips, 8 + 8 * trips, 80], "int32")}
    return None
