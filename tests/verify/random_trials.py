"""One random program, run as asked and judged; as a command, many of them.

python -m tests.verify.random_trials --programs 10000 --shard 2/8
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Final

import numpy as np
import tvm
from hypothesis import HealthCheck, given, seed, settings

import pipeliner
from pipeliner.api import pipeline_with
from pipeliner.errors import PipelinerError
from pipeliner.request import Request

from .random_programs import meaning, script
from .random_strategies import Trial, trials
from .runner import add_options, options_of, run

BATCH: Final = 50
"""Programs that one seed makes."""


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
        result = kernel.emulate(
            *arrays.values(), n, trial.m, timing=trial.timing, order=trial.order, seed=trial.m
        )
        about = f"{trial}\n{text}\nn={n}"
        assert not result.hazards, "\n".join([about, *map(str, result.hazards)])
        for name, want in meaning(trial.program, arrays, n, trial.m).items():
            np.testing.assert_array_equal(result.outputs[name], want, err_msg=f"{name}\n{about}")
    if refusal is not None:
        return "refused"
    return "pipelined" if kernel.plan.pipelined else "declined"


def check_seed(number: int) -> Counter[str]:
    """Outcomes of the ``BATCH`` programs of one seed; the simplest that fails is in the error."""
    outcomes: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(trials())
    def check(trial: Trial) -> None:
        outcomes[outcome(trial)] += 1

    check()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=10_000)
    add_options(parser)
    args = parser.parse_args()
    options = options_of(args)
    seeds = options.part(range(-(-args.programs // BATCH)))
    return 0 if run("random programs", check_seed, seeds, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
