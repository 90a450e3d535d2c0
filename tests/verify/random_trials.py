"""One random program, run as asked and judged."""

from __future__ import annotations

import numpy as np
import tvm

import pipeliner
from pipeliner.api import pipeline_with
from pipeliner.errors import PipelinerError
from pipeliner.request import Request

from .random_programs import meaning, script
from .random_strategies import Trial


def outcome(trial: Trial) -> str:
    """Check ``trial``; ``pipelined``, ``declined`` (its plan says why) or ``refused``.

    What is refused is pipelined once more with every choice left open, which must work.
    """
    text = script(trial.program)
    func = tvm.script.from_source(text)
    refusal: PipelinerError | None = None
    try:
        fast = pipeline_with(func, trial.target, trial.request)
    except PipelinerError as err:
        refusal = err
        fast = pipeline_with(func, trial.target, Request())
    assert refusal is None or len(str(refusal).splitlines()) == 1
    kernel = pipeliner.build(fast)
    for n in dict.fromkeys((trial.n, 0)):
        arrays = trial.program.arrays(n)
        result = kernel.emulate(*arrays.values(), n, trial.m, timing=trial.timing)
        about = f"{trial}\n{text}\nn={n}"
        assert not result.hazards, "\n".join([about, *map(str, result.hazards)])
        for name, want in meaning(trial.program, arrays, n, trial.m).items():
            np.testing.assert_array_equal(result.outputs[name], want, err_msg=f"{name}\n{about}")
    if refusal is not None:
        return "refused"
    return "pipelined" if kernel.plan.pipelined else "declined"
