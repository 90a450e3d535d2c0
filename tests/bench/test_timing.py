"""How contenders are checked and timed, on a stand-in for torch."""

from __future__ import annotations

import itertools
import math

import pytest

from pipeliner import bench
from pipeliner.bench import Contender, Problem, Report, timing
from pipeliner.errors import TargetError
from pipeliner.schedules import ConvInputGrad, Gemm, conv2d
from pipeliner.targets import gpu
from pipeliner.values.failure import reason
from tests.refusals import refused, the

from .. import fake_torch
from .makers import GEMM, measured, product, takes


@pytest.fixture(autouse=True)
def _stand_in(torch) -> None:
    pass


def test_times_are_medians_in_microseconds() -> None:
    report = measured(
        Contender("fast", takes(0.5), "float16"), Contender("slow", takes(2.0), "float32")
    )
    fast, slow = report.results
    assert (fast.contender, fast.rounds, fast.failure) == ("fast", 5, "")
    assert fast.us == pytest.approx(500)
    assert slow.us == pytest.approx(2000)
    assert fast.tflops == pytest.approx(GEMM.flops() / 500e-6 * 1e-12)
    assert 0 < fast.worst <= 1
    assert report.best(GEMM.name, "") is fast


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "int8"])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_types_and_layouts(dtype: str, layout: str) -> None:
    gemm = Gemm(32, 16, 24, dtype=dtype, layout=layout)
    report = measured(Contender("it", takes(1.0, gemm=gemm), gemm.out), gemm=gemm)
    assert [result.failure for result in report.results] == [""]


def test_a_wrong_contender_is_not_timed() -> None:
    report = measured(
        Contender("wrong", takes(0.1, wrong=1.0), "float16"),
        Contender("right", takes(1.0), "float16"),
    )
    failures = {result.contender: result.failure for result in report.results}
    assert failures["wrong"].code == "measure.wrong"
    assert failures["right"] == ""
    assert report.best(GEMM.name, "").contender == "right"


def test_an_unwritten_element_is_wrong() -> None:
    def run(a, b, c) -> None:
        exact = a.data.astype("float64") @ b.data.astype("float64")
        c.data[1:] = exact[1:]

    report = measured(Contender("gap", lambda: (run, ""), "float16"))
    assert math.isnan(the("measure.wrong", [report.results[0].failure])["error"])


def test_a_race_that_shows_late_is_wrong() -> None:
    calls = []

    def run(a, b, c) -> None:
        calls.append(1)
        c.data[...] = a.data.astype("float64") @ b.data.astype("float64") + (len(calls) > 3)

    report = measured(Contender("racy", lambda: (run, ""), "float16"))
    (result,) = report.results
    assert result.failure.code == "measure.wrong_later"


def test_a_failure_is_isolated() -> None:
    def broken():
        raise RuntimeError("first line\nnvcc said no")

    report = measured(
        Contender("broken", broken, "float16"), Contender("fine", takes(1.0), "float16")
    )
    assert [(r.contender, r.failure) for r in report.results] == [
        ("broken", "nvcc said no"),
        ("fine", ""),
    ]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["Traceback", "  File x", "", "InternalError: Check failed: it"], 3),
        (["CUDA error: an illegal memory access was encountered", "Consider passing X=1", ""], 0),
        (["kernel.cu", "k.cu(3): error: no such type", "1 error detected"], 1),
        (["LoweringException: NoValidChoicesError: none", "  target: mm", "Set X=1"], 0),
        (["CUDA out of memory. Tried to allocate 2 GiB.", "See more"], 0),
    ],
)
def test_the_reason_is_the_line_that_tells(lines: list[str], told: int) -> None:
    assert reason(RuntimeError("\n".join(lines))) == lines[told]


def test_a_reason_without_words() -> None:
    assert reason(MemoryError()) == "MemoryError"


def test_a_bug_is_told_with_its_type_and_place() -> None:
    with pytest.raises(KeyError) as raised:
        {}["depth"]
    line = raised.tb.tb_lineno
    assert reason(raised.value) == f"KeyError: 'depth' (test_timing.py:{line})"
    assert reason(AssertionError()) == "AssertionError"


def test_an_interrupt_keeps_what_was_measured() -> None:
    rounds = []

    def run(a, b, c) -> None:
        rounds.append(1)
        if len(rounds) == 8:
            raise KeyboardInterrupt
        fake_torch.Clock.now += 1.0
        c.data[...] = a.data.astype("float64") @ b.data.astype("float64")

    report = measured(Contender("long", lambda: (run, ""), "float16"), rounds=100)
    assert report.interrupted
    (result,) = report.results
    assert 1 < result.rounds < 100


def test_rounds_are_shuffled() -> None:
    """A long kernel's clock depends on the one before it, which is not always the same."""
    order = []

    def named(name: str):
        def run(a, b, c) -> None:
            order.append(name)
            fake_torch.Clock.now += 1.0
            c.data[...] = a.data.astype("float64") @ b.data.astype("float64")

        return Contender(name, lambda: (run, ""), "float16")

    measured(named("a"), named("b"), named("c"), rounds=6)
    timed = order[3:-3]
    rounds = list(zip(*(iter(timed),) * 3, strict=True))
    assert len(rounds) == 6 + bench.WARM_UP
    assert all(set(one) == set("abc") for one in rounds)
    behind = set(itertools.pairwise(timed))
    assert len({pair for pair in behind if pair[0] != pair[1]}) == 6


def test_problems_side_by_side_share_their_rounds() -> None:
    """Each has inputs and a truth of its own, and what fails in one is of that one."""
    order = []
    other = Gemm(16, 40, 8, dtype="fp16", layout="NN")

    def named(name: str, gemm: Gemm, wrong: float = 0.0) -> Contender:
        run, detail = takes(1.0, wrong, gemm)()

        def told(*operands) -> None:
            order.append(name)
            run(*operands)

        return Contender(name, lambda: (told, detail), gemm.out)

    first = Problem(GEMM, (named("bad", GEMM, 1.0), named("a", GEMM)), "first")
    second = Problem(other, (named("b", other), named("worse", other, 1.0)), "second", beside=True)
    third = Problem(GEMM, (named("c", GEMM),), "third")
    report = Report("a stand-in")
    bench.measure([first, second, third], report, rounds=4, say=lambda text: None)
    assert [(one.problem, one.contender, bool(one.failure)) for one in report.results] == [
        ("first", "bad", True),
        ("first", "a", False),
        ("second", "b", False),
        ("second", "worse", True),
        ("third", "c", False),
    ]
    assert order[:4] == ["bad", "a", "b", "worse"]
    *rounds, last = zip(*(iter(order[4 : order.index("c")]),) * 2)
    assert (len(rounds), last) == (bench.WARM_UP + 4, ("a", "b"))
    assert set(rounds) == {("a", "b"), ("b", "a")}
    rates = {one.contender: one.tflops for one in report.measured}
    assert rates["a"] / rates["b"] == pytest.approx(GEMM.flops() / other.flops())


def test_fast_summing_is_excused_in_a_library_only() -> None:
    """A few roundings of a partial sum: more than float32 would be off, less than a wrong index."""
    off = takes(1.0, wrong=2.0**-10)
    ours = measured(Contender("ours", off, "float16")).results[0]
    library = measured(Contender("library", off, "float16", slack=100.0)).results[0]
    assert ours.failure.code == "measure.wrong"
    assert (library.failure, library.worst > 1) == ("", True)
    wrong = measured(Contender("library", takes(1.0, wrong=1.0), "float16", slack=100.0))
    assert wrong.results[0].failure.code == "measure.wrong"


def test_a_result_may_be_returned() -> None:
    def run(a, b, c):
        fake_torch.Clock.now += 1.0
        return fake_torch.Tensor(product(GEMM, a, b).astype("float16"))

    assert measured(Contender("torch's", lambda: (run, ""), "float16")).results[0].worst <= 1


def test_inputs_are_arranged_outside_the_timed_part() -> None:
    gemm = Gemm(32, 16, 24, layout="NT")
    seen = []

    def run(a, b, c) -> None:
        seen.append((a, b))
        fake_torch.Clock.now += 1.0
        c.data[...] = a.data.astype("float64") @ b.data.astype("float64")

    def arrange(inputs):
        return inputs[0], inputs[1].transpose(-1, -2).contiguous()

    report = measured(Contender("NN", lambda: (run, ""), "float16", arrange), gemm=gemm)
    assert report.results[0].failure == ""
    assert {b.shape for _, b in seen} == {(24, 16)}
    assert len({id(b) for _, b in seen}) == 1


def test_a_lost_gpu_fails_every_contender_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_torch, "randn", lambda *_, **__: 1 / 0, raising=True)
    report = measured(Contender("a", takes(1.0), "float16"), Contender("b", takes(1.0), "float16"))
    assert [(r.contender, r.failure) for r in report.results] == [
        ("a", "division by zero"),
        ("b", "division by zero"),
    ]


def test_an_epilogue_reads_its_own_inputs() -> None:
    gemm = Gemm(32, 16, 24, layout="NN", epilogue=("bias", "relu"))

    def run(a, b, bias, c) -> None:
        fake_torch.Clock.now += 1.0
        sums = product(gemm, a, b) + bias.data.astype("float64")
        c.data[...] = sums.clip(min=0)

    report = measured(Contender("fused", lambda: (run, ""), "float16"), gemm=gemm)
    assert report.results[0].failure == ""


def test_a_quick_look_at_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = takes(1.0)()
    library, _ = takes(0.5)()
    monkeypatch.setattr(timing, "describe", lambda kernel: "a kernel")
    monkeypatch.setattr(timing, "cublas", lambda gemm: library)
    report = bench.quick(GEMM, run, 4)
    assert report.ratio(GEMM.name, bench.CUBLAS) == pytest.approx(0.5)
    assert (report.rounds, report.results[0].detail) == (4, "a kernel")


CONV = conv2d(2, 6, 5, 4, 8, 3, 3, stride=2, pad=1)


@pytest.mark.parametrize("spec", [CONV, ConvInputGrad(CONV)], ids=lambda spec: spec.name)
def test_convolutions(spec) -> None:
    def run(first, second, out) -> None:
        fake_torch.Clock.now += 0.25
        out.data[...] = spec.reference(first.data, second.data)

    report = Report("a stand-in")
    contender = Contender("it", lambda: (run, ""), spec.out)
    problem = Problem(spec, (contender,), "small")
    bench.measure([problem], report, rounds=4, say=lambda text: None)
    (result,) = report.results
    assert (result.problem, result.workload, result.failure) == ("small", spec.title, "")
    assert result.tflops == pytest.approx(spec.flops() / 250e-6 * 1e-12)


@pytest.mark.skipif(gpu() is not None, reason="a GPU is here")
def test_no_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with refused("gpu.none", TargetError):
        bench.require_gpu()
