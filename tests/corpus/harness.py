"""Run one function through a lowering in the emulator and compare it with numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeliner.emulator import Emulation, emulate, lower_for_emulation
from pipeliner.targets import cuda_target


def run(
    func: Any,
    inputs: Mapping[str, Any],
    expected: Mapping[str, np.ndarray],
    *,
    arch: str = "sm_80",
    lowering: str = "pipeliner",
    timing: str = "late",
    config: Mapping[str, Any] | None = None,
) -> Emulation:
    """Emulate ``func`` lowered by ``lowering``; outputs start as NaN (zero for integers).

    ``inputs`` and ``expected`` go by parameter name; an array in both is updated in place.
    """
    with cuda_target(arch):
        lowered = lower_for_emulation(func, cuda_target(arch), lowering, config)
    return emulate(lowered, arguments(func, inputs, expected), timing=timing)


def arguments(
    func: Any, inputs: Mapping[str, Any], expected: Mapping[str, np.ndarray]
) -> list[Any]:
    """The arguments in the order of ``func``'s parameters."""
    args = []
    for param in func.params:
        name = str(param.name)
        if name in inputs:
            args.append(inputs[name])
            continue
        blank = np.nan if expected[name].dtype.kind == "f" else 0
        args.append(np.full_like(expected[name], blank))
    return args


def assert_right(
    emulation: Emulation, expected: Mapping[str, np.ndarray], tolerance: float = 1e-5
) -> None:
    """No hazard, and every output within ``tolerance`` times the largest expected magnitude."""
    assert not emulation.hazards, "\n".join(map(str, emulation.hazards))
    for name, want in expected.items():
        got = emulation.outputs[name].astype("float64")
        bound = tolerance * max(1.0, float(np.abs(want.astype("float64")).max(initial=0.0)))
        np.testing.assert_allclose(got, want.astype("float64"), rtol=0, atol=bound, err_msg=name)
