"""What orders CTAs of one launch: releases and acquires at the scope of the GPU, nothing less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from .judge import WARP, blank, run

CTAS = 3
THREADS = 2 * WARP


def last_adds_up(release: bool = True, acquire: bool = True, scope: str = "gpu") -> Any:
    """Every CTA stores its part; the one that counts last reads them all (split-K)."""
    fence = f"fence.acq_rel.{scope}"

    @T.prim_func(s_tir=True)
    def main(
        G: T.Buffer((CTAS, THREADS), "int32"),
        N: T.Buffer((1,), "int32"),
        Y: T.Buffer((THREADS,), "int32"),
    ):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((1,), "int32", scope="shared")
                G[bx, tx] = bx + tx
                T.tvm_storage_sync("shared")
                if tx == 0:
                    if release:
                        T.ptx[fence]()
                    S[0] = T.cuda.atomic_add(T.address_of(N[0]), 1)
                    if acquire:
                        T.ptx[fence]()
                T.tvm_storage_sync("shared")
                if S[0] == CTAS - 1:
                    Y[tx] = G[0, THREADS - 1 - tx] + G[1, tx] + G[2, tx]

    return main


def arguments() -> tuple[Any, ...]:
    return blank(CTAS, THREADS), blank(1), blank(THREADS)


def test_fences_around_an_atomic_order_what_was_stored():
    result = run(last_adds_up(), *arguments())
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    tx = np.arange(THREADS)
    np.testing.assert_array_equal(result.outputs["Y"], THREADS - 1 - tx + 2 * tx + 3)


@pytest.mark.parametrize("without", [{"release": False}, {"acquire": False}, {"scope": "cta"}])
def test_neither_side_may_lack_its_fence_nor_one_narrow_its_scope(without):
    result = run(last_adds_up(**without), *arguments())
    assert {h.kind for h in result.hazards} == {"race"}
    assert {h.buffer for h in result.hazards} == {"G"}


@pytest.mark.parametrize(
    ("store", "load", "expected"),
    [
        ("st.release.gpu.global.s32", "ld.acquire.gpu.global.s32", set()),
        ("st.relaxed.gpu.global.s32", "ld.acquire.gpu.global.s32", {"race"}),
        ("st.release.gpu.global.s32", "ld.relaxed.gpu.global.s32", {"race"}),
        ("st.release.cta.global.s32", "ld.acquire.gpu.global.s32", {"race"}),
        ("st.release.gpu.global.s32", "ld.volatile.global.s32", {"race"}),
    ],
)
def test_a_flag_orders_by_its_release_and_acquire(store, load, expected):
    """CTA 1 reads the flag that CTA 0 sets, and then what it stored before."""

    @T.prim_func(s_tir=True)
    def main(
        G: T.Buffer((WARP,), "int32"), F: T.Buffer((1,), "int32"), Y: T.Buffer((WARP,), "int32")
    ):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                flag = T.alloc_buffer((1,), "int32", scope="local")
                if bx == 0:
                    G[tx] = tx + 1
                    T.tvm_storage_sync("warp")
                    if tx == 0:
                        T.ptx[store](T.address_of(F[0]), 1)
                else:
                    T.ptx[load](flag[0], T.address_of(F[0]))
                    if flag[0] == 1:
                        Y[tx] = G[WARP - 1 - tx]

    result = run(main, blank(WARP), blank(1), blank(WARP))
    assert {h.kind for h in result.hazards} == expected
    np.testing.assert_array_equal(result.outputs["Y"], WARP - np.arange(WARP))


def test_a_release_goes_on_through_others():
    """CTA 0 releases to CTA 1, which releases to CTA 2, which reads what CTA 0 stored."""

    @T.prim_func(s_tir=True)
    def main(
        G: T.Buffer((WARP,), "int32"), F: T.Buffer((3,), "int32"), Y: T.Buffer((WARP,), "int32")
    ):
        for bx in T.thread_binding(3, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                flag = T.alloc_buffer((1,), "int32", scope="local")
                if bx == 0:
                    G[tx] = tx + 1
                T.ptx["ld.acquire.gpu.global.s32"](flag[0], T.address_of(F[bx]))
                T.tvm_storage_sync("warp")
                if bx == 2:
                    Y[tx] = G[WARP - 1 - tx]
                elif tx == 0:
                    T.ptx["st.release.gpu.global.s32"](T.address_of(F[bx + 1]), 1)

    result = run(main, blank(WARP), blank(3), blank(WARP))
    assert result.hazards == (), "\n".join(map(str, result.hazards))


@pytest.mark.parametrize(
    ("fences", "expected"),
    [(("gpu", "cta"), set()), (("cta", "gpu"), set()), (("cta", "cta"), {"race"})],
)
@pytest.mark.parametrize("side", ["release", "acquire"])
def test_the_widest_of_several_fences_counts(side, fences, expected):
    both = {"release": ("gpu",), "acquire": ("gpu",), side: fences}
    release = [f"fence.acq_rel.{scope}" for scope in (*both["release"], *both["release"])[-2:]]
    acquire = [f"fence.acq_rel.{scope}" for scope in (*both["acquire"], *both["acquire"])[-2:]]

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((1,), "int32"), F: T.Buffer((1,), "int32"), Y: T.Buffer((1,), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                flag = T.alloc_buffer((1,), "int32", scope="local")
                if tx == 0:
                    if bx == 0:
                        G[0] = 1
                        T.ptx[release[0]]()
                        T.ptx[release[1]]()
                        T.ptx["st.relaxed.gpu.global.s32"](T.address_of(F[0]), 1)
                    else:
                        T.ptx["ld.relaxed.gpu.global.s32"](flag[0], T.address_of(F[0]))
                        T.ptx[acquire[0]]()
                        T.ptx[acquire[1]]()
                        Y[0] = G[0]

    assert {h.kind for h in run(main, blank(1), blank(1), blank(1)).hazards} == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("add", 10 + 3 * WARP), ("max", 31), ("exch", 31), ("inc", 10), ("cas", 3)],
)
def test_operations(name, expected):
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((1,), "uint32"), Y: T.Buffer((WARP,), "uint32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            found = T.alloc_buffer((1,), "uint32", scope="local")
            if name == "add":
                T.ptx["atom.global.add.u32"](found[0], T.address_of(C[0]), T.uint32(3))
            elif name == "max":
                T.ptx["atom.global.max.u32"](found[0], T.address_of(C[0]), T.Cast("uint32", tx))
            elif name == "exch":
                T.ptx["atom.global.exch.b32"](found[0], T.address_of(C[0]), T.Cast("uint32", tx))
            elif name == "inc":
                T.ptx["atom.global.inc.u32"](found[0], T.address_of(C[0]), T.uint32(31))
            else:
                T.ptx["atom.global.cas.b32"](
                    found[0], T.address_of(C[0]), T.uint32(10), T.uint32(3)
                )
            Y[tx] = found[0]

    result = run(main, np.full(1, 10, "uint32"), np.zeros(WARP, "uint32"))
    assert result.hazards == ()
    assert result.outputs["C"][0] == expected
    assert result.outputs["Y"][0] == 10
