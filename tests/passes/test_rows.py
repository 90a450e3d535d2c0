"""Arithmetic on rows of sums: in registers, by the threads that have them, on every instruction."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pytest

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.mutation import mutate
from pipeliner.plan import KernelPlan
from pipeliner.schedules import RowGemm, RowTile, schedule_rows
from pipeliner.schedules.workloads import STATISTICS, Statistic
from pipeliner.verification.accuracy import poisoned, worst_error

from ..refusals import gives
from .row_kernels import STEP, scaled_steps, with_rows
from .sass import loop_around

BY_TMA: Final[dict[str, Any]] = {"instruction": "wgmma", "mechanism": "tma"}
TARGETS = {"h100": ["consumer", "producer"], "a100": []}
M, N, K, TILE = 128, 128, 4 * STEP, 64


def operands(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B, small enough that exponentials of products are finite."""
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(rows, K)).astype("float16") / 4 for rows in (M, N))


def stays_in_registers(plan: KernelPlan) -> bool:
    left = ("mapped.through_shared", "mapped.shared")
    return not any(gives(reason, code) for reason in plan.reasons for code in left)


def checked(kernel: Kernel, target: str) -> Kernel:
    assert [role.name for role in kernel.plan.roles] == TARGETS[target]
    assert stays_in_registers(kernel.plan)
    return kernel


@pytest.mark.parametrize("target", TARGETS)
def test_a_scale_for_each_row_and_step(target: str) -> None:
    kernel = checked(pipeliner.build(scaled_steps(M, N, K, TILE), target), target)
    a, b = operands(3)
    scales = np.random.default_rng(4).uniform(0.5, 2, (K // STEP, M)).astype("float32")
    out = np.full((M, N), np.nan, "float32")
    done = kernel.emulate(a, b, scales, out)
    assert not done.hazards
    parts = a.astype("float64").reshape(M, -1, STEP)
    others = b.astype("float64").reshape(N, -1, STEP)
    exact = np.einsum("msk,nsk,sm->mn", parts, others, scales.astype("float64"))
    assert np.abs(done.outputs["C"] - exact).max() < 1e-4


def test_a_matmul_that_a_condition_leaves_out_leaves_zero() -> None:
    """Its first wgmma may not write in place of the zeroing: where it is left out, nothing would."""
    options = {"instruction": "wgmma", "mechanism": "tma"}
    kernel = pipeliner.build(scaled_steps(M, N, K, TILE, every=2), "h100", **options)
    assert [role.name for role in kernel.plan.roles] == ["consumer", "producer"]
    a, b = operands(7)
    done = kernel.emulate(a, b, np.ones((K // STEP, M), "float32"), np.full((M, N), np.nan, "f"))
    assert not done.hazards
    parts, others = (x.astype("float64").reshape(-1, K // STEP, STEP)[:, ::2] for x in (a, b))
    exact = np.einsum("msk,nsk->mn", parts, others)
    assert np.abs(done.outputs["C"] - exact).max() < 1e-4


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_statistic_of_each_row(target: str, statistic: Statistic) -> None:
    """In the loop, or behind it by the threads that have the sums, and combined by a kernel."""
    what = RowGemm(M, N, K, statistic)
    asked = BY_TMA if target == "h100" else {}
    kernel = checked(pipeliner.build(with_rows(M, N, K, statistic, TILE), target, **asked), target)
    done = kernel.emulate(*what.inputs(5), *(poisoned(*result) for result in what.results))
    assert not done.hazards
    _, _, *got = done.outputs.values()
    exact, magnitude = what.reference(*what.inputs(5)), what.magnitude(*what.inputs(5))
    for one, want, scale, (_, out) in zip(got, exact, magnitude, what.results, strict=True):
        assert worst_error(what, one, want, scale, out=out) <= 1


@pytest.mark.parametrize("statistic", ["rms", "lse"])
def test_a_cta_that_takes_several_tiles_begins_each_anew(statistic: Statistic) -> None:
    what, tile = RowGemm(M, 3 * TILE, K, statistic), RowTile(TILE, TILE, persistent=4)
    kernel = checked(pipeliner.build(schedule_rows(what, tile), "h100", **BY_TMA), "h100")
    done = kernel.emulate(*what.inputs(6), *(poisoned(*result) for result in what.results))
    assert not done.hazards
    _, _, *got = done.outputs.values()
    made = zip(got, what.reference(*what.inputs(6)), what.magnitude(*what.inputs(6)), what.results)
    assert all(worst_error(what, *right, out=out) <= 1 for *right, (_, out) in made)


@pytest.mark.deep("tests/verify/test_attention.py::test_it_is_right_in_every_timing")
def test_all_orders_of_threads_and_landings_agree() -> None:
    verdict = pipeliner.verify(scaled_steps(M, N, K, TILE), target="h100")
    assert verdict.ok, str(verdict)


@pytest.mark.nvcc
@pytest.mark.deep("test_several_matmuls.py::test_a_step_of_head_128_takes_few_instructions")
@pytest.mark.parametrize("kernel", [scaled_steps(512, 512, 512), with_rows(512, 512, 512, "lse")])
def test_nothing_spills_and_no_wgmma_waits_for_another(kernel: object) -> None:
    used = pipeliner.build(kernel, "h200").resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")


def test_what_lanes_read_they_release_behind_a_fence() -> None:
    plan = pipeliner.plan_of(pipeliner.pipeline(with_rows(M, N, K, tile=TILE), "h100"))
    (pair,) = plan.mbarriers
    assert pair.rings == ("A_shared", "B_shared")
    assert pair.arrivals == plan.role("consumer").threads // 32
    assert gives(pair.reason, "release.by_warp")


def test_the_slot_before_is_released_before_lanes_read_the_next() -> None:
    """All wgmmas of the step are under way then, and lanes load 16 bytes at once."""
    text = str(pipeliner.build(with_rows(M, N, K, tile=TILE), "h100", **BY_TMA).cuda)
    steady = text[text.rindex("wgmma_commit_group", 0, text.index("uint4*)(A_shared_term")) :]
    known = re.compile(r"wgmma_wait_group\w+_1\(|mbarrier_arrive_nocount|uint4\*\)\(A_shared_term")
    found = [match.group().split("_")[0] for match in known.finditer(steady)][:3]
    assert found == ["wgmma", "mbarrier", "uint4*)(A"]


@pytest.mark.deep("test_what_lanes_read_they_release_behind_a_fence")
def test_every_mutant_of_what_lanes_read_is_killed() -> None:
    report = mutate(
        pipeliner.build(with_rows(64, 64, 7 * STEP, tile=64), "h100", **BY_TMA, depth=2)
    )
    assert len(report.fates) > 20
    assert report.ok, [str(fate.mutant) for fate in report.survivors]


@pytest.mark.nvcc
@pytest.mark.slow
def test_lanes_share_out_the_squares_of_a_row() -> None:
    """A thread has 32 elements of a step of 128 x 64: four lanes a row, two rows a lane."""
    kernel = pipeliner.build(with_rows(4096, 4096, 4096), "h200", **BY_TMA)
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
    loop = loop_around(str(kernel.sass), "HGMMA")
    assert sum(line.startswith("FFMA") for line in loop) == 32
    kinds = [line.split()[0].split(".")[0] for line in loop]
    assert kinds.count("LDS") == 4  # of 16 bytes
    assert max(at for at, kind in enumerate(kinds) if kind == "HGMMA") < kinds.index("LDS")
    assert len(loop) <= 135


@pytest.mark.parametrize("steps", [2, 5])
def test_scales_are_loaded_a_step_ahead(steps: int) -> None:
    k = steps * STEP
    kernel = pipeliner.build(scaled_steps(M, N, k, TILE), "h100", **BY_TMA)
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=(rows, k)).astype("float16") / 4 for rows in (M, N))
    scales = rng.uniform(0.5, 2, (steps, M)).astype("float32")
    done = kernel.emulate(a, b, scales, np.full((M, N), np.nan, "float32"))
    assert not done.hazards
    parts = (x.astype("float64").reshape(-1, steps, STEP) for x in (a, b))
    exact = np.einsum("msk,nsk,sm->mn", *parts, scales.astype("float64"))
    assert np.abs(done.outputs["C"] - exact).max() < 1e-4
    loads = re.findall(r"(\w+_ptr)\[\w+\] = F_ptr\[", str(kernel.cuda))
    assert set(loads) == {"even_0_ptr", "odd_0_ptr"}
