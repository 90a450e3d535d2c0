"""Random attention, planned for random GPUs, emulated and compared with float64.

python -m tests.verify.random_attention --seed 7 --seconds 60
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import pipeliner
from pipeliner.errors import PipelinerError
from pipeliner.schedules import Attention, AttentionTile
from pipeliner.schedules.loops.attention import schedule_attention
from pipeliner.schedules.loops.attention_cut import splits_of
from pipeliner.schedules.workloads import ATTENTION_LAYOUTS

TARGETS = ("h100", "h100", "h200", "a100", "rtx4090", "b200", "v100")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"depth": 2},
    {"depth": 3},
    {"instruction": "wgmma"},
    {"instruction": "mma"},
    {"mechanism": "cp_async"},
    {"mechanism": "tma"},
    {"in_flight": 0},
    {"roles": 2},
)
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2}
"""Of values of about one: the sums that the weights are rounded in, and their own rounding."""


class Trial(NamedTuple):
    """One attention, its tile, and what is asked of its plan."""

    what: Attention
    tile: AttentionTile
    target: str
    options: dict[str, Any]


class Outcome(NamedTuple):
    """``way``: how it was planned, or why not. ``wrong``: what is wrong with it, '' for nothing."""

    way: str
    wrong: str = ""


def drawn(rng: random.Random) -> Trial:
    """A trial; few of its sizes are multiples of its tile."""
    m, n = rng.choice([16, 32, 64, 64, 128]), rng.choice([16, 32, 48, 64, 96])
    heads, group = rng.choice([1, 1, 2]), rng.choice([1, 1, 2, 3])
    what = Attention(
        1,
        heads * group,
        rng.choice([1, m - 1, m, m + 5, 2 * m + 3]),
        rng.choice([1, n - 1, n, 3 * n, 3 * n + 7, 5 * n - 1]),
        rng.choice([16, 24, 32, 40, 64, 64, 64, 80, 96, 128]),
        kv_heads=heads,
        causal=rng.random() < 0.4,
        dtype=rng.choice(list(TOLERANCES)),
        layout=rng.choice(ATTENTION_LAYOUTS),
    )
    if rng.random() < 0.3:
        larger = (extent[2] + rng.choice([1, 64]) for extent in what.shapes()[:3])
        q, k, v = (extent * rng.choice([0, 1]) for extent in larger)
        what = replace(what, within=(q, k, v))
    tile = AttentionTile(m, n, persistent=rng.choice([None, None, 1, 2, 3]))
    if not what.causal and tile.persistent is None:
        splits = splits_of(-(-what.keys // n), rng.choice([1, 2, 3]))
        tile = AttentionTile(m, n, splits, grouped=rng.random() < 0.5)
    return Trial(what, tile, rng.choice(TARGETS), rng.choice(OPTIONS))


def judged(trial: Trial, seed: int) -> Outcome:
    """What became of ``trial``: only what is asked for may be refused."""
    what = trial.what
    try:
        schedule = schedule_attention(what, trial.tile)
        kernel = pipeliner.build(schedule, trial.target, **trial.options)
    except PipelinerError as err:
        return Outcome(f"refused: {type(err).__name__}", "" if trial.options else str(err))
    plan = kernel.plan
    way = f"{'by roles' if plan.roles else 'all threads'}, " + ", ".join(
        f"{one.instruction.split('.')[0]} of {one.operand}" for one in plan.matmuls
    )
    inputs = what.inputs(seed=seed)
    out = np.full(what.shapes()[3], np.nan, inputs[0].dtype)
    done = kernel.emulate(*inputs, out)
    if done.hazards:
        return Outcome(way, str(done.hazards[0]))
    error = np.abs(as_float64(done.outputs["Out"]) - what.reference(*inputs)).max()
    return Outcome(way, "" if error < TOLERANCES[what.storage] else f"error {error}")


def as_float64(values: Any) -> Any:
    """``values``, of which bfloat16 may have come as its bits."""
    if values.dtype == np.uint16:
        return (values.astype("uint32") << 16).view("float32").astype("float64")
    return values.astype("float64")


def main() -> int:
    """Run trials until the time is over; 1 if one of them was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    asked = parser.parse_args()
    rng, end, ways, wrong = random.Random(asked.seed), time.time() + asked.seconds, Counter(), 0
    while time.time() < end:
        trial = drawn(rng)
        outcome = judged(trial, asked.seed)
        ways[outcome.way] += 1
        if outcome.wrong:
            wrong += 1
            print(trial, outcome, flush=True)
    for way, count in ways.most_common():
        print(f"{count:5d}  {way}")
    print(f"{sum(ways.values())} trials, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
