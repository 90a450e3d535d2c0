"""Depths compared by what nvcc makes of them: the plan says how, and the kernel is a right one."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner import PipelinerError
from pipeliner.cli import main
from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError, RecordsError, ToolError
from pipeliner.kernel import refined as module
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from tests.refusals import refused, says, the

SPEC = Gemm(256, 256, 512, dtype="float16")

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def kernel():
    return pipeliner.build(schedule_gemm(SPEC, GemmTile(64, 64, 32)), "a100", refine=True)


def test_the_plan_says_how_the_depths_compare(kernel) -> None:
    said = [each for each in kernel.plan.reasons if says("refine.depth", [each])]
    depth = kernel.plan.loops[0].rings[0].depth
    (own,) = (each for each in said if the("refine.depth", [each])["depth"] == depth)
    assert len(said) > 1
    assert the("refine.depth", [own])["registers"] == kernel.resources.registers
    stands = says("refine.stands", kernel.plan.reasons)
    assert says("refine.taken", [own]) != stands
    assert sum(says("refine.taken", [each]) for each in said) < 2


def test_nobody_asked_for_the_depth(kernel) -> None:
    (loop,) = kernel.plan.loops
    assert loop.source == "auto"
    assert not any(ring.requested or says("request.asked", [ring.reason]) for ring in loop.rings)
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
    no_room = Reason.text("cannot place 'A_shared': 99 of 98 bytes")

    def build_with(func, target, request):
        if request.depth != "auto":
            raise PlanError(no_room)
        return usual(func, target, request)

    monkeypatch.setattr(module, "build_with", build_with)
    made = pipeliner.build(schedule_gemm(SPEC, GemmTile(64, 64, 32)), "a100", refine=True)
    refused = [each for each in made.plan.reasons if says("refine.not_built", [each])]
    assert refused
    assert all(each["why"] == no_room for each in refused)
    assert sum(says("refine.depth", [each]) for each in made.plan.reasons) == 1


def test_roles_set_their_registers_themselves() -> None:
    kernel = pipeliner.build(Gemm(512, 512, 512, dtype="float16"), "h100", refine=True)
    assert kernel.plan.roles
    assert Reason("refine.roles") in kernel.plan.reasons


@pytest.mark.parametrize(
    ("options", "error", "code"),
    [
        ({"depth": 3}, PlanError, "refine.depth_given"),
        ({"db": "kernels.sqlite"}, RecordsError, "records.refine"),
    ],
)
def test_what_leaves_nothing_to_choose(options, error, code) -> None:
    with refused(code, error):
        pipeliner.build(SPEC, "a100", refine=True, **options)


def test_a_plan_that_is_given(kernel) -> None:
    with refused("refine.depth_given", PlanError, asked="plan"):
        pipeliner.build(SPEC, "a100", refine=True, plan=kernel.plan)


def test_what_is_pipelined_already(kernel) -> None:
    with pytest.raises(TypeError) as raised:
        pipeliner.build(kernel.function, "a100", refine=True)
    assert raised.value.args == (Reason("refine.pipelined"),)


def test_without_nvcc(monkeypatch) -> None:
    monkeypatch.setenv("PIPELINER_NVCC", "/nowhere/nvcc")
    with refused("nvcc.not_there", ToolError, path="/nowhere/nvcc") as caught:
        pipeliner.build(SPEC, "a100", refine=True)
    assert isinstance(caught.value, PipelinerError)


def test_the_command_prints_how_depths_compare_and_takes_nothing_from_records(
    capsys, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("PIPELINER_DB", str(tmp_path / "none.sqlite"))
    asked = ["build", "gemm", "--m", "256", "--n", "256", "--k", "256", "--target", "a100"]
    assert main([*asked, "--refine"]) == 0
    assert "registers" in capsys.readouterr().out
    assert main([*asked, "--refine", "--db", "kernels.sqlite"]) == 1
    assert "cannot refine what records have" in capsys.readouterr().err
