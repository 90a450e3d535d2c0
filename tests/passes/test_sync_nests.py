"""Barriers in loops of loops: what an inner loop carries, under conditions of its steps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.errors import LoweringError
from pipeliner.passes.ir.nodes import substitute, walk
from pipeliner.passes.sync.synchronise import synchronise

from ..refusals import refused
from .lowering_tools import data, marked, ordered, run, without_barrier

SECONDS = 5
"""More than ten times what placing the barriers takes, far less than following every history."""


@T.prim_func(s_tir=True)
def even_steps(a: T.handle, c: T.handle, n: T.int32):
    """Outer loop; step k: store of k + 1 in the other slot if even, use of k if even.

    In one step one of the two is made; from step to step the same slot is written, read, written.
    """
    A = T.match_buffer(a, (2, n, 64), "float32")
    C = T.match_buffer(c, (2, n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:2, 0:n, 0:64])
                T.writes(C[0:2, 0:n, 0:64])
                S = T.sblock_alloc_buffer((2, 64), "float32", scope="shared")
                for o in T.serial(2):
                    for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):
                        if k % 2 == 1:
                            S[(k + 1) % 2, tx] = A[o, k, tx]
                        if (k + 1) % 2 == 1:
                            C[o, k, tx] = S[k % 2, 63 - tx]


@T.prim_func(s_tir=True)
def own_copies_again(a: T.handle, c: T.handle, n: T.int32):
    """Outer loop around copies that each thread reads itself: no barrier ends what is pending."""
    A = T.match_buffer(a, (4, n, 64), "float32")
    C = T.match_buffer(c, (4, n, 64), "float32")
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                T.reads(A[0:4, 0:n, 0:64])
                T.writes(C[0:4, 0:n, 0:64])
                S = T.sblock_alloc_buffer((2, 64), "float32", scope="shared")
                for o in T.serial(4):
                    for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):
                        T.evaluate(
                            T.ptx["cp.async.ca.shared.global"](
                                T.address_of(S[k % 2, tx]), T.address_of(A[o, k, tx]), 4
                            )
                        )
                        T.ptx.cp.async_.commit_group()
                        T.ptx.cp.async_.wait_group(0)
                        C[o, k, tx] = S[k % 2, tx]


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("timing", ["late", "early"])
def test_steps_that_never_do_both_are_ordered_from_one_to_the_next(steps: int, timing: str) -> None:
    args, expected = _even_steps(steps)
    emulation = run(even_steps, args, timing)
    assert all(h.kind == "uninitialised-read" for h in emulation.hazards), emulation.hazards
    np.testing.assert_array_equal(emulation.outputs["C"][:, 2::2], expected[:, 2::2])


def test_their_one_barrier_is_missed() -> None:
    args, _ = _even_steps(5)
    done, smem, sync = ordered(even_steps)
    assert sync.barriers_in_steady == sync.barriers == 1
    emulation = run(marked(without_barrier(done, 0), smem), args)
    assert {h.kind for h in emulation.hazards} - {"uninitialised-read"}


def test_what_left_a_loop_is_not_followed_through_it_again() -> None:
    start = time.process_time()
    _, _, sync = ordered(own_copies_again)
    assert time.process_time() - start < SECONDS
    assert sync.barriers == 0
    source = data(4 * 3, 64).reshape(4, 3, 64)
    emulation = run(own_copies_again, [source, np.full_like(source, np.nan), 3])
    assert not emulation.hazards, "\n".join(map(str, emulation.hazards))
    np.testing.assert_array_equal(emulation.outputs["C"], source)


def test_loops_of_different_ranges_with_one_variable_are_refused() -> None:
    loops: list[Any] = []
    walk(even_steps.body, tirx.For, loops.append)
    outer, inner = loops[-2:]
    body = substitute(inner.body, {inner.loop_var: outer.loop_var})
    twice = tirx.For(outer.loop_var, inner.min, inner.extent, inner.kind, body)

    def other(node: Any) -> Any:
        return twice if node.same_as(inner) else node

    changed = tvm_ffi.structural_map(even_steps.body, [(tirx.For, other)], order="post")
    func = tirx.PrimFunc(even_steps.params, changed, even_steps.ret_type, even_steps.attrs)
    with refused("sync.variable", LoweringError, variable="o"):
        synchronise(func)


def _even_steps(steps: int) -> tuple[list[Any], np.ndarray]:
    """Arguments, and what rows 2, 4 .. become: the row before, reversed."""
    source = data(2 * steps, 64).reshape(2, steps, 64)
    expected = np.roll(source, 1, axis=1)[:, :, ::-1]
    return [source, np.full_like(source, np.nan), steps], expected
