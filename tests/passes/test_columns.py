"""Arithmetic on columns of sums: parts in registers, put together where they are read."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import LoweringError
from pipeliner.kernel.compiled import Kernel
from pipeliner.mutation import mutate

from ..refusals import gives, refused
from .column_kernels import HOWS, STEP, expected, operands, with_columns

SHAPE, TILE = (128, 128, 192), (64, 64)
WAYS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "roles": ("h100", {"roles": 1}),
    "wgmma": ("h100", {"roles": 0, "instruction": "wgmma"}),
    "warps": ("h100", {"instruction": "mma", "mechanism": "tma"}),
    "mma": ("a100", {}),
}
ROLES = ("roles", "warps")
IN_REGISTERS = [how for how in HOWS if how != "unlike"]


def emulated(kernel: Kernel, how: str, shape: Any = SHAPE, tile: Any = TILE) -> list[str]:
    """What is wrong with what ``kernel`` makes."""
    a, b = operands(shape)
    wanted = expected(how, a, b, tile)
    outs = [np.full(one.shape, np.nan, "float32") for one in wanted]
    done = kernel.emulate(a, b, *outs, order="random", timing="late")
    made = done.outputs["L"], done.outputs["C"]
    wrong = [
        f"{name} is off"
        for name, got, want in zip("LC", made, wanted, strict=True)
        if not np.allclose(got, want, rtol=1e-5, atol=1e-3)
    ]
    return [*map(str, done.hazards), *wrong]


def stays_in_registers(kernel: Kernel) -> bool:
    left = ("mapped.through_shared", "mapped.shared")
    return not any(gives(reason, code) for reason in kernel.plan.reasons for code in left)


@pytest.mark.part(2)
@pytest.mark.parametrize("how", IN_REGISTERS)
@pytest.mark.parametrize("way", WAYS)
def test_threads_keep_what_they_have_of_a_column(way: str, how: str) -> None:
    target, asked = WAYS[way]
    if how == "each_step" and way in ROLES:
        asked = {}  # refused, see below
    kernel = pipeliner.build(with_columns(how, SHAPE, TILE), target, **asked)
    assert stays_in_registers(kernel), kernel.plan.reasons
    assert bool(kernel.plan.roles) == (way in ROLES and bool(asked))
    assert not emulated(kernel, how)


@pytest.mark.parametrize("how", ["sum", "max"])
@pytest.mark.parametrize("way", ["roles", "mma"])
def test_rows_beyond_the_last_count_as_none(way: str, how: str) -> None:
    shape, (target, asked) = (100, 128, 128), WAYS[way]
    kernel = pipeliner.build(with_columns(how, shape, TILE), target, **asked)
    assert stays_in_registers(kernel)
    assert not emulated(kernel, how, shape)


@pytest.mark.parametrize("tile", [(128, 64), (64, 128)])
def test_warpgroups_share_columns_or_lie_side_by_side(tile: tuple[int, int]) -> None:
    kernel = pipeliner.build(with_columns("less_mean", SHAPE, tile), "h100", roles=2)
    assert not emulated(kernel, "less_mean", tile=tile)


@pytest.mark.parametrize("consumers", ["cooperative", "ping-pong"])
def test_a_cta_that_takes_several_tiles_begins_each_anew(consumers: Any) -> None:
    shape, tile = (128, 256, 128), (128, 64) if consumers == "cooperative" else (64, 64)
    made = with_columns("sum", shape, tile, each=2)
    kernel = pipeliner.build(made, "h100", roles=2, consumers=consumers)
    assert not emulated(kernel, "sum", shape, tile)


def test_tiles_that_lie_otherwise_meet_in_shared_memory() -> None:
    kernel = pipeliner.build(with_columns("unlike", SHAPE, TILE), "a100")
    assert not stays_in_registers(kernel)
    assert not emulated(kernel, "unlike")


def test_which_roles_cannot() -> None:
    with refused("registers.places", LoweringError):
        pipeliner.pipeline(with_columns("unlike", SHAPE, TILE), "h100", roles=1)


@pytest.mark.parametrize("way", ROLES)
def test_nor_put_columns_together_in_each_step(way: str) -> None:
    target, asked = WAYS[way]
    with refused("registers.columns_in_step", LoweringError, buffer="columns"):
        pipeliner.pipeline(with_columns("each_step", SHAPE, TILE), target, **asked)


@pytest.mark.parametrize("way", ["roles", "mma"])
@pytest.mark.slow
def test_every_mutant_dies(way: str) -> None:
    shape, (target, asked) = (64, 128, 4 * STEP), WAYS[way]
    a, b = operands(shape)
    made = with_columns("less_mean", shape, TILE, each=2)
    kernel = pipeliner.build(made, target, depth=2, **asked)
    wanted = dict(zip("LC", expected("less_mean", a, b, TILE), strict=True))
    outs = [np.zeros(one.shape, "float32") for one in wanted.values()]
    report = mutate(kernel, (a, b, *outs), reference=lambda *_: wanted)
    assert report.ok, report


@pytest.mark.nvcc
@pytest.mark.parametrize("how", ["less_mean", "in_loop"])
@pytest.mark.parametrize("target", ["h200", "a100"])
def test_nothing_spills_and_no_wgmma_waits_for_another(target: str, how: str) -> None:
    kernel = pipeliner.build(with_columns(how, (512, 512, 4096), (128, 128)), target)
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
