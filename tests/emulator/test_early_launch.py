"""Kernels that may start while the one before them runs: whose wait counts, and for what."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from .judge import WARP, blank, kinds

EARLY = ("tirx.kernel_launch_params", ["tirx.use_programtic_dependent_launch"])
THREADS = 2 * WARP
SYNC = {
    "nothing": lambda: T.evaluate(0),
    "warp": lambda: T.tvm_storage_sync("warp"),
    "cta": lambda: T.tvm_storage_sync("shared"),
}


def waits(who: int, sync: str) -> Any:
    between = SYNC[sync]

    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((THREADS,), "int32"), Y: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            if tx < who:
                T.ptx.griddepcontrol.wait()
            between()
            Y[tx] = X[tx]

    return main.with_attr(*EARLY)


@pytest.mark.parametrize(
    ("who", "sync", "expected"),
    [
        (THREADS, "nothing", set()),
        (1, "cta", set()),
        (1, "warp", {"before-predecessor"}),
        (1, "nothing", {"before-predecessor"}),
        (0, "cta", {"before-predecessor", "never-waited"}),
    ],
)
def test_the_wait_of_one_thread_counts_for_those_behind_a_barrier(who, sync, expected):
    assert kinds(waits(who, sync), blank(THREADS), blank(THREADS)) == expected


def test_a_cta_without_work_need_not_wait():
    """The grid has not ended before another of its CTAs has waited."""

    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((WARP,), "int32"), Y: T.Buffer((WARP,), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                if bx == 0:
                    T.ptx.griddepcontrol.wait()
                    Y[tx] = X[tx]

    assert kinds(main.with_attr(*EARLY), blank(WARP), blank(WARP)) == set()


def test_what_nobody_has_waited_for_may_not_be_stored_to_either():
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((WARP,), "int32"), Y: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            Y[tx] = 1
            T.ptx.griddepcontrol.wait()
            Y[tx] = X[tx]

    assert kinds(main.with_attr(*EARLY), blank(WARP), blank(WARP)) == {"before-predecessor"}
