"""Weights of 4 bits: computed in registers on their way to tensor cores, two at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError
from pipeliner.kernel.compiled import Kernel
from tests.refusals import refused, says

from .modes import runs_of
from .packed_weights import Packed

CASES = {
    "tma": (Packed(16, 64, 384, 16, 64, 128), "h200", {"mechanism": "tma"}),
    "two-warpgroups": (Packed(8, 128, 256, 8, 128, 64), "h100", {"mechanism": "tma"}),
    "one-row": (Packed(1, 64, 256, 8, 64, 128), "h200", {"mechanism": "tma"}),
    "ragged": (Packed(24, 64, 256, 16, 64, 64), "h200", {"mechanism": "tma"}),
    "cp_async": (Packed(16, 64, 256, 16, 64, 64), "h200", {"mechanism": "cp_async"}),
    "bfloat16": (Packed(16, 64, 256, 16, 64, 64, "bfloat16"), "h200", {"mechanism": "tma"}),
    "mma": (Packed(16, 64, 128, 16, 64, 64), "a100", {}),
}


def built(case: str) -> Kernel:
    what, target, options = CASES[case]
    return pipeliner.build(what.schedule(), target, **options)


@pytest.mark.parametrize("case", CASES)
def test_they_are_right(case: str) -> None:
    what, _, options = CASES[case]
    kernel = built(case)
    *inputs, out = what.inputs(3)
    want = what.reference(*inputs)
    timing, order = runs_of(case)[0]
    result = kernel.emulate(*inputs, out, timing=timing, order=order)
    assert not result.hazards
    off = abs(result.outputs["C"].astype(np.float64) - want).max()
    assert off <= 1e-5 * abs(want).max()
    wanted: Any = "tma" if options.get("mechanism") == "tma" else "cp_async"
    assert {copy.mechanism for copy in kernel.plan.copies} == {wanted}


@pytest.mark.parametrize(
    ("case", "pairs", "steps"), [("tma", "f16x2", 3), ("bfloat16", "bf16x2", 1)]
)
def test_two_are_computed_at_once(case: str, pairs: str, steps: int) -> None:
    """A fused multiply-add and a product for each two, and no conversion.

    Scales of float16 are loaded a step ahead, to other registers in every other of three steps.
    """
    what, *_ = CASES[case]
    kernel = built(case)
    (matmul,) = kernel.plan.matmuls
    assert matmul.operand == "computed"
    words = what.columns * what.step // 2 // 128
    text = kernel.cuda[kernel.cuda.index("__launch_bounds__") :]
    calls = [text.count(f"{name}_half_rn_{pairs}(") for name in ("fma", "mul")]
    assert calls == [words * steps] * 2


def test_the_plan_says_how_tma_fills_what_threads_read() -> None:
    copies = {copy.dst: copy for copy in built("tma").plan.copies}
    assert says("layout.boxes", [copies["W_shared"].reason])
    assert copies["W_shared"].layout == "swizzle-64B"


def test_a_producer_fills_them_for_warpgroups_alone() -> None:
    what, *_ = CASES["tma"]
    why = {"copy": "W_shared", "mechanism": "tma", "why": Reason("mechanism.no_reader")}
    with refused("mechanism.refused", PlanError, **why):
        pipeliner.build(what.schedule(), "h200", instruction="mma", mechanism="tma")


@pytest.mark.deep("the emulator finds what races in test_they_are_right")
def test_no_mutant_survives() -> None:
    report = pipeliner.mutate(built("tma"))
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)


@pytest.mark.nvcc
@pytest.mark.slow
def test_no_wgmma_waits_for_another() -> None:
    """A step's are done at its end, where the next step first computes their operand."""
    used = pipeliner.build(Packed(512, 256, 8192, 256, 128, 64).schedule(), "h200").resources
    assert (used.spill_stores, used.spill_loads, used.serialised) == (0, 0, "")
