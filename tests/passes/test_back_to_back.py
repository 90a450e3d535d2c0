"""``O += f(A B) C`` in one loop: attention without its rows, for any elementwise ``f``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from tvm import tirx

import pipeliner
from pipeliner.mutation import mutate
from pipeliner.schedules import BackToBackGemm, RowTile, schedule_back_to_back
from pipeliner.verification.accuracy import poisoned, worst_error

from ..refusals import the
from .back_to_back import back_to_back
from .sass import loop_around

BY_TMA: Final[dict[str, Any]] = {"instruction": "wgmma", "mechanism": "tma"}

FUNCTIONS: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "relu": (lambda x: tirx.max(x, tirx.const(0, "float32")), lambda x: np.maximum(x, 0)),
    "silu": (lambda x: x / (1 + tirx.exp(-x)), lambda x: x / (1 + np.exp(-x))),
    "square": (lambda x: x * x, lambda x: x * x),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("target", ["h100", "a100"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_function_of_the_first_product(name: str, target: str) -> None:
    of, exactly = FUNCTIONS[name]
    m, n, k, p = 64, 160, 64, 64
    options = BY_TMA if target == "h100" else {}
    kernel = pipeliner.build(back_to_back(m, n, k, p, (64, 32), of), target, **options)
    if target == "h100":
        assert [role.name for role in kernel.plan.roles] == ["consumer", "producer"]
        assert [one.operand for one in kernel.plan.matmuls] == ["shared", "computed"]
    rng = np.random.default_rng(2)
    a, b, c = (rng.normal(size=s).astype("float16") / 4 for s in ((m, k), (n, k), (n, p)))
    done = kernel.emulate(a, b, c, np.full((m, p), np.nan, "float16"))
    assert not done.hazards
    hidden = exactly(a.astype("float64") @ b.astype("float64").T)
    assert np.abs(done.outputs["Out"] - hidden @ c.astype("float64")).max() < 2e-2


def test_sums_that_a_step_uses_stay_in_that_step() -> None:
    """Roles are kept, and the plan says why nothing runs under the next step."""
    func = back_to_back(64, 160, 64, 64, (64, 32), lambda x: x, decays=True)
    kernel = pipeliner.build(func, "h100", **BY_TMA)
    (loop,) = kernel.plan.loops
    assert len({op.stage for op in loop.ops if op.role == "consumer"}) == 1
    assert the("schedule.not_overlapped", loop.reasons)["op"] == "acc"
    rng = np.random.default_rng(7)
    a, b, c = (rng.normal(size=s).astype("float16") / 4 for s in ((64, 64), (160, 64), (160, 64)))
    done = kernel.emulate(a, b, c, np.full((64, 64), np.nan, "float16"))
    assert not done.hazards
    want, a64 = np.zeros((64, 64)), a.astype("float64")
    for at in range(0, 160, 32):
        part = slice(at, at + 32)
        want = (want + a64 @ b[part].astype("float64").T @ c[part].astype("float64")) / 2
    assert np.abs(done.outputs["Out"] - want).max() < 2e-2


@pytest.mark.parametrize("depth", [2, 3])
def test_each_operand_has_the_slots_that_were_asked_for(depth: int) -> None:
    """Without roles, too: B's copies are as far ahead of the first product as C's of the second."""
    of, exactly = FUNCTIONS["relu"]
    func = back_to_back(64, 224, 64, 64, (64, 32), of)
    kernel = pipeliner.build(func, "h100", instruction="wgmma", mechanism="cp_async", depth=depth)
    (loop,) = kernel.plan.loops
    assert not kernel.plan.roles
    assert [loop.ring(name).depth for name in ("B_shared", "C_shared")] == [depth, depth]
    reads = {"B_shared": "hidden", "C_shared": "acc"}
    ahead = [loop.op(user).stage - loop.op(copy).stage for copy, user in reads.items()]
    assert ahead == [depth - 1, depth - 1]
    rng = np.random.default_rng(3)
    a, b, c = (rng.normal(size=s).astype("float16") / 4 for s in ((64, 64), (224, 64), (224, 64)))
    done = kernel.emulate(a, b, c, np.full((64, 64), np.nan, "float16"), timing="late")
    assert not done.hazards
    hidden = exactly(a.astype("float64") @ b.astype("float64").T)
    assert np.abs(done.outputs["Out"] - hidden @ c.astype("float64")).max() < 2e-2


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.deep("tests/passes/test_several_matmuls.py")
def test_what_is_computed_stays_in_registers() -> None:
    of, _ = FUNCTIONS["relu"]
    func = back_to_back(4096, 4096, 128, 128, (128, 128), of)
    kernel = pipeliner.build(func, "h200", **BY_TMA)
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
    loop = loop_around(str(kernel.sass), "HGMMA")
    assert sum("HGMMA" in line for line in loop) % 16 == 0
    assert not any(line.startswith(("STS", "LDS")) for line in loop)
    assert kernel.plan.predicted_us > 0


@pytest.mark.deep("test_any_function_of_the_first_product")
def test_every_mutant_is_killed() -> None:
    of, _ = FUNCTIONS["relu"]
    func = back_to_back(64, 7 * 32, 64, 64, (64, 32), of)
    report = mutate(pipeliner.build(func, "h100", **BY_TMA, depth=2, in_flight=0))
    assert len(report.fates) > 20
    assert report.ok, [str(fate.mutant) for fate in report.survivors]


SPLIT: Final = BackToBackGemm(70, 200, 32, 32, "silu"), RowTile(64, 32, splits=3)
"""Seven steps: 3, 3 and 1 of the splits, of which the last one has columns beyond the last."""


@pytest.mark.parametrize("target", ["h100", "a100", "v100"])
def test_splits_of_the_columns_are_added(target: str) -> None:
    what, tile = SPLIT
    options = BY_TMA if target == "h100" else {}
    kernel = pipeliner.build(schedule_back_to_back(what, tile), target, **options)
    assert bool(kernel.plan.roles) == (target == "h100")
    assert [name for name in ("Part", "total") if name not in kernel.lowered.script()] == []
    inputs = what.inputs(4)
    done = kernel.emulate(*inputs, poisoned(what.shapes()[-1], what.out), timing="late")
    assert not done.hazards
    (got,) = (done.outputs[name] for name in done.outputs if name not in "ABC")
    assert worst_error(what, got, what.reference(*inputs), what.magnitude(*inputs)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("target", ["h100", "a100"])
def test_every_mutant_of_a_split_kernel_dies(target: str) -> None:
    """In a step that overlaps no other: there one wait and one fence cover those of both products."""
    what, tile = BackToBackGemm(64, 14 * 32, 64, 64), RowTile(64, 32, splits=2)
    options = {**BY_TMA, "in_flight": 0} if target == "h100" else {}
    report = mutate(pipeliner.build(schedule_back_to_back(what, tile), target, depth=2, **options))
    assert report.ok, [str(fate.mutant) for fate in report.survivors]


@pytest.mark.nvcc
def test_the_default_of_few_rows_compiles_without_spills() -> None:
    what = BackToBackGemm(2048, 4096, 128, 128)
    kernel = pipeliner.build(what, "h200")
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
