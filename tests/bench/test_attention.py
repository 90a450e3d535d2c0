"""Attention beside PyTorch's: each backend by itself, the fastest one named."""

from __future__ import annotations

import numpy as np
import pytest

from pipeliner.bench import contenders
from pipeliner.bench.attention import SDPA_BACKENDS, sdpa
from pipeliner.bench.results import SDPA, Report, Result
from pipeliner.bench.tables import suite_table, summary_lines
from pipeliner.errors import WorkloadError
from pipeliner.plan.request import Request
from pipeliner.records.record import OURS
from pipeliner.schedules import Attention, Gemm
from pipeliner.schedules.suites import label_of, named, suite
from tests import fake_torch
from tests.refusals import refused


@pytest.mark.parametrize("backend", SDPA_BACKENDS)
@pytest.mark.parametrize("causal", [False, True])
def test_a_backend_is_switched_on_alone(torch, backend: str, causal: bool) -> None:
    attention = Attention(2, 4, 5, 7, 8, kv_heads=2, causal=causal)
    inputs = [fake_torch.Tensor(array) for array in attention.inputs()]
    got = sdpa(attention, backend)(*inputs, None)
    exact = attention.reference(*(one.data for one in inputs))
    np.testing.assert_allclose(got.data.astype("f8"), exact, rtol=2**-10, atol=1e-4)
    on = [name for name, switched in fake_torch.SDPA_ON.items() if switched]
    assert on == [SDPA_BACKENDS[backend]]


def test_attention_has_the_peers_of_attention_alone() -> None:
    made = contenders(Attention(1, 2, 64, 64, 64), "h100", Request(), plain=False)
    names = [f"{SDPA}, {backend}" for backend in SDPA_BACKENDS]
    assert [one.name for one in made.contenders] == [OURS, *names]
    product = contenders(Gemm(64, 64, 64), "h100", Request(), plain=False)
    assert not any(one.name.startswith(SDPA) for one in product.contenders)


def test_the_fastest_backend_is_named() -> None:
    report = Report("made up", suite="attention, float16")
    for problem, flash, cudnn in (("a", 100.0, 80.0), ("b", 50.0, 60.0)):
        for name, us in ((OURS, 40.0), ("SDPA, flash", flash), ("SDPA, cuDNN", cudnn)):
            report.results.append(Result(problem, name, us=us, tflops=8000 / us))
    table = suite_table(report)
    assert table.headers[-2:] == ("SDPA", "over SDPA")
    assert [row[-2:] for row in table.rows] == [
        ("100.0 cuDNN", "2.000"),
        ("160.0 flash", "1.250"),
    ]
    assert [line.partition(",")[0] for line in summary_lines(report)] == [
        "over SDPA: geometric mean 1.581",
        "over SDPA",
        "over SDPA",
    ]
    best = report.library("b")
    assert best is not None
    assert best.contender == "SDPA, flash"


def test_the_suite_has_16k_tokens_of_2048_columns() -> None:
    found = suite("attention", "bf16")
    assert len(found) == 30
    for label, spec in found.items():
        assert isinstance(spec, Attention)
        assert (spec.batch * spec.queries, spec.heads * spec.dim) == (16384, 2048)
        assert spec.queries == spec.keys
        assert spec.causal == label.endswith("_causal")
    spec = Attention(4, 16, 4096, 4096, 128, causal=True, dtype="bf16")
    assert found["d128_4k_causal"] == spec
    assert label_of(spec) == "d128_4k_causal"
    assert named("d128_4k_causal", "bf16") == spec
    assert label_of(Gemm(1024, 1024, 1024, dtype="int8")) == "sq1024"
    with refused("attention.dtype", WorkloadError, value="float32"):
        suite("attention", "fp32")
