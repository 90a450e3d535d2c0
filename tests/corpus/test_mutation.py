"""Every defect planted in a pipelined function of the corpus shows, or is proved to be none."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from pipeliner.mutation import MutationReport, mutate

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

ONE_TO_SPARE = "no data decides what is accessed, and a run without it has no unordered accesses"
PROVED = {
    # The last barrier of TVM's reduction over threads has thread 0 alone on both sides.
    "dlight_reduction": [f"the function had it, or TVM added it; {ONE_TO_SPARE}"],
    "dlight_softmax": [f"the function had it, or TVM added it; {ONE_TO_SPARE}"] * 2,
    # TVM unrolls these loops: the last step commits, and the first one meets, for nothing.
    "ms_batched_matmul_async": ["no wait follows it, so that nothing depends on its group"],
    "ms_tensorcore_matmul": [
        "no wait follows it, so that nothing depends on its group",
        f"TVM unrolled the loop that needs it; {ONE_TO_SPARE}",
    ],
}
"""What the proofs of the mutants that survive say; of other functions none does."""

LONGER = {"stream_scale_dynamic": {"n": 5120}}
"""Extents of a second run, for rings that the corpus's own do not fill."""


def report_of(case: Case) -> MutationReport:
    inputs = case.inputs(np.random.default_rng(0))
    truth = case.reference(copy.deepcopy(inputs))
    given = arguments(case.build(), inputs, truth)
    extents = [{}, *([LONGER[case.name]] if case.name in LONGER else [])]
    return mutate(pipelined(case.name), given, target=case.arch, extents=extents)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=[pytest.mark.slow] if case.name in LONG else [],
        )
        for case in CASES
        if isinstance(case.expect, Pipelined)
    ],
)
def test_every_mutant_dies_or_is_proved_equivalent(case: Case) -> None:
    report = report_of(case)
    assert not report.unexplained, [str(fate.mutant) for fate in report.unexplained]
    assert [fate.reason for fate in report.survivors] == PROVED.get(case.name, [])


def test_every_mutant_of_the_attention_loop_dies() -> None:
    """None is left to a proof: the wait for V, which that for K makes idle, is not emitted."""
    report = mutate(attention, target="a100")
    assert not report.survivors, [str(fate.mutant) for fate in report.survivors]
    assert {fate.mutant.kind for fate in report.fates} == {"barrier", "wait", "commit", "slot"}
