"""CTAs that synchronise at the scope of the GPU: what is then proved, and where nothing is."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from pipeliner.proof.proof import Proof
from pipeliner.proof.prove import prove

from ..emulator.raw import lower
from ..emulator.test_gpu_scope import CTAS, THREADS, last_adds_up
from ..emulator.test_waiting import COOPERATIVE, exchange


def proof_of(func: Any) -> Proof:
    return prove(lower(func))


def assumed(proof: Proof) -> list[tuple[str, ...]]:
    return [one["calls"] for one in proof.assumptions if one.has("proof.at_gpu_scope")]


def signals(scope: str) -> Any:
    """Every CTA counts itself behind what it stored; nobody of this launch reads the count."""
    add = f"red.release.{scope}.global.add.s32"

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((CTAS, THREADS), "int32"), N: T.Buffer((1,), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                G[bx, tx] = bx + tx
                T.tvm_storage_sync("shared")
                if tx == 0:
                    T.ptx[add](T.address_of(N[0]), 1)

    return main


def even(condition: bool) -> Any:
    """A barrier of the grid to which all CTAs come, or all but the first."""

    @T.prim_func(s_tir=True)
    def main(Y: T.Buffer((CTAS,), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                if tx < THREADS + CTAS if condition else bx > 0:
                    T.cuda.grid_sync()
                if tx == 0:
                    Y[bx] = 1

    return main.with_attr(*COOPERATIVE)


@pytest.mark.parametrize("scope", ["gpu", "sys"])
def test_a_release_for_which_nobody_waits_is_proved_and_said(scope: str) -> None:
    found = proof_of(signals(scope))
    assert found.ok
    assert assumed(found) == [("red",)]


def test_what_stays_within_the_cta_is_not_of_the_class() -> None:
    assert assumed(proof_of(signals("cta"))) == []


def test_a_ticket_that_decides_is_data() -> None:
    found = proof_of(last_adds_up())
    (kernel,) = found.kernels
    assert kernel.data
    assert not found.ok
    assert assumed(found) == [("fence",)]


def test_barriers_of_the_grid_to_which_every_cta_comes_are_proved() -> None:
    found = proof_of(exchange().with_attr(*COOPERATIVE))
    assert found.ok
    assert assumed(found) == [("grid_sync",)]
    assert proof_of(even(True)).ok


def test_a_barrier_of_the_grid_to_which_some_ctas_do_not_come_is_not_proved() -> None:
    (kernel,) = proof_of(even(False)).kernels
    assert not kernel.ok
    assert kernel.why.has("proof.uneven_grid_barrier")
