"""Bulk copies that add: what several CTAs add is all there, and nothing else may touch it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from ..refusals import says
from .judge import ORDERS, TIMINGS, WARP, run

ROWS, COLUMNS, CTAS = 8, 32, 3
ADD = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"


def sums(dtype: str = "float32", last: str = "add") -> Any:
    """Every CTA adds its number to a box of C; the last one may do something else to it."""
    size = np.dtype(dtype).itemsize
    args = [COLUMNS, ROWS, COLUMNS * size, COLUMNS, ROWS, 1, 1, 0, 0, 0, 0]

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((ROWS, COLUMNS), dtype), D: T.Buffer((COLUMNS,), dtype)):
        C_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.evaluate(T.call_packed("runtime.cuTensorMapEncodeTiled", C_map, dtype, 2, C.data, *args))
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="shared")
                bars = T.alloc_buffer((1,), "uint64", scope="shared")
                for r in T.serial(ROWS):
                    S[r, tx] = T.Cast(dtype, (bx + 1) * (r * COLUMNS + tx))
                if tx == 0:
                    T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(1))
                    T.ptx.fence.mbarrier_init.release.cluster()
                T.ptx["fence.proxy.async"]()
                T.tvm_storage_sync("shared")
                if bx < CTAS - 1 or last == "add":
                    if tx == 0:
                        T.ptx[ADD](T.address_of(C_map), 0, 0, T.address_of(S[0, 0]))
                        T.ptx["cp.async.bulk.commit_group"]()
                        T.ptx["cp.async.bulk.wait_group"](0)
                elif last == "store":
                    if tx == 0:
                        T.ptx[STORE](T.address_of(C_map), 0, 0, T.address_of(S[0, 0]))
                        T.ptx["cp.async.bulk.commit_group"]()
                        T.ptx["cp.async.bulk.wait_group"](0)
                elif last == "load":
                    if tx == 0:
                        T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                            T.address_of(bars[0]), T.uint32(ROWS * COLUMNS * size)
                        )
                        T.ptx[LOAD](
                            T.address_of(S[0, 0]), T.address_of(C_map), 0, 0, T.address_of(bars[0])
                        )
                    T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
                elif last == "write":
                    C[ROWS - 1, tx] = T.Cast(dtype, 1)
                elif last == "read":
                    D[tx] = C[ROWS - 1, tx]

    return main


def output(dtype: str) -> tuple[Any, Any]:
    return np.full((ROWS, COLUMNS), 5, dtype), np.zeros(COLUMNS, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.part(2)
def test_what_all_ctas_add_is_there_in_the_end(dtype: str, timing: str) -> None:
    order = ORDERS[TIMINGS.index(timing)]
    result = run(sums(dtype), *output(dtype), timing=timing, order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    places = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    np.testing.assert_array_equal(result.outputs["C"], 5 + places * (1 + 2 + 3))


@pytest.mark.parametrize("other", ["store", "load", "write", "read"])
def test_anything_else_in_the_same_launch_is_a_race_with_it(other: str) -> None:
    result = run(sums(last=other), *output("float32"))
    (hazard,) = result.hazards
    assert (hazard.kind, hazard.buffer, hazard.block) == ("race", "C", (CTAS - 1, 0, 0))
    assert says("hazard.unordered_copy", [hazard.detail])
    assert hazard.other is not None
    assert "T.ptx.cp(" in hazard.other.statement


def test_what_no_cta_adds_to_may_be_touched() -> None:
    """The other array of a launch that adds to one of them."""
    result = run(sums(last="nothing"), *output("float32"))
    assert result.hazards == ()
