"""Copies of the loop over a CTA's tiles are channels of that loop, whatever the tiles compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.mutation import mutate
from pipeliner.mutation.mutants import mutants, mutated
from pipeliner.schedules import Attention, AttentionTile, schedule_attention
from tests.refusals import gives, refused

SIZE, CTAS, TILES, STEPS = 64, 2, 3, 4
ROWS = SIZE * CTAS * TILES
LOWEST = -3.0e38


def largest(steps: Callable[[Any, Any], Any], again: int = 0) -> Any:
    """The largest product of each row of A with the rows of B that its tile sees.

    ``steps``: how many tiles of B tile ``t`` of a CTA sees. ``again``: behind those so many anew.
    """

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((ROWS, SIZE), "float16"),
        B: T.Buffer((STEPS * SIZE, SIZE), "float16"),
        Most: T.Buffer((ROWS,), "float32"),
    ):
        T.func_attr({"global_symbol": "largest", "tirx.noalias": True})
        for cta in T.thread_binding(CTAS, thread="blockIdx.x"):
            for t in range(TILES):
                with T.sblock("tile"):
                    T.reads()
                    T.writes()
                    A_shared = T.sblock_alloc_buffer((SIZE, SIZE), "float16", scope="shared")
                    most = T.sblock_alloc_buffer((SIZE,), "float32", scope="local")
                    for i, k in T.grid(SIZE, SIZE):
                        with T.sblock("A_shared"):
                            A_shared[i, k] = A[(t * CTAS + cta) * SIZE + i, k]
                    for i in range(SIZE):
                        with T.sblock("most_init"):
                            most[i] = T.float32(LOWEST)
                    for s in range(steps(t, cta)):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            B_shared = T.sblock_alloc_buffer(
                                (SIZE, SIZE), "float16", scope="shared"
                            )
                            sums = T.sblock_alloc_buffer((SIZE, SIZE), "float32", scope="local")
                            for j, k in T.grid(SIZE, SIZE):
                                with T.sblock("B_shared"):
                                    B_shared[j, k] = B[s * SIZE + j, k]
                            for i, j in T.grid(SIZE, SIZE):
                                with T.sblock("sums_init"):
                                    sums[i, j] = T.float32(0)
                            for i, j, k in T.grid(SIZE, SIZE, SIZE):
                                with T.sblock("sums"):
                                    sums[i, j] = sums[i, j] + T.Cast(
                                        "float32", A_shared[i, k]
                                    ) * T.Cast("float32", B_shared[j, k])
                            for i, j in T.grid(SIZE, SIZE):
                                with T.sblock("most"):
                                    most[i] = T.max(most[i], sums[i, j])
                    if again > 0:
                        for s in range(again):
                            with T.sblock("step_again"):
                                T.reads()
                                T.writes()
                                D_shared = T.sblock_alloc_buffer(
                                    (SIZE, SIZE), "float16", scope="shared"
                                )
                                more = T.sblock_alloc_buffer((SIZE, SIZE), "float32", scope="local")
                                for j, k in T.grid(SIZE, SIZE):
                                    with T.sblock("D_shared"):
                                        D_shared[j, k] = B[s * SIZE + j, k]
                                for i, j in T.grid(SIZE, SIZE):
                                    with T.sblock("more_init"):
                                        more[i, j] = T.float32(0)
                                for i, j, k in T.grid(SIZE, SIZE, SIZE):
                                    with T.sblock("more"):
                                        more[i, j] = more[i, j] + T.Cast(
                                            "float32", A_shared[i, k]
                                        ) * T.Cast("float32", D_shared[j, k])
                                for i, j in T.grid(SIZE, SIZE):
                                    with T.sblock("most_again"):
                                        most[i] = T.max(most[i], more[i, j])
                    for i in range(SIZE):
                        with T.sblock("Most"):
                            Most[(t * CTAS + cta) * SIZE + i] = most[i]

    return func


def every(tile: Any, cta: Any) -> Any:
    return STEPS


def some(tile: Any, cta: Any) -> Any:
    """None of tile 0 of CTA 0, then one or two."""
    return (tile + cta) % 3


def expected(a: Any, b: Any, steps: Callable[[int, int], int], again: int) -> Any:
    """Their largest products, tile by tile."""
    products = a.astype("float32") @ b.astype("float32").T
    found = np.full(ROWS, np.float32(LOWEST))
    for tile in range(TILES * CTAS):
        seen = max(steps(tile // CTAS, tile % CTAS), again) * SIZE
        rows = slice(tile * SIZE, (tile + 1) * SIZE)
        if seen:
            found[rows] = products[rows, :seen].max(1)
    return found


@pytest.mark.parametrize(
    ("steps", "again", "target", "options"),
    [
        (every, 2, "h100", {}),
        (some, 0, "h100", {}),
        (some, 0, "b200", {"mechanism": "tma"}),
    ],
    ids=["two loops", "tiles without a step", "by warps"],
)
def test_each_tile_waits_for_its_own_copy(
    steps: Any, again: int, target: str, options: dict[str, Any]
) -> None:
    kernel = pipeliner.build(largest(steps, again), target, **options)
    channel = next(pair for pair in kernel.plan.mbarriers if pair.rings == ("A_shared",))
    assert (channel.loop, channel.full, channel.empty) == ("t", "full_A_shared", "empty_A_shared")
    assert channel.arrivals == (1 if target == "h100" else 4)
    assert gives(channel.reason, "release.by_tile", loop="t")
    random = np.random.default_rng(3)
    a = random.standard_normal((ROWS, SIZE)).astype("float16")
    b = random.standard_normal((STEPS * SIZE, SIZE)).astype("float16")
    done = kernel.emulate(a, b, np.full(ROWS, np.nan, "float32"))
    assert not done.hazards
    np.testing.assert_allclose(
        done.outputs["Most"], expected(a, b, steps, again), rtol=1e-4, atol=1e-3
    )


def test_consumers_that_have_a_tile_each_do_not_share_such_a_slot() -> None:
    with refused("ping_pong.by_tile", PlanError, buffer="A_shared", loop="t"):
        pipeliner.build(largest(every), "h100", consumers="ping-pong")


def persistent(causal: bool) -> tuple[Attention, Any]:
    """Attention of two tiles a CTA, with rings that wrap in each, and its kernel."""
    queries, keys = (256, 256) if causal else (128, 200)
    what = Attention(1, 2, queries, keys, 64, causal=causal)
    schedule = schedule_attention(what, AttentionTile(64, 64, persistent=2))
    return what, pipeliner.build(schedule, "h100", depth=2)


def test_without_a_release_the_next_tile_never_comes() -> None:
    what, kernel = persistent(causal=False)
    own = [one for one in mutants(kernel.lowered) if "empty_Q_shared.release" in str(one)]
    release = next(one for one in own if one.change == "deleted")
    out = np.full(what.shapes()[3], np.nan, "float16")
    done = pipeliner.emulate(mutated(kernel.lowered, release), [*what.inputs(seed=1), out])
    assert done.hazards[0].kind == "deadlock"


@pytest.mark.deep("its release alone, above")
@pytest.mark.parametrize("causal", [False, True])
def test_every_mutant_dies(causal: bool) -> None:
    what, kernel = persistent(causal)
    inputs = what.inputs(seed=1)
    report = mutate(kernel, [*inputs, np.full(what.shapes()[3], np.nan, inputs[0].dtype)])
    assert len(report.fates) > 40
    assert [fate.mutant.what for fate in report.fates if not fate.killed] == []
