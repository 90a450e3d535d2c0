"""Counted slots: the values of the remainders, in loops of every start, length and depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

import pipeliner
from pipeliner.passes import lower
from pipeliner.passes.device.counters import has_steady_loop, roll_counters
from pipeliner.passes.ir import nodes as ir
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import Gemm
from pipeliner.values.origin import PHASE

from .sass import longest_loop, nothing
from .tiles import run, scheduled

WIDTH = 4


def writer(
    indices: Callable[[Any, Any], list[Any]],
    start: int = 0,
    phase: str = "steady",
    repeats: int = 1,
) -> Any:
    """``C[r, k, j] = indices(k, n)[j]`` for ``k`` in ``start .. start + n - 1``."""
    n = ir.Var("n", "int32")
    c = tirx.decl_buffer([repeats * n * WIDTH], "int32", "C", layout=None)

    def outer(r: Any) -> Any:
        k = ir.Var("k", "int32")
        at = (r * n + k - start) * WIDTH
        body = ir.seq(
            *[tirx.BufferStore(c, value, [at + j]) for j, value in enumerate(indices(k, n))]
        )
        return tirx.For(k, ir.i32(start), n, ir.ForKind.SERIAL, body, None, {PHASE: phase})

    func = tirx.PrimFunc([c, n], ir.loop("r", repeats, outer))
    return func.with_attr({"global_symbol": "main", "tirx.noalias": True})


def executed(func: Any, n: int, repeats: int = 1) -> Any:
    """What ``func`` writes, compiled for the CPU."""
    out = np.full(repeats * n * WIDTH, -1, np.int32)
    compiled = tvm.compile(tvm.IRModule({"main": func}), target="llvm")
    compiled["main"](out, n)
    return out.reshape(repeats, n, WIDTH)


def remainders(func: Any) -> list[Any]:
    """The remainders inside the loops of ``func`` that vary with the steady one."""
    found: list[Any] = []

    def loop(stmt: Any) -> None:
        if PHASE in stmt.annotations:
            mods: list[Any] = []
            ir.walk(stmt.body, tirx.FloorMod, mods.append)
            found.extend(mod for mod in mods if ir.uses(mod, [stmt.loop_var]))

    ir.walk(func.body, tirx.For, loop)
    return found


def ahead(depth: int, offsets: list[int], step: int = 1) -> Callable[[Any, Any], list[Any]]:
    return lambda k, n: [tirx.floormod(k * step + c, ir.i32(depth)) for c in offsets]


@pytest.mark.parametrize("start", [0, 1, 5])
@pytest.mark.parametrize("depth", [3, 5, 6, 7])
@pytest.mark.part(6)
def test_counted_slots_are_the_remainders(depth: int, start: int) -> None:
    func = writer(ahead(depth, [0, 1, depth - 1, depth + 2]), start)
    rolled = roll_counters(func)
    assert remainders(func)
    assert not remainders(rolled)
    for n in (1, 2, depth, 3 * depth + 1):
        k = np.arange(start, start + n)[:, None] + [0, 1, depth - 1, depth + 2]
        np.testing.assert_array_equal(executed(rolled, n)[0], k % depth)


@pytest.mark.parametrize("step", [2, 3, 4])
def test_an_unrolled_loop_counts_by_its_step(step: int) -> None:
    rolled = roll_counters(writer(ahead(5, [0, 1, 2, 4], step)))
    assert not remainders(rolled)
    k = np.arange(13)[:, None] * step + [0, 1, 2, 4]
    np.testing.assert_array_equal(executed(rolled, 13)[0], k % 5)


def test_a_loop_entered_again_counts_from_its_start() -> None:
    rolled = roll_counters(writer(ahead(3, [0, 1, 2, 3], 1), start=1, repeats=3))
    k = np.arange(1, 8)[:, None] + [0, 1, 2, 3]
    np.testing.assert_array_equal(executed(rolled, 7, 3), np.stack([k % 3] * 3))


def test_steady_loops_inside_each_other_have_counters_of_their_own() -> None:
    def inner(k: Any) -> Callable[[Any], Any]:
        def body(i: Any) -> Any:
            at = (k * 5 + i) * 2
            slots = tirx.floormod(k + 1, ir.i32(3)), tirx.floormod(i + k * 0 + 2, ir.i32(3))
            return ir.seq(*[tirx.BufferStore(c, slot, [at + j]) for j, slot in enumerate(slots)])

        return body

    c = tirx.decl_buffer([70], "int32", "C", layout=None)
    marks = {PHASE: "steady"}
    nest = ir.loop(
        "k", 7, lambda k: ir.loop("i", 5, inner(k), annotations=marks), annotations=marks
    )
    func = tirx.PrimFunc([c], nest).with_attr("global_symbol", "main")
    rolled = roll_counters(func)
    assert not remainders(rolled)
    out = np.zeros(70, np.int32)
    tvm.compile(tvm.IRModule({"main": rolled}), target="llvm")["main"](out)
    expected = [[(k + 1) % 3, (i + 2) % 3] for k in range(7) for i in range(5)]
    np.testing.assert_array_equal(out.reshape(35, 2), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_the_slot_of_a_clamped_iteration_is_selected(n: int) -> None:
    def indices(k: Any, size: Any) -> list[Any]:
        return [tirx.floormod(tirx.min(k + 1, size - 1), ir.i32(3))] * WIDTH

    rolled = roll_counters(writer(indices))
    assert not remainders(rolled)
    expected = np.minimum(np.arange(n) + 1, n - 1) % 3
    np.testing.assert_array_equal(executed(rolled, n)[0, :, 0], expected)


def test_a_clamp_that_iterations_may_pass_stays() -> None:
    def indices(k: Any, n: Any) -> list[Any]:
        return [tirx.floormod(tirx.min(k + 1, ir.i32(4)), ir.i32(3))] * WIDTH

    rolled = roll_counters(writer(indices))
    assert remainders(rolled)
    expected = np.minimum(np.arange(9) + 1, 4) % 3
    np.testing.assert_array_equal(executed(rolled, 9)[0, :, 0], expected)


@pytest.mark.parametrize(
    ("depth", "phase"), [(2, "steady"), (4, "steady"), (3, "prologue")], ids=str
)
def test_masks_and_other_loops_stay(depth: int, phase: str) -> None:
    func = writer(ahead(depth, [0, 1, 2, 3]), phase=phase)
    assert roll_counters(func).same_as(func)
    assert has_steady_loop(func) == (phase == "steady")


# Whole kernels.


@pytest.mark.parametrize("k", [32, 64, 96, 320])
@pytest.mark.part(2)
def test_a_pipelined_gemm_counts_and_is_right(k: int) -> None:
    """As many iterations as the ring has slots, fewer and more."""
    gemm, tile = Gemm(64, 64, k), GemmTile(64, 64, 32)
    run(gemm, tile, depth=3, tolerance=5e-3)
    lowered = pipeliner.build(pipelined(gemm, tile), "sm_80").lowered
    assert not [mod for func in lowered.functions.values() for mod in remainders(func)]


@pytest.mark.nvcc
@pytest.mark.deep("the CUDA is that of verify/test_fixed_plans.py")
def test_machine_code_divides_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm, tile = Gemm(256, 256, 1024), GemmTile(128, 128, 32)
    counted = pipeliner.build(pipelined(gemm, tile), "sm_80")
    lean = longest_loop(counted.sass)
    monkeypatch.setattr(lower, "roll_counters", nothing)
    divided = longest_loop(pipeliner.build(pipelined(gemm, tile), "sm_80").sass)
    assert len(lean) < len(divided) - 10
    assert counted.resources.stack == counted.resources.spills == 0


def pipelined(gemm: Gemm, tile: GemmTile) -> Any:
    return pipeliner.pipeline(scheduled(gemm, tile), "sm_80", depth=3)
