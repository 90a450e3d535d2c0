"""What tests of whole GEMM kernels share: a run in the emulator, compared with the exact product."""

from __future__ import annotations

from typing import Any

from pipeliner.schedules import Gemm
from pipeliner.verification.accuracy import poisoned, worst_error


def assert_right(kernel: Any, gemm: Gemm) -> list[Any]:
    """The arrays on which ``kernel`` was right to rounding, with nothing objected to."""
    inputs = gemm.inputs(3)
    out = poisoned(gemm.shapes()[2], gemm.out)
    done = kernel.emulate(*inputs, out)
    assert not done.hazards
    made = done.outputs["C"]
    assert worst_error(gemm, made, gemm.reference(*inputs), gemm.magnitude(*inputs)) <= 1
    return [*inputs, out]
