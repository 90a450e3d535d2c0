"""A product whose rows go where an index says: in order, or at once where none is named twice."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import LoweringError
from pipeliner.mutation import mutate
from pipeliner.values.facts import DISTINCT

from ..refusals import refused

ROWS, COLUMNS, DEPTH = 200, 136, 160
TILE: Final = (128, 64, 32)
WAYS: Final = (("h100", {"roles": 1}), ("h100", {"roles": 0}), ("a100", {}))


def scattered(*, distinct: bool) -> Any:
    """``C[to[i]] = (A B)[i]`` where ``to[i]`` is no less than zero; ``distinct``: as promised."""
    m, n, k = TILE
    across = -(-COLUMNS // n)
    promise = {DISTINCT: True} if distinct else {}

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((ROWS, DEPTH), "float16"),
        B: T.Buffer((COLUMNS, DEPTH), "float16"),
        to: T.Buffer((ROWS,), "int32"),
        C: T.Buffer((ROWS, COLUMNS), "float16"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for x in T.thread_binding(-(-ROWS // m) * across, thread="blockIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((m, n), "float32", scope="local")
                for i, j in T.grid(m, n):
                    with T.sblock("acc_init"):
                        acc[i, j] = T.float32(0)
                for s in range(DEPTH // k):
                    with T.sblock("step"):
                        A_shared = T.sblock_alloc_buffer((m, k), "float16", scope="shared")
                        B_shared = T.sblock_alloc_buffer((n, k), "float16", scope="shared")
                        for i, d in T.grid(m, k):
                            with T.sblock("A_shared"):
                                A_shared[i, d] = T.if_then_else(
                                    x // across * m + i < ROWS,
                                    A[x // across * m + i, s * k + d],
                                    T.float16(0),
                                )
                        for j, d in T.grid(n, k):
                            with T.sblock("B_shared"):
                                B_shared[j, d] = T.if_then_else(
                                    x % across * n + j < COLUMNS,
                                    B[x % across * n + j, s * k + d],
                                    T.float16(0),
                                )
                        for i, j, d in T.grid(m, n, k):
                            with T.sblock("acc"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", A_shared[i, d]) * T.Cast(
                                    "float32", B_shared[j, d]
                                )
                for i, j in T.grid(m, n):
                    with T.sblock("C"):
                        T.where(
                            x // across * m + i < ROWS
                            and x % across * n + j < COLUMNS
                            and to[x // across * m + i] >= 0
                        )
                        T.sblock_attr(promise)
                        C[to[x // across * m + i], x % across * n + j] = T.Cast(
                            "float16", acc[i, j]
                        )

    return main


def arrays() -> dict[str, np.ndarray]:
    """Small integers, and a permutation of the rows, some of which are left out."""
    rng = np.random.default_rng(0)
    to = rng.permutation(ROWS).astype("int32")
    to[::7] = -1
    return {
        "A": rng.integers(-1, 2, (ROWS, DEPTH)).astype("float16"),
        "B": rng.integers(-1, 2, (COLUMNS, DEPTH)).astype("float16"),
        "to": to,
        "C": np.zeros((ROWS, COLUMNS), "float16"),
    }


def expected(given: dict[str, np.ndarray]) -> np.ndarray:
    """C, one row after the other."""
    product = given["A"].astype(float) @ given["B"].astype(float).T
    c = given["C"].astype(float)
    for row, place in zip(product, given["to"]):
        if place >= 0:
            c[place] = row
    return c


@pytest.mark.parametrize(("target", "asked"), WAYS, ids=str)
def test_rows_that_are_promised_to_be_distinct_are_stored_from_registers(
    target: str, asked: dict[str, int]
) -> None:
    kernel = pipeliner.build(scattered(distinct=True), target, **asked)
    given = arrays()
    result = kernel.emulate(*given.values(), order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    np.testing.assert_array_equal(result.outputs["C"], expected(given))
    assert kernel.plan.pipelined
    assert bool(kernel.plan.roles) == bool(asked.get("roles"))
    assert "acc_copy" not in kernel.lowered.script()


def test_a_promise_that_is_broken_is_a_race() -> None:
    kernel = pipeliner.build(scattered(distinct=True), "h100")
    given = arrays()
    given["to"][: TILE[0]] = 3
    hazards = kernel.emulate(*given.values()).hazards
    assert {hazard.kind for hazard in hazards} == {"race"}


def test_without_a_promise_roles_are_refused_with_what_is_missing() -> None:
    with refused("share.loaded_index", LoweringError):
        pipeliner.pipeline(scattered(distinct=False), "h100", roles=1)


@pytest.mark.parametrize("target", ["h100", "a100"])
def test_without_a_promise_the_last_of_a_tile_wins(target: str) -> None:
    kernel = pipeliner.build(scattered(distinct=False), target)
    assert "acc_copy" in kernel.lowered.script()
    given = arrays()
    given["to"][3:90:4] = 5
    given["to"][TILE[0] :][given["to"][TILE[0] :] == 5] = -1  # not of two CTAs
    result = kernel.emulate(*given.values(), order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    np.testing.assert_array_equal(result.outputs["C"], expected(given))


@pytest.mark.slow
@pytest.mark.parametrize(("target", "asked"), WAYS, ids=str)
def test_every_mutant_dies(target: str, asked: dict[str, int]) -> None:
    given = arrays()
    report = mutate(
        pipeliner.build(scattered(distinct=True), target, depth=2, **asked),
        tuple(given.values()),
        reference=lambda *_: expected(given),
    )
    assert report.ok, report


@pytest.mark.nvcc
@pytest.mark.parametrize(("target", "asked"), WAYS, ids=str)
def test_nvcc_takes_it(target: str, asked: dict[str, int]) -> None:
    assert ".entry" in pipeliner.build(scattered(distinct=True), target, **asked).ptx
