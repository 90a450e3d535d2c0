"""One random program, run as asked and judged; as a command, many of them.

python -m tests.verify.random_trials --programs 10000 --shard 2/8

Programs whose threads are bound, among them those about views and tiles filled but never read, and
those with arrays of 2^31 elements and more; and programs of tiles that nobody gave to threads, the
odd of which ask for nothing and may never be refused. Programs that race, or do not, are judged as
they are.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import tvm
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import EmulatorError, PipelinerError
from pipeliner.kernel.building import pipeline_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.plan.request import Request

from . import (
    argument_programs,
    memory_programs,
    order_programs,
    race_oracle,
    race_programs,
    random_programs,
    random_scripts,
    tile_requirements,
    tile_scripts,
    wide_programs,
)
from .memory_strategies import memory_trials
from .random_strategies import Trial, trials
from .runner import add_options, found, options_of, run
from .tile_programs import TileProgram
from .tile_strategies import odd_trials, tile_trials
from .wide_programs import Some
from .wide_strategies import wide_trials

BATCH: Final = 50
"""Programs that one seed makes."""


@dataclass(frozen=True)
class Kind:
    """Programs of one sort: what is drawn, how it is written, and what it means.

    ``expects``: whether a refusal, by its reason, is what a trial deserves; ``refuses``: whether
    one of the call is. ``inspects``: objects to a kernel before it runs. ``blocks``: the CTAs of a
    program that run; None: all.
    """

    drawn: SearchStrategy[Trial]
    script: Callable[[Any], str]
    meaning: Callable[..., Mapping[str, Any]]
    expects: Callable[[Trial, Reason], bool]
    refuses: Callable[[Trial, str], bool] = lambda trial, message: False
    inspects: Callable[[Trial, Kernel], None] = lambda trial, kernel: None
    blocks: Callable[[Any], Any] = lambda program: None


KINDS: Final = {
    "arguments": Kind(
        argument_programs.argument_trials(),
        argument_programs.script,
        argument_programs.meaning,
        lambda trial, refusal: True,
        refuses=argument_programs.is_refused,
    ),
    "bound": Kind(
        trials(),
        random_scripts.script,
        random_programs.meaning,
        lambda trial, refusal: True,
    ),
    "memory": Kind(
        memory_trials(),
        memory_programs.script,
        memory_programs.meaning,
        lambda trial, refusal: True,
    ),
    "order": Kind(
        order_programs.order_trials(),
        order_programs.script,
        order_programs.meaning,
        lambda trial, refusal: True,
        inspects=order_programs.check_order,
    ),
    "tiles": Kind(
        tile_trials(),
        tile_scripts.script,
        TileProgram.meaning,
        tile_requirements.is_expected,
    ),
    "wide": Kind(
        wide_trials(),
        wide_programs.script,
        wide_programs.meaning,
        lambda trial, refusal: True,
        blocks=lambda program: program.blocks,
    ),
    "odd": Kind(
        odd_trials(),
        tile_scripts.script,
        TileProgram.meaning,
        lambda trial, refusal: False,
    ),
}


RACES: Final = "races"
"""The kind of programs that are judged, not pipelined."""

NAMES: Final = sorted([*KINDS, RACES])


def outcome(trial: Trial, kind: Kind = KINDS["bound"]) -> str:
    """Check ``trial``; ``pipelined``, ``declined`` (its plan says why) or ``refused``.

    What is refused is pipelined once more with every choice left open, which must work. ``call
    refused``: by what the host checks of its arguments.
    """
    text = kind.script(trial.program)
    func = tvm.script.from_source(text)
    refusal: Reason | None = None
    try:
        fast = pipeline_with(func, trial.target, trial.request)
    except PipelinerError as err:
        refusal = err.reason
    if refusal is not None:
        assert len(refusal.splitlines()) == 1
        assert kind.expects(trial, refusal), f"unexpected: {refusal}\n{trial}\n{text}"
        fast = pipeline_with(func, trial.target, Request())
    kernel = pipeliner.build(fast)
    kind.inspects(trial, kernel)
    for n in dict.fromkeys((trial.n, 0)):
        arrays = trial.program.arrays(n)
        about = f"{trial}\n{text}\nn={n}"
        options: dict[str, Any] = {"timing": trial.timing, "order": trial.order, "seed": trial.m}
        options["blocks"] = kind.blocks(trial.program)
        try:
            result = kernel.emulate(*arrays.values(), n, trial.m, **options)
        except EmulatorError as err:
            if not kind.refuses(trial, str(err)):
                raise AssertionError(about) from err
            return "call refused"
        assert not result.hazards, "\n".join([about, *map(str, result.hazards)])
        for name, want in kind.meaning(trial.program, arrays, n, trial.m).items():
            got = result.outputs[name]
            if isinstance(want, Some):
                got, want = got.reshape(-1)[want.places], want.values
            np.testing.assert_array_equal(got, want, err_msg=f"{name}\n{about}")
    if refusal is not None:
        return "refused"
    return "pipelined" if kernel.plan.pipelined else "declined"


def check_seed(item: tuple[str, int], programs: int = BATCH) -> Counter[str]:
    """Outcomes of ``programs`` of one kind and seed; the simplest that fails is in the error."""
    name, number = item
    outcomes: Counter[str] = Counter()
    drawn = race_programs.race_programs() if name == RACES else KINDS[name].drawn

    @seed(number)
    @settings(
        max_examples=programs,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(drawn)
    def check(trial: Any) -> None:
        judged = race_oracle.judged if name == RACES else partial(outcome, kind=KINDS[name])
        try:
            outcomes[judged(trial)] += 1
        except Exception:
            found(traceback.format_exc())  # to shrink it may take minutes
            raise

    check()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=10_000, help="of each kind")
    parser.add_argument("--kind", choices=NAMES, help="of all where none is named")
    add_options(parser)
    args = parser.parse_args()
    options = options_of(args)
    passed = []
    for name in [args.kind] if args.kind else NAMES:
        seeds = options.part([(name, n) for n in range(-(-args.programs // BATCH))])
        passed.append(run(f"random programs, {name}", check_seed, seeds, options.jobs))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
