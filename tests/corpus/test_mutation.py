"""Every defect planted in a pipelined function of the corpus shows, or is proved to be none."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.mutation import MutationReport, mutants, mutate

from .case import Case, Pipelined
from .harness import arguments
from .test_corpus import CASES, pipelined
from .tiles import attention

LONG = {
    "attention",
    "int4_gemm",
    "grouped_gemm",
    "persistent_gemm",
    "dlight_matmul_fp32",
    "dlight_matmul_fp16_wmma",
    "dlight_matmul_fp16_small",
    "dlight_batched_matmul",
    "ms_matmul",
    "ms_matmul_async",
    "ms_conv",
    "ms_conv_async",
    "ms_batched_matmul_async",
    "ms_tensorcore_matmul",
    "annotated_gemm_async",
    "annotated_gemm_async_dynamic_shared",
}
"""Functions that take more than a few seconds."""

COVERED = {
    "softmax_gemm": "gemv_stream: rings in registers, of which 47 of its 63 mutants are; "
    "test_every_mutant_of_the_attention_loop_dies: softmax and a product by cp.async",
}
"""Functions of which others have every kind of mutant, and which."""

NOT_OURS = Reason("mutation.unneeded", why=Reason("mutation.not_ours"))
PROVED = {
    # The last barrier of TVM's reduction over threads has thread 0 alone on both sides.
    "dlight_reduction": [NOT_OURS],
    "dlight_softmax": [NOT_OURS] * 2,
    # TVM unrolls these loops: the last step commits, and the first one meets, for nothing.
    "ms_batched_matmul_async": [Reason("mutation.no_wait")],
    "ms_tensorcore_matmul": [
        Reason("mutation.no_wait"),
        Reason("mutation.unneeded", why=Reason("mutation.unrolled")),
    ],
}
"""What the proofs of the mutants that survive say; of other functions none does."""

LONGER = {"stream_scale_dynamic": {"n": 5120}}
"""Extents of a second run, for rings that the corpus's own do not fill."""

PEAKS = {
    # A ring of 16 slots, filled four times: each row's maximum in another slot.
    "softmax_gemm": ("S", [16 * trip + np.arange(16) for trip in range(4)]),
    # Eight steps of 256 threads: those of even number in the first row, of odd in the last.
    "dlight_softmax": ("A", [256 * ((step + np.arange(4)) % 8) for step in range(0, 8, 2)]),
}
"""Columns in which the rows of an input have their maximum in turn: a lost element shows in a
maximum only where it is the maximum."""


def report_of(case: Case) -> MutationReport:
    first, *others = given_of(case)
    extents = [{}, *([LONGER[case.name]] if case.name in LONGER else [])]
    func = pipelined(case.name)
    return mutate(func, first, target=case.arch, extents=extents, others=others)


def given_of(case: Case) -> Iterator[list[Any]]:
    """Arguments of a function: the corpus's own, then those with planted maxima."""
    inputs = case.inputs(np.random.default_rng(0))
    truth = case.reference(copy.deepcopy(inputs))
    yield arguments(case.build(), inputs, truth)
    name, peaks = PEAKS.get(case.name, ("", []))
    for columns in peaks:
        planted = inputs[name].copy()
        planted[np.arange(len(planted)), columns] = 2  # all others are below 1
        yield arguments(case.build(), inputs | {name: planted}, truth)


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=[
                *([pytest.mark.slow] if case.name in LONG else []),
                *([pytest.mark.deep(COVERED[case.name])] if case.name in COVERED else []),
            ],
        )
        for case in CASES
        if isinstance(case.expect, Pipelined)
    ],
)
def test_every_mutant_dies_or_is_proved_equivalent(case: Case) -> None:
    report = report_of(case)
    assert not report.unexplained, [str(fate.mutant) for fate in report.unexplained]
    assert [fate.reason for fate in report.survivors] == PROVED.get(case.name, [])


@pytest.mark.parametrize("side", ["a", "b"])
def test_each_use_of_a_ring_in_fragments_has_a_mutant(side: str) -> None:
    """Counted in the printed CUDA: an op loads the two fragments of a slot, another reads them."""
    kernel = pipeliner.build(pipelined("dlight_matmul_fp16_wmma"))
    ring = f"{side.upper()}_reindex_shared_dyn_wmma_matrix_{side}"
    lines = [line for line in kernel.cuda.splitlines() if f"{ring}_ptr[" in line]
    loads = sum("load_matrix_sync" in line for line in lines)
    reads = sum("mma_sync" in line for line in lines)
    slots = [m for m in mutants(kernel.lowered) if m.kind == "slot" and m.what.startswith(ring)]
    assert loads > 0 < reads
    assert len(slots) == loads // 2 + reads


def test_every_mutant_of_the_attention_loop_dies() -> None:
    """None is left to a proof: the wait for V, which that for K makes idle, is not emitted."""
    report = mutate(attention, target="a100")
    assert not report.survivors, [str(fate.mutant) for fate in report.survivors]
    assert {fate.mutant.kind for fate in report.fates} == {"barrier", "wait", "commit", "slot"}
