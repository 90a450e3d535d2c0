"""Depths compared by what nvcc makes of them: the plan says how, and the kernel is a right one."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner import PipelinerError
from pipeliner import refined as module
from pipeliner.cli import main
from pipeliner.errors import PlanError, RecordsError, ToolError
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

SPEC = Gemm(256, 256, 512, dtype="float16")

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def kernel():
    return pipeliner.build(schedule_gemm(SPEC, GemmTile(64, 64, 32)), "a100", refine=True)


def test_the_plan_says_how_the_depths_compare(kernel) -> None:
    said = [text for text in kernel.plan.reasons if text.startswith("as built with ")]
    depth = kernel.plan.loops[0].rings[0].depth
    own = next(text for text in said if text.startswith(f"as built with {depth} slot"))
    assert len(said) > 1
    assert f"{kernel.resources.registers} registers" in own
    stands = "what ptxas made of them corrects no prediction, the choice stands"
    assert own.endswith(", taken") != (stands in kernel.plan.reasons)
    assert sum(text.endswith(", taken") for text in said) < 2


def test_nobody_asked_for_the_depth(kernel) -> None:
    (loop,) = kernel.plan.loops
    assert loop.source == "auto"
    assert not any(ring.requested or "asked for" in ring.reason for ring in loop.rings)
    assert pipeliner.plan_of(kernel.function) == kernel.plan


def test_what_was_compiled_is_kept(kernel) -> None:
    assert {"_cubin", "sass"} <= set(vars(kernel))


def test_the_kernel_is_right(kernel) -> None:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((256, 512)).astype(np.float16) for _ in "ab")
    run = kernel.emulate(a, b, np.full((256, 256), np.nan, np.float16))
    assert not run.hazards
    right = a.astype(np.float64) @ b.T.astype(np.float64)
    assert np.allclose(run.outputs["C"], right, rtol=1e-3, atol=0.05)


def test_a_depth_that_cannot_be_built_is_left_out_with_its_reason(monkeypatch) -> None:
    usual = module.build_with

    def build_with(func, target, request):
        if request.depth != "auto":
            raise PlanError("cannot place 'A_shared': 99 of 98 bytes")
        return usual(func, target, request)

    monkeypatch.setattr(module, "build_with", build_with)
    made = pipeliner.build(schedule_gemm(SPEC, GemmTile(64, 64, 32)), "a100", refine=True)
    said = [text for text in made.plan.reasons if text.startswith("not built with ")]
    assert said
    assert all(text.endswith("cannot place 'A_shared': 99 of 98 bytes") for text in said)
    assert sum(text.startswith("as built with ") for text in made.plan.reasons) == 1


def test_roles_set_their_registers_themselves() -> None:
    kernel = pipeliner.build(Gemm(512, 512, 512, dtype="float16"), "h100", refine=True)
    assert kernel.plan.roles
    assert "depths are not compiled: roles set their registers themselves" in kernel.plan.reasons


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"depth": 3}, PlanError, "cannot choose a depth by compiling several: a depth is asked"),
        ({"db": "kernels.sqlite"}, RecordsError, "cannot refine what records have"),
    ],
)
def test_what_leaves_nothing_to_choose(options, error, text) -> None:
    with pytest.raises(error, match=text):
        pipeliner.build(SPEC, "a100", refine=True, **options)


def test_a_plan_that_is_given(kernel) -> None:
    with pytest.raises(PlanError, match="a plan is asked for"):
        pipeliner.build(SPEC, "a100", refine=True, plan=kernel.plan)


def test_what_is_pipelined_already(kernel) -> None:
    with pytest.raises(TypeError, match="cannot refine a function that is pipelined already"):
        pipeliner.build(kernel.function, "a100", refine=True)


def test_without_nvcc(monkeypatch) -> None:
    monkeypatch.setenv("PIPELINER_NVCC", "/nowhere/nvcc")
    with pytest.raises(ToolError, match="cannot run nvcc '/nowhere/nvcc'") as caught:
        pipeliner.build(SPEC, "a100", refine=True)
    assert isinstance(caught.value, PipelinerError)


def test_the_command_prints_how_depths_compare_and_takes_nothing_from_records(
    capsys, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("PIPELINER_DB", str(tmp_path / "none.sqlite"))
    asked = ["build", "gemm", "--m", "256", "--n", "256", "--k", "256", "--target", "a100"]
    assert main([*asked, "--refine"]) == 0
    assert "as built with " in capsys.readouterr().out
    assert main([*asked, "--refine", "--db", "kernels.sqlite"]) == 1
    assert "cannot refine what records have" in capsys.readouterr().err
