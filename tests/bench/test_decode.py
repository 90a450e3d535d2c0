"""Attention of one query a head: the sizes, and what is claimed beside a copy."""

from __future__ import annotations

import pytest

from pipeliner.bench import copied_per_us, decode, decode_claims, suite
from pipeliner.bench.decode import LARGE
from pipeliner.bench.results import Report, Result
from pipeliner.bench.roofs import moved
from pipeliner.records.record import OURS
from pipeliner.schedules import Attention
from pipeliner.schedules.suites import label_of, named


def test_the_suite_has_one_query_of_four_heads_for_each_head_of_keys() -> None:
    found = suite("decode", "bf16")
    assert len(found) == 16
    for label, spec in found.items():
        assert isinstance(spec, Attention)
        assert (spec.queries, spec.group, spec.dim) == (1, 4, 128)
        assert label == f"b{spec.batch}_kv{spec.kv_heads}_{spec.keys // 1024}k"
    spec = Attention(8, 32, 1, 16384, 128, kv_heads=8, dtype="bf16")
    assert named("b8_kv8_16k", "bf16") == spec
    assert label_of(spec) == "b8_kv8_16k"


def test_what_is_claimed_is_the_rate_of_bytes_over_a_copy() -> None:
    specs = suite("decode", "fp16")
    spec = specs["b1_kv8_8k"]
    assert isinstance(spec, Attention)
    assert moved(spec) == 2 * 2 * (8 * 8192 * 128) + 2 * 2 * (32 * 128)
    report = Report("made up")
    report.results.append(Result("b1_kv8_8k", OURS, us=10.0, tflops=1.0))
    copied = {LARGE: moved(spec) / 8.0, moved(spec): moved(spec) / 16.0}
    (claim,) = decode_claims(report, specs, copied.__getitem__)
    assert claim.value == pytest.approx(0.8)
    assert claim.met
    assert "3.36 TB/s over a large copy's 4.20 (1.60 of 2.10, a copy's of as many" in claim.name
    copied[LARGE] = moved(spec) / 5.0
    assert not decode_claims(report, specs, copied.__getitem__)[0].met


def test_a_copy_reads_and_writes(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(torch, calls, before) -> list[float]:
        for call in calls:
            before()
            call()
        return [500.0, 900.0, 400.0]

    monkeypatch.setattr(decode, "timed", timed)
    copied = copied_per_us.__wrapped__
    assert copied() == LARGE / 500
    assert copied(4096) == 4096 / 500
