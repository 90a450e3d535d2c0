"""What records come to: rooflines, choices, predictions, peers."""

from __future__ import annotations

import pytest

from pipeliner.machine import machine_for
from pipeliner.records import Record
from pipeliner.report.headline import facts, headline
from pipeliner.report.rows import Row, bytes_of, peak_flops
from pipeliner.report.summary import notable, summary_of
from pipeliner.schedules import Gemm, conv2d


def test_the_roofline_is_the_data_sheets():
    """H100 SXM: 989 TFLOP/s dense fp16; 67 in fp32, at a clock 8 % higher; of 3.35 TB/s 3.03."""
    h100 = machine_for("h100")
    assert peak_flops(Gemm(512, 512, 512), h100) == pytest.approx(989e12, rel=0.02)
    assert peak_flops(Gemm(64, 64, 64, dtype="fp32"), h100) == pytest.approx(67e12, rel=0.1)
    assert bytes_of(Gemm(16, 32, 64, dtype="int8")) == 16 * 64 + 64 * 32 + 16 * 32 * 4
    thin = Row("", (), Gemm(16, 4096, 4096), h100)
    assert thin.roofline_us == pytest.approx(2 * 4096 * 4096 / 3.03e12 * 1e6, rel=0.02)


def test_strides_leave_out_what_is_not_read():
    """Of 56 rows and columns, 1x1 at a stride of 2 reads 28 each; 3x3 with padding reads all."""
    narrow, wide = (conv2d(32, 56, 56, 256, 512, r, r, stride=2, pad=r // 2) for r in (1, 3))
    written = 32 * 28 * 28 * 512 * 2
    assert bytes_of(narrow) == 32 * 28 * 28 * 256 * 2 + 256 * 512 * 2 + written
    assert bytes_of(wide) == 32 * 56 * 56 * 256 * 2 + 9 * 256 * 512 * 2 + written
    far = conv2d(1, 9, 9, 64, 64, 3, 3, dilation=4)  # rows 0, 4 and 8, one pixel out
    assert bytes_of(far) == (9 + 9 * 64 + 1) * 64 * 2


def row(us: dict[str, tuple[float, float]], peer: float = 0.0, n: int = 512) -> Row:
    """Candidates by name with the times that they took and were predicted, and one timed again."""
    key = ("{}", "h100", "v")
    ours = [
        Record(*key, name, samples=(took,), predicted_us=said)
        for name, (took, said) in us.items()
        for _ in range(2)
    ]
    peers = [Record(*key, contender="cuBLAS", samples=(peer,))] if peer else []
    return Row(f"n {n}", (*ours, *peers), Gemm(512, n, 512), machine_for("h100"))


def test_what_records_come_to():
    """Kernels count once though timed twice; a choice is wrong by what it takes more."""
    good = row({"a": (4.0, 5.0), "b": (8.0, 9.0)}, peer=8.0, n=256)
    bad = row({"a": (10.0, 4.0), "b": (8.0, 8.0)}, peer=4.0)
    found = summary_of([good, bad])
    assert (found.workloads, found.kernels, found.failures) == (2, 4, 0)
    spread = found.peers["cuBLAS"]
    assert spread.mean == pytest.approx(1.0)
    assert (spread.worst, spread.best) == ((bad, 0.5), (good, 2.0))
    assert [(one.row.label, one.regret) for one in found.choices] == [("n 512", 1.25), ("n 256", 1)]
    assert found.regret.worst == (bad, 0.8)
    assert (found.predictions, found.far_off) == (4, 1)
    assert found.error == pytest.approx((0.125 + 0.25) / 2)
    assert notable(found)[:2] == [bad, good]
    assert headline(found) == (
        "1.00 times as fast as cuBLAS over 2 workloads (geometric mean; 0.50 at worst, 2.00 at best)"
    )
    said = facts(found, "a GPU", lambda row: row.label)
    assert "<dt>Worst against cuBLAS</dt><dd><strong>0.50x</strong> n 512</dd>" in said
    assert "<strong>89.4%</strong> of the best measured speed (geometric mean), 80.0% at" in said
    one = facts(summary_of([bad]), "a GPU", lambda row: row.label)
    assert "<dt>Against cuBLAS</dt><dd><strong>0.50x</strong> n 512</dd>" in one
    assert "est against" not in one
    assert "at worst" not in one
    alone = summary_of([row({"a": (4.0, 0.0)})])
    assert (alone.choices, alone.regret, alone.predictions, alone.peers) == ((), None, 0, {})
    assert "of the roofline (geometric mean)" in headline(alone)
