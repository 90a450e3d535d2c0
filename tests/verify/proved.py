"""A kernel is right in one run, and proved: then it is in every other."""

from __future__ import annotations

from typing import Any

from pipeliner.kernel.compiled import Kernel
from pipeliner.proof.prove import prove
from pipeliner.verification.verdict import verify_workload


def assert_right_and_proved(kernel: Kernel, spec: Any) -> None:
    """Check the numbers of one run, and that no interleaving meets a hazard, by proof.

    What has no hazard computes the same in every order and timing, so that one run is enough.
    """
    verdict = verify_workload(kernel, spec, timings=("late",), orders=("random",))
    assert verdict.ok, verdict
    for found in prove(kernel.lowered).kernels:
        assert found.ok, found.statement
