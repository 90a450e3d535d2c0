"""Right means right everywhere: each element has a tolerance of its own, and NaN is never right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.script import tirx as T

import pipeliner
from pipeliner import cli
from pipeliner.diagnostics import Reason
from pipeliner.errors import WorkloadError
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.accuracy import workload_bounds, worst_error
from pipeliner.verification.compared import compare
from pipeliner.verification.magnitudes import factor, terms_of
from pipeliner.verification.ownership import Owned, Ownership
from pipeliner.verification.subjects import has_same_sums, subject_of
from pipeliner.verification.tolerance import EQUAL, Equal, Within, asked, parsed
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused, says, the

ROWS, TERMS = 6, 512


@T.prim_func(s_tir=True)
def spread(A: T.Buffer((6, 32), "float32"), C: T.Buffer((6, 32), "float32")):
    T.func_attr({"global_symbol": "spread", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            for t in T.serial(6):
                with T.sblock("c"):
                    C[t, tx] = A[t, tx] + T.if_then_else(t == 0, T.float32(1e9), T.float32(1))


@T.prim_func(s_tir=True)
def dot(
    A: T.Buffer((512, 32), "float32"), B: T.Buffer((512,), "float32"), C: T.Buffer((32,), "float32")
):
    T.func_attr({"global_symbol": "dot", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("r"):
                acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
                acc[0] = T.float32(0)
                for t in T.serial(512):
                    with T.sblock("c"):
                        acc[0] = acc[0] - A[t, tx] * B[t]
                C[tx] = acc[0]


def of_one(function: str) -> Any:
    """A kernel of 64 elements, each made from one by the expression ``function`` of ``x``."""
    of = re.sub(r"\bx\b", "A[tx]", function)
    source = f"""
@T.prim_func(s_tir=True)
def one(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    T.func_attr({{"global_symbol": "one", "tirx.noalias": True}})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("c"):
                C[tx] = {of}
"""
    from tvm.script import from_source

    return from_source(source)


def test_an_error_is_seen_beside_a_much_larger_element() -> None:
    def reference(a: Any, c: Any, off: float = 0.0) -> Any:
        made = a + np.float32(1)
        made[0] = a[0] + np.float32(1e9)
        made[1:] += off
        return made

    right = pipeliner.verify(spread, target="a100", reference=reference)
    assert right.ok
    assert says("bound.rounding", [right.tolerance])
    wrong = pipeliner.verify(spread, target="a100", reference=lambda a, c: reference(a, c, 1e-4))
    assert not wrong.ok
    assert wrong.worst > 1


def wide(a: Any, b: Any) -> Any:
    return -(b.astype("f8") @ a.astype("f8"))


def test_long_sums_are_right_and_a_term_less_is_not() -> None:
    right = pipeliner.verify(dot, target="a100", reference=lambda a, b, c: wide(a, b))
    assert right.ok, right.worst
    assert the("bound.rounding", [right.tolerance])["terms"] == TERMS
    less = pipeliner.verify(dot, target="a100", reference=lambda a, b, c: wide(a[1:], b[1:]))
    assert not less.ok
    ones = [np.full((TERMS, 32), 0.1, "f4"), np.full(TERMS, 0.3, "f4"), np.zeros(32, "f4")]
    assert pipeliner.verify(dot, ones, target="a100", reference=lambda a, b, c: wide(a, b)).ok


def test_terms_are_counted_from_the_loops() -> None:
    arrays = {"A": np.zeros((TERMS, 32)), "B": np.zeros(TERMS), "C": np.zeros(32)}
    assert terms_of(dot, arrays) == TERMS
    flat = {"A": np.zeros((ROWS, 32)), "C": np.zeros((ROWS, 32))}
    assert terms_of(spread, flat) == 1
    assert factor(1) < factor(16) < factor(4096) < 4096


def test_nan_in_both_is_not_right() -> None:
    verdict = pipeliner.verify(of_one("T.log(x - T.float32(100))"), target="a100")
    assert not verdict.ok
    assert verdict.hazards == ()
    assert np.isnan(verdict.worst)
    (note,) = verdict.notes
    assert note == Reason("verdict.nan_both", name="C", count=64, size=64)


def test_a_reference_of_nan_is_not_right() -> None:
    verdict = pipeliner.verify(
        of_one("x + T.float32(1)"),
        target="a100",
        reference=lambda a, c: np.where(np.arange(64) == 3, np.nan, a + np.float32(1)),
    )
    assert not verdict.ok
    assert verdict.notes == (Reason("verdict.nan_wanted", name="C", count=1, size=64),)


def test_an_output_that_stays_nan_is_not_right_and_an_input_may() -> None:
    arrays = {"A": np.array([np.nan, 1.0], "f4"), "C": np.array([np.nan, np.nan], "f4")}
    outputs = {"A": arrays["A"], "C": np.array([2.0, np.nan], "f4")}
    owned = Owned((Ownership(owners={"C": np.zeros(2, np.int32)}),))
    assert np.isnan(compare(Equal(), arrays, outputs, outputs, owned).worst)
    assert np.isnan(compare(Equal(), arrays, outputs, outputs, Owned()).worst)
    outputs["C"] = np.array([2.0, 3.0], "f4")
    assert compare(Equal(), arrays, outputs, outputs, owned).worst == 0


@pytest.mark.parametrize("function", ["T.exp(x)", "T.float32(1) / (x * x + T.float32(2))"])
def test_where_no_bound_is_known_the_tolerance_is_said(function: str) -> None:
    compiled = of_one(function)
    makes = {"T.exp(x)": np.exp}.get(function, lambda x: 1 / (x * x + 2))
    right = pipeliner.verify(compiled, target="a100", reference=lambda a, c: makes(a.astype("f8")))
    assert right.ok
    assert the("bound.within", [right.tolerance])["rtol"] > 0
    assert says("bound.unknown", [right.tolerance])
    assert says("bound.called", [right.tolerance]) or says("bound.divided", [right.tolerance])
    wrong = pipeliner.verify(
        compiled, target="a100", reference=lambda a, c: makes(a.astype("f8")) * 1.001
    )
    assert not wrong.ok


def test_smooth_functions_have_bounds() -> None:
    verdict = pipeliner.verify(
        of_one("T.tanh(x) - T.max(x, T.float32(-3e38))"),
        target="a100",
        reference=lambda a, c: np.tanh(a.astype("f8")) - a,
    )
    assert verdict.ok
    assert says("bound.rounding", [verdict.tolerance])


def test_a_tolerance_that_is_asked_for_is_taken() -> None:
    def near(a: Any, c: Any) -> Any:
        return (a + 1) * 1.01

    plus = of_one("x + T.float32(1)")
    assert not pipeliner.verify(plus, target="a100", reference=near).ok
    loose = pipeliner.verify(plus, target="a100", reference=near, tolerance=0.02)
    assert loose.ok
    assert loose.tolerance == Within(0.02, 0.0).said
    assert not pipeliner.verify(plus, target="a100", reference=near, tolerance=(0.0, 1e-9)).ok
    gemm = Gemm(32, 32, 64)
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(32, 32, 32)), "a100")
    assert verify_workload(kernel, gemm, tolerance=(1e-2, 1e-2)).ok
    assert not verify_workload(kernel, gemm, tolerance=1e-7).ok


def test_tolerances_that_are_none() -> None:
    assert asked(None) is parsed(None) is None
    assert asked(parsed("0.1,2")) == Within(0.1, 2.0)
    for text in ("a", "1,2,3", ""):
        with refused("option.tolerance", WorkloadError):
            parsed(text)
    for value in (-1.0, float("nan"), (1.0, float("inf"))):
        with refused("tolerance.negative", WorkloadError):
            asked(value)
    with refused("tolerance.numbers", WorkloadError, value="'x'"):
        asked("x")


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("a100", {}),
        ("h100", {}),
        ("h100", {"instruction": "mma"}),
        ("a100", {"instruction": "simt"}),
    ],
)
@pytest.mark.part(6)
def test_against_itself_not_pipelined_every_bit_is_equal(
    target: str, options: dict[str, Any]
) -> None:
    gemm, tile = Gemm(64, 64, 192), GemmTile(64, 64, 32)
    kernel = pipeliner.build(schedule_gemm(gemm, tile), target, **options)
    verdict = pipeliner.verify(kernel)
    assert verdict.ok
    assert verdict.tolerance == EQUAL
    subject = subject_of(kernel)
    assert subject.plain is not None
    plain = subject.plain()
    assert has_same_sums(kernel.plan, plain.plan)
    assert [m.instruction for m in plain.plan.matmuls] == [
        m.instruction for m in kernel.plan.matmuls
    ]
    assert all(ring.depth == 1 for loop in plain.plan.loops for ring in loop.rings)


def test_parts_that_are_added_as_they_come_have_a_bound() -> None:
    gemm, tile = Gemm(64, 64, 512), GemmTile(64, 64, 64, splits=2)
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h100", reduction="atomic")
    verdict = pipeliner.verify(kernel, timings=("late",), orders=("lockstep",))
    assert verdict.ok
    assert verdict.tolerance != EQUAL


def test_a_workload_of_parts_has_a_bound_for_each_element() -> None:
    gemm = Gemm(4, 4, 64)
    a, b = gemm.inputs()
    a[0] *= 1000
    exact, magnitude = gemm.reference(a, b), gemm.magnitude(a, b)
    bounds = workload_bounds(gemm, exact, magnitude, parts=4)
    assert bounds[1:].max() < bounds[0].max() / 5
    off = exact.copy()
    off[1] += 2.0
    assert worst_error(gemm, exact, exact, magnitude, parts=4) == 0
    assert worst_error(gemm, off, exact, magnitude, parts=4) > 1


def test_two_parameters_of_one_name() -> None:
    x, y = (te.placeholder((64,), "float32") for _ in range(2))
    z = te.compute((64,), lambda i: x[i] - y[i])
    from tvm import s_tir

    sch = s_tir.Schedule(te.create_prim_func([x, y, z]))
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    outer, inner = sch.split(sch.get_loops(block)[0], [1, 64])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    verdict = pipeliner.verify(sch, target="a100", reference=lambda a, b, c: a - b)
    assert verdict.ok
    assert list(verdict.outputs) == ["placeholder", "placeholder_1", "compute"]


def test_the_command_says_the_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    small = (
        "gemm",
        "--m",
        "32",
        "--n",
        "32",
        "--k",
        "64",
        "--tile",
        "32x32x32",
        "--target",
        "a100",
    )
    once = ("--timing", "late", "--order", "lockstep")
    assert cli.main(["verify", *small, *once]) == 0
    assert f"; bound: {Reason('bound.workload')}, 0 hazards" in capsys.readouterr().out
    assert cli.main(["verify", *small, *once, "--tolerance", "0.1,0.1"]) == 0
    assert f"; bound: {Within(0.1, 0.1).said}, 0 hazards" in capsys.readouterr().out
