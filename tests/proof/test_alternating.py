"""Loops of a text for one trip count that is skipped at once, or that are no loops."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.proof.proof import KernelProof
from pipeliner.proof.prove import prove
from pipeliner.proof.reading.deciding import deciding
from pipeliner.proof.reading.eventually import Repeats, Unbounded
from pipeliner.proof.reading.naturals import naturals
from pipeliner.proof.running.subjects import host_and_kernels

from ..emulator.raw import lower
from .alternating import WARP, turns


def proof_of(func: Any) -> KernelProof:
    (found,) = prove(lower(func), seconds=600.0).kernels
    return found


def claimed(found: KernelProof) -> list[tuple[str, int, str, bool]]:
    return [(loop.name, loop.least, loop.only, loop.by_end) for loop in found.loops]


def test_steps_that_are_skipped_are_as_many_as_others_make() -> None:
    found = proof_of(turns(steps=8, depth=2))
    assert found.ok
    assert claimed(found) == [("t", 0, "", False), ("k", 1, "", True)]


@pytest.mark.parametrize(("skipped", "flips"), [(12, True), (8, False)])
def test_steps_that_are_skipped_by_a_number_that_is_right_for_few(
    skipped: int, flips: bool
) -> None:
    """12 are as right as 8, which are whole laps of a ring of 2 whose phase comes back in 4."""
    found = proof_of(turns(steps=8, depth=2, skipped=skipped, flips=flips))
    assert found.ok
    assert claimed(found) == [("t", 0, "", False), ("k", 0, "8", False)]
    assert found.beyond is not None


@pytest.mark.parametrize(("skipped", "flips"), [(7, True), (10, True), (6, False)])
def test_steps_that_are_skipped_wrongly(skipped: int, flips: bool) -> None:
    found = proof_of(
        turns(steps=skipped if not flips else 8, depth=2, skipped=skipped, flips=flips)
    )
    assert found.refuted is not None


def around(times: int) -> Any:
    """A loop of ``times`` iterations, between which nothing orders accesses, around another one."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4, 2 * WARP), "int32")):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
            for _ in T.serial(times):
                S[tx] = tx
                for k in T.serial(4):
                    T.tvm_storage_sync("shared")
                    A[k, tx] = S[2 * WARP - 1 - tx]

    return main


def test_a_loop_of_one_iteration_may_be_no_loop() -> None:
    found = proof_of(around(1))
    assert found.ok
    assert claimed(found) == [("k", 0, "", False)]
    assert found.refuted is None
    assert proof_of(around(2)).refuted is not None


def test_which_registers_are_never_negative() -> None:
    """A slot that goes round is not; one that is counted down, or read too early, may be."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, WARP), "int32"), n: T.int32):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((8,), "int32", scope="shared")
            slot = T.alloc_buffer((1,), "int32", scope="local")
            kept = T.alloc_buffer((1,), "int32", scope="local")
            left = T.alloc_buffer((1,), "int32", scope="local")
            early = T.alloc_buffer((1,), "int32", scope="local")
            pair = T.alloc_buffer((2,), "int32", scope="local")
            slot[0] = 0
            left[0] = 8
            pair[0] = 1
            for i in T.serial(8):
                S[pair[0]] = early[0]
                S[early[0]] = slot[0]
                early[0] = i
                kept[0] = slot[0]
                slot[0] = T.truncmod(slot[0] + n, 4)
                left[0] = left[0] - 2
                S[kept[0]] = S[left[0]]
                A[i, tx] = S[slot[0]]

    _, kernels = host_and_kernels(lower(main))
    (func,) = kernels.values()
    found = deciding(func)
    names = {"slot", "kept", "left", "early", "pair"}
    assert names <= found.buffers
    (n,) = (param for param in func.params if str(param.ty) == "int32")
    assert naturals(func, found, [n]) == {"slot", "kept"}
    assert not naturals(func, found)


def test_what_rounds_towards_zero_repeats_where_signs_are_known() -> None:
    n = tirx.Var("n", "int32")
    buffer = tirx.decl_buffer((1,), "int32", name="slot", scope="local")
    sum_ = tirx.BufferLoad(buffer, [0]) + n
    odd = tirx.bitwise_and(tirx.truncdiv(sum_, 4), 1)
    found = Repeats({n}, {}, {}, naturals={"slot"})
    found.decide(odd)
    assert found.every[n] == 8
    with pytest.raises(Unbounded):
        Repeats({n}, {}, {}).decide(odd)
