"""Mutants of kernels written by hand, which carry no plan: each synchronisation, slot and phase."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pipeliner.mutation import mutants, mutate

from . import mutants as by_hand
from .hopper_gemm import Form, gemm
from .raw import lower
from .ring import DEPTH, reversing_ring
from .test_hopper_gemm import synchronises


@pytest.mark.slow
def test_every_mutant_of_a_hopper_gemm_dies() -> None:
    form = Form(cluster=2, depth=2)
    lowered = lower(gemm(form))
    report = mutate(lowered, form.inputs(), timings=["late"], orders=["lockstep"])
    assert report.ok, [str(fate.mutant) for fate in report.unexplained]
    found = Counter(fate.mutant.kind for fate in report.fates)
    slots, phases = found.pop("slot"), found.pop("phase")
    assert sum(found.values()) == len(by_hand.names(lowered, synchronises))
    assert set(found) == {"barrier", "wait", "commit", "fence", "arrival"}
    waits, arrivals, copies, multiplies = 2, 2, 2, form.columns // 32 * 4
    # A copy names its slot and its mbarrier's, a multiply a slot of A and one of B.
    assert slots == waits + arrivals + 2 * copies + 2 * multiplies
    assert phases == waits


@pytest.mark.parametrize("steps", [DEPTH + 1, DEPTH + 2])
def test_every_mutant_of_a_ring_written_by_hand_dies(steps: int) -> None:
    arrays = [np.random.default_rng(0).random((steps, 64), np.float32) for _ in range(2)]
    report = mutate(lower(reversing_ring(steps)), arrays)
    assert report.ok, [str(fate.mutant) for fate in report.unexplained]


def test_ring_indices_are_remainders_of_loop_variables_in_shared_addresses() -> None:
    found = mutants(lower(reversing_ring(5)))
    slots = [mutant.what for mutant in found if mutant.kind == "slot"]
    # In the prologue p % 3 is p.
    assert slots == ["T.truncmod(k + 2, 3) in ptx.cp_async_ca_src_size", "T.truncmod(k, 3) in C"]
