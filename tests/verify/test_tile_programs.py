"""Programs of tiles that nobody gave to threads, one for each thing that random ones found wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeliner.plan.request import Request

from .random_strategies import Trial
from .random_trials import KINDS, outcome
from .tile_programs import (
    Computed,
    Epilogue,
    Item,
    Product,
    RowSum,
    Tap,
    Tile,
    TileLoop,
    TileProgram,
    Update,
)

A, B = Tile("S0", "m", "float16"), Tile("S1", "n", "float16")
PRODUCT = Product("acc0", "S0", "S1")


def program(*body: Item, loops: tuple[TileLoop, ...] = (), **loop: Any) -> TileProgram:
    """A product of two tiles in each step, and more."""
    made = TileLoop("k0", (A, B, PRODUCT, *body), **loop)
    epilogue = Epilogue("C0", "acc0", "float32")
    accs = (("acc0", "float32", False),)
    return TileProgram((16, 32, 16), (1, 1), (0, 0), 1, accs, (made, *loops), (epilogue,))


def run(made: TileProgram, n: int = 5, m: int = 3, **asked: Any) -> str:
    trial = Trial(made, Request(**asked), "sm_80", "late", "random", n, m)
    return outcome(trial, KINDS["tiles"])


def test_what_programs_mean() -> None:
    made = program(Tap("D3", "S0"), RowSum("h", "S1"), Update("acc0"), trips="n")
    made = replace(made, tile=(16, 16, 16), ragged=(1, 3))
    arrays = made.arrays(2)
    after = made.meaning(arrays, 2, 0)
    a, b = (arrays[name].astype(float) for name in ("A0", "A1"))
    first, second = a[:, :16] @ b[:, :16].T, a[:, 16:32] @ b[:, 16:32].T
    np.testing.assert_array_equal(after["C0"][0], 1 - (1 - first + second))
    np.testing.assert_array_equal(after["D3"][0, 1, :15], a[:, 16:32])
    signs = (-1.0) ** np.arange(32)[::-1]
    np.testing.assert_array_equal(after["h_out"][0, 0, :13], b[:, :32] @ signs)
    assert not after["h_out"][0, 0, 13:].any()


def test_a_sum_along_a_row_stays_in_one_thread() -> None:
    assert run(program(RowSum("h", "S0")), depth=3) == "pipelined"


def test_tiles_without_a_product_are_given_to_threads() -> None:
    made = replace(
        program(),
        loops=(TileLoop("k0", (A, Tap("D3", "S0"))),),
        accs=(),
        epilogues=(),
    )
    assert run(made, depth=3) == "pipelined"


@pytest.mark.parametrize(("n", "m"), [(0, 6), (3, 6), (6, 3)])
@pytest.mark.part(3)
def test_a_loop_of_guarded_steps_ends_with_its_range_too(n: int, m: int) -> None:
    assert run(program(trips="n", guard="{k} < m"), n, m) == "pipelined"


@pytest.mark.parametrize("instruction", ["simt", "mma"])
@pytest.mark.part(2)
def test_two_products_on_one_accumulator(instruction: str) -> None:
    tiles = replace(A, name="S2"), replace(B, name="S3")
    more = TileLoop("k1", (*tiles, Product("acc0", "S2", "S3")))
    assert run(program(loops=(more,)), instruction=instruction) == "pipelined"


def test_products_that_one_instruction_cannot_all_be_take_another() -> None:
    tiles = replace(A, name="S2"), replace(B, name="S3")
    made = program(loops=(TileLoop("k1", (*tiles, Product("acc0", "S2", "S3"))),))
    assert run(replace(made, tile=(16, 32, 12))) == "pipelined"


@pytest.mark.parametrize("instruction", ["simt", "mma"])
@pytest.mark.part(2)
def test_one_tile_in_two_products(instruction: str) -> None:
    second = replace(B, name="S2", k_last=False, source_k_last=False)
    made = program(second, Product("acc1", "S0", "S2"), Product("acc2", "S0", "S1"))
    accs = tuple((f"acc{n}", "float32", False) for n in range(3))
    made = replace(made, accs=accs, epilogues=tuple(
        Epilogue(f"C{n}", f"acc{n}", "float32") for n in range(3)
    ))  # fmt: skip
    assert run(made, instruction=instruction) == "pipelined"


def test_a_product_of_a_tile_with_itself() -> None:
    made = program(Product("acc1", "S0", "S0"))
    made = replace(
        made,
        tile=(16, 16, 16),
        accs=(("acc0", "float32", False), ("acc1", "float32", True)),
        epilogues=(*made.epilogues, Epilogue("C1", "acc1", "float16", clipped=True)),
    )
    for instruction in ("simt", "mma"):
        assert run(made, instruction=instruction) == "pipelined"


def test_an_accumulator_that_takes_a_converted_row() -> None:
    row = Tile("S2", "n", "float16", vector=True)
    assert run(program(row, Update("acc0", "S2")), instruction="simt", depth=2) == "pipelined"


def test_a_condition_around_a_step_keeps_its_tiles_fresh() -> None:
    assert run(program(guard="{k} % 2 == 0"), depth=3) == "pipelined"


def test_a_computed_tile_feeds_a_product() -> None:
    made = TileLoop("k0", (A, B, Computed("T2", "S1", "float16", "neighbour"),
                           Product("acc0", "S0", "T2")))  # fmt: skip
    assert run(replace(program(), loops=(made,)), depth=3) == "pipelined"


def test_products_that_hold_their_accumulator_differently_are_refused() -> None:
    transposed = replace(B, name="S3", k_last=False, source_k_last=False)
    more = TileLoop("k1", (replace(A, name="S2"), transposed, Product("acc0", "S2", "S3")))
    made = replace(program(loops=(more,)), tile=(16, 64, 32))
    assert run(made, instruction="mma") == "refused"


def test_two_accumulators_in_one_block_meet_in_shared_memory() -> None:
    made = program(Product("acc1", "S0", "S1"))
    combined = Epilogue("C0", "acc0", "float32", adds="acc")
    accs = (("acc0", "float32", False), ("acc1", "float32", False))
    assert run(replace(made, accs=accs, epilogues=(combined,))) == "pipelined"
