"""Random programs, pipelined as randomly asked, do what they mean, and nothing is objected to.

Each runs in the emulator, on any trip count, and is compared with what its description means to
numpy. A request may be refused, in one line, but not often; without a request nothing is refused
but what the requirements of tiles say.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from pipeliner.plan.request import Request

from .random_strategies import Trial, trials
from .random_trials import KINDS, check_seed, outcome
from .tile_programs import Epilogue, Product, Tile, TileLoop, TileProgram

EXAMPLES = 30
TILES = 5
"""Programs of tiles of each seed."""
ODD = 10
"""Programs of each seed of which nothing is asked, and of which none may be refused."""


def test_random_programs_do_what_they_mean() -> None:
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(trials())
    def check(trial: Trial) -> None:
        outcomes[outcome(trial)] += 1

    check()
    assert outcomes.total() >= EXAMPLES
    assert outcomes["pipelined"] >= 0.75 * outcomes.total(), outcomes


@pytest.mark.part(4)
@pytest.mark.parametrize("number", range(4))
def test_random_programs_that_bind_no_threads_do_what_they_mean(number: int) -> None:
    outcomes = check_seed(("tiles", number), TILES)
    assert outcomes.total() >= TILES
    assert outcomes["pipelined"] >= outcomes.total() / 3, outcomes


@pytest.mark.part(2)
@pytest.mark.parametrize("number", range(2))
def test_random_programs_of_odd_statements_are_never_refused(number: int) -> None:
    outcomes = check_seed(("odd", number), ODD)
    assert outcomes.total() >= ODD
    assert not outcomes["refused"], outcomes


def test_fences_that_mapping_adds_let_copies_be_clamped() -> None:
    """Stores that wgmma reads are fenced; beside them the other operand comes by cp.async."""
    loop = TileLoop(
        "k0",
        (
            Tile("S0", "m", "bfloat16", True, True, clipped=True),
            Tile("S1", "n", "bfloat16", True, True),
            Product("acc0", "S0", "S1"),
        ),
        trips=3,
        guard="{k} < m",
    )
    program = TileProgram(
        tile=(64, 32, 16),
        grid=(1, 1),
        ragged=(0, 0),
        outer=1,
        accs=(("acc0", "float32", False),),
        loops=(loop,),
        epilogues=(Epilogue("C0", "acc0", "float32", odd="scattered"),),
    )
    trial = Trial(program, Request(), "sm_90", "early", "round-robin", n=0, m=8)
    assert outcome(trial, KINDS["odd"]) == "pipelined"
