"""Consumers release the slots of a step behind the first wgmmas of the next one, not the last."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.proof.prove import prove
from pipeliner.schedules import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm

BY_TMA: Final[dict[str, Any]] = {"instruction": "wgmma", "mechanism": "tma"}
WORDS: Final = {
    "wgmma_fence": "fence",
    "mma_async": "wgmma",
    "commit_group": "commit",
    "wgmma_wait_group": "wait",
    "mbarrier_wait": "full",
    "mbarrier_arrive": "release",
}


def built(tile: GemmTile, steps: int = 4, **options: Any) -> Kernel:
    gemm = Gemm(tile.m, tile.n, steps * tile.k)
    return pipeliner.build(schedule_gemm(gemm, tile), "h100", **BY_TMA, **options)


def step_of(kernel: Kernel) -> list[str]:
    """What a step of the consumers calls, in order, in the words above."""
    loop = re.search(r"\n( *)for \(int k_0 = .*?\{\n(.*?)\n\1\}", kernel.cuda, re.DOTALL)
    assert loop
    lines = loop.group(2).splitlines()
    return [word for line in lines for name, word in WORDS.items() if f"_{name}" in line]


@pytest.mark.parametrize(
    ("tile", "first"),
    [
        (GemmTile(64, 64, 64), 1),
        (GemmTile(128, 64, 64), 1),  # two warpgroups
        (GemmTile(256, 192, 64), 2),  # two, each with two accumulators
        (GemmTile(64, 64, 128), 1),
    ],
    ids=str,
)
def test_the_step_before_is_released_behind_the_first_of_each_accumulator(
    tile: GemmTile, first: int
) -> None:
    step = step_of(built(tile))
    total = first * tile.k // 16
    assert step == [
        *["full", "fence", *["wgmma"] * first, "commit", "wait", "release"],
        *["wgmma"] * (total - first),
        "commit",
    ]


def test_a_step_of_one_wgmma_is_in_one_group() -> None:
    assert step_of(built(GemmTile(64, 64, 16))) == [
        *["full", "fence", "wgmma", "commit", "wait", "release"],
    ]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_it_is_right(depth: int, steps: int) -> None:
    kernel = built(GemmTile(128, 64, 64), steps, depth=depth)
    gemm = Gemm(128, 64, steps * 64)
    a, b = gemm.inputs(3)
    done = kernel.emulate(a, b, np.full((128, 64), np.nan, "float16"))
    assert not done.hazards
    assert np.abs(done.outputs["C"].astype("f8") - gemm.reference(a, b)).max() < 0.05


def test_two_slots_may_fill_while_the_next_step_is_multiplied() -> None:
    """In machine code the wait stands behind the first HGMMA of a step."""
    sass = built(GemmTile(128, 128, 128), 8, depth=2).sass
    found = re.findall(r"HGMMA|WARPGROUP\.DEPBAR\.LE gsb0, 0x1|SYNCS\.ARRIVE", sass)
    at = found.index("WARPGROUP.DEPBAR.LE gsb0, 0x1")
    assert found[at - 1 : at + 3] == ["HGMMA", found[at], "SYNCS.ARRIVE", "HGMMA"]


def taking(every: int) -> Any:
    """A product of every so many steps."""

    @T.prim_func(s_tir=True)
    def some_steps(
        A: T.Buffer((64, 512), "float16"),
        B: T.Buffer((64, 512), "float16"),
        C: T.Buffer((64, 64), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for x in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
                for i, j in T.grid(64, 64):
                    with T.sblock("init"):
                        acc[i, j] = T.float32(0)
                for s in range(8):
                    with T.sblock("step"):
                        A_shared = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                        B_shared = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                        for i, j in T.grid(64, 64):
                            with T.sblock("A_shared"):
                                A_shared[i, j] = A[i, s * 64 + j]
                        for i, j in T.grid(64, 64):
                            with T.sblock("B_shared"):
                                B_shared[i, j] = B[i, s * 64 + j]
                        for i, j, r in T.grid(64, 64, 64):
                            with T.sblock("product"):
                                T.where(s % every == 0)
                                acc[i, j] = acc[i, j] + T.Cast("float32", A_shared[i, r]) * T.Cast(
                                    "float32", B_shared[j, r]
                                )
                for i, j in T.grid(64, 64):
                    with T.sblock("store"):
                        C[i, j] = acc[i, j]

    return some_steps


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("every", [2, 4])
def test_the_slots_of_a_step_left_out_are_released(every: int, depth: int) -> None:
    """Inside the condition the producer would wait for ever, and no group is there to leave.

    Nor do warps meet in such a step: one may still wait for the slot that another releases.
    """
    kernel = pipeliner.build(taking(every), "h100", **BY_TMA, depth=depth, prove=False)
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=(64, 512)).astype("float16") for _ in range(2))
    done = kernel.emulate(a, b, np.full((64, 64), np.nan, "float32"), timing="late")
    assert not done.hazards
    taken = [v.astype("f8").reshape(64, 8, 64)[:, ::every].reshape(64, -1) for v in (a, b)]
    assert np.abs(done.outputs["C"] - taken[0] @ taken[1].T).max() < 0.05
    (proved,) = prove(kernel.lowered).kernels
    assert proved.ok, proved.statement
