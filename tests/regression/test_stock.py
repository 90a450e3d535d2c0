"""The defects are real: the emulator finds them in what TVM 0.27 makes of the same functions.

Nothing tells it what to look for: it runs the module that TVM lowers, as it runs ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir

from pipeliner.emulator import emulate
from pipeliner.passes.smem.place import place
from pipeliner.passes.sync.synchronise import synchronise
from pipeliner.plan import SmemPlan

from ..corpus.annotated import simt_gemm
from ..corpus.harness import run
from ..emulator.raw import lower
from ..passes.lowering_tools import BUDGET, prepared
from . import functions, gemms
from .checks import data, gemm_inputs, product
from .functions import annotate

TILES = frozenset({"A_shared", "B_shared"})


@dataclass(frozen=True)
class Found:
    """What a run has to show: these kinds of hazard, on these buffers, these outputs wrong."""

    kinds: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()
    wrong: frozenset[str] = frozenset()


Defect = tuple[Any, dict[str, Any], dict[str, Any], Found]


def f1_interleaved(gap: int) -> Defect:
    """The prologue commits A and B as one group, the loop as two: its first waits are too weak."""
    inputs = gemm_inputs()
    found = Found(frozenset({"read-before-arrival", "write-in-flight"}), TILES, frozenset({"C"}))
    return simt_gemm([0, 0, gap], [0, 2, 1], [0]), inputs, product(inputs), found


def f2_short_dynamic(gap: int) -> Defect:
    """No barrier stands between the prologue's stores and the epilogue's reads."""
    inputs = {**gemm_inputs(8), "n": 1}
    found = Found(frozenset({"race"}), TILES)
    return gemms.dynamic_k_gemm([0, 0, gap]), inputs, product(inputs), found


def f3_late_start(start: int) -> Defect:
    """Stores use slot (k - min) % n, ``access_ptr`` slot k % n; in the pass alone, since
    ``tvm.compile`` makes every loop start at 0 before it.
    """
    inputs = {"A": data(8, 8, 8, dtype="float16")}
    truth = {"C": inputs["A"].view("uint32").reshape(8, 32)}
    mod = tvm.IRModule({"main": gemms.rows_by_ldmatrix(start)})
    func = s_tir.transform.InjectSoftwarePipeline()(mod)["main"]
    return func, inputs, truth, Found(wrong=frozenset({"C"}))


def f5_outlives() -> Defect:
    inputs = {"A": data(16, 16)}
    truth = {"C": inputs["A"][::-1].copy(), "last": inputs["A"][::-1, 15].copy()}
    func = annotate(functions.used_after_the_loop, [0, 1], [0, 1])
    return func, inputs, truth, Found(wrong=frozenset({"C"}))


def f6_misaligned() -> Defect:
    """A cp.async of 16 bytes from an address that 4 divide."""
    inputs = {"A": data(32, 65), "B": data(64, 32, seed=1)}
    truth = {"C": inputs["A"][:, 1:] @ inputs["B"]}
    return gemms.shifted_gemm(), inputs, truth, Found(frozenset({"misaligned"}), frozenset("A"))


def f7_user_ring() -> Defect:
    inputs = {"A": data(16, 64)}
    truth = {"C": np.concatenate([inputs["A"][:3], inputs["A"][:13]])[:, ::-1]}
    found = Found(frozenset({"uninitialised-read"}), frozenset("S"), frozenset("C"))
    return functions.hand_written_ring, inputs, truth, found


def reordered() -> Defect:
    """Order [1, 0] of a read and the write after it, taken without a word."""
    inputs = {"A": data(16, 16), "first": data(16, seed=1)}
    truth = {"C": inputs["A"].copy()}
    truth["C"][0], truth["C"][1:] = inputs["first"], inputs["A"][:-1]
    truth["C"] += 1
    func = annotate(functions.read_then_overwrite, [0, 0], [1, 0])
    return func, inputs, truth, Found(wrong=frozenset({"C"}))


@pytest.mark.parametrize(
    "defect",
    [
        *(pytest.param(lambda gap=gap: f1_interleaved(gap), id=f"F1-{gap}") for gap in (2, 3)),
        *(pytest.param(lambda gap=gap: f2_short_dynamic(gap), id=f"F2-{gap}") for gap in (1, 2)),
        *(pytest.param(lambda at=start: f3_late_start(at), id=f"F3-{start}") for start in (1, 2)),
        pytest.param(f5_outlives, id="F5"),
        pytest.param(f6_misaligned, id="F6"),
        pytest.param(f7_user_ring, id="F7"),
        pytest.param(reordered, id="reordered"),
    ],
)
def test_the_defect_of_tvms_lowering_is_found(defect: Callable[[], Defect]) -> None:
    func, inputs, truth, found = defect()
    config = {"tirx.use_async_copy": True}
    emulation = run(func, inputs, truth, lowering="s_tir", config=config)
    assert {hazard.kind for hazard in emulation.hazards} == found.kinds
    assert {hazard.buffer for hazard in emulation.hazards} == found.buffers
    far = {
        name
        for name, want in truth.items()
        if not np.allclose(emulation.outputs[name], want, rtol=0, atol=1e-3)
    }
    assert far == found.wrong


@pytest.mark.parametrize("timing", ["late", "early", "random"])
def test_the_same_functions_are_right_where_tvm_is(timing: str) -> None:
    """As above with what sets the defect off taken away: nothing is objected to."""
    config = {"tirx.use_async_copy": True}
    inputs = gemm_inputs()
    cases = [
        (simt_gemm([0, 0, 2], [0, 1, 2], [0]), inputs, product(inputs)),
        (gemms.dynamic_k_gemm([0, 0, 1]), {**inputs, "n": 8}, product(inputs)),
        f3_late_start(0)[:3],
    ]
    for func, given, truth in cases:
        emulation = run(func, given, truth, lowering="s_tir", config=config, timing=timing)
        assert emulation.hazards == ()
        for name, want in truth.items():
            np.testing.assert_allclose(emulation.outputs[name], want, rtol=0, atol=1e-3)


def test_f26_an_arena_that_tvm_lays_out_after_the_barriers_races() -> None:
    """Our barriers, but TVM's merge of shared memory in place of our arena: two buffers that never
    live at the same time get one place, and no barrier knew that they would.
    """
    a = data(64)
    arrays = {"A": a, "C": np.full(64, np.nan, "float32"), "D": np.full(64, np.nan, "float32")}
    func = prepared(functions.one_buffer_after_another)
    unplaced, _ = synchronise(func, SmemPlan())
    (hazard,) = emulate(lower(unplaced), arrays).hazards
    assert hazard.kind in ("race", "write-while-read")
    assert "U[" in hazard.site.statement
    assert hazard.other is not None
    assert "S[" in hazard.other.statement
    placed, _ = synchronise(*place(func, BUDGET))
    result = emulate(lower(placed), arrays)
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["D"], a[::-1] + 1)
