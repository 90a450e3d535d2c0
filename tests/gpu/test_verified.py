"""The kernels that the emulator judges, on a GPU: the same bits, and the same kernels are broken.

Small integers make every product and sum exact, so that the order of additions cannot show.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeliner.emulator import emulate
from pipeliner.targets import gpu_arch
from pipeliner.verification.accuracy import poisoned

from ..verify.requirements import SHARED_BYTES, refusal
from ..verify.sweep import FACTORS, Case, cover, judge_of, worst_of
from .planted import DEFECTS, KERNELS, operands, whole
from .sanitizer import OBJECTS, assert_accepted, sanitized

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")  # before its cases are made, which takes seconds

PLANTED = ("-m", "tests.gpu.planted")

CASES = cover(
    {**FACTORS, "target": ("sm_90",), "trips": (1, 2, 3, 5, 8)},
    lambda case: case.is_possible and refusal(case) is None,
    Case,
)


def here(case: Case) -> Case:
    """``case`` for the GPU of this machine; skips where the case is none for it."""
    arch = gpu_arch()
    if arch not in SHARED_BYTES:
        pytest.skip(f"no requirements are written down for {arch}")
    case = replace(case, target=arch)
    if refusal(case) is not None:
        pytest.skip(f"{arch} refuses it")
    return case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_emulator_agrees_bit_for_bit_on_small_integers(case: Case) -> None:
    case = here(case)
    gemm, kernel = case.gemm(), case.kernel()
    steps = (case.trips,) if case.dynamic else ()
    for rows in (rows for rows in case.row_counts if rows != 0):
        rng = np.random.default_rng(1)
        a, b = (rng.integers(-2, 3, x.shape).astype(x.dtype) for x in case.operands(rows))
        c = poisoned(gemm.shapes(rows)[2], gemm.out)
        emulated = kernel.emulate(a, b, c, *steps).outputs["C"]
        kernel(a, b, c, *steps)
        np.testing.assert_array_equal(c.view("uint8"), np.asarray(emulated).view("uint8"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_operands_are_right_to_rounding(case: Case) -> None:
    case = here(case)
    gemm, kernel = case.gemm(), case.kernel()
    steps = (case.trips,) if case.dynamic else ()
    for rows in (rows for rows in case.row_counts if rows != 0):
        a, b = case.operands(rows)
        c = poisoned(gemm.shapes(rows)[2], gemm.out)
        kernel(a, b, c, *steps)
        assert worst_of(judge_of(case, kernel), a, b, c) <= 1


def test_a_loop_of_no_iterations_gives_zeros() -> None:
    case = here(Case(trips=0, dynamic=True))
    gemm, kernel = case.gemm(), case.kernel()
    a, b = case.operands(None)
    c = poisoned(gemm.shapes()[2], gemm.out)
    kernel(a, b, c, 0)
    np.testing.assert_array_equal(c, np.zeros_like(c))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("tool", ["racecheck", "synccheck", "memcheck"])
def test_the_sanitizer_agrees_that_a_kernel_is_whole(tool: str, name: str) -> None:
    assert emulate(whole(name, str(gpu_arch())).lowered, operands(name)).hazards == ()
    assert_accepted(tool, *PLANTED, name)


@pytest.mark.parametrize(("name", "kind"), DEFECTS)
def test_racecheck_agrees_that_a_planted_defect_is_a_race(name: str, kind: str) -> None:
    done = sanitized("racecheck", *PLANTED, name, kind)
    assert done.returncode == OBJECTS, done.stdout[-3000:] + done.stderr[-3000:]
    assert "hazard" in done.stdout.lower()
