"""Kernels that start early: who waits, who lets the next one in, and what breaks without."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import pipeliner
from pipeliner.emulator import emulate
from pipeliner.errors import PlanError, ToolError
from pipeliner.mutation.mutants import mutants, mutated
from pipeliner.passes.ir.kernels import COOPERATIVE, LAUNCH_PARAMS
from pipeliner.plan import LaunchPlan
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from tests.refusals import refused

from .judged import assert_right

WAIT = "tvm_builtin_ptx_griddepcontrol_wait();"
RELEASE = "tvm_builtin_ptx_griddepcontrol_launch_dependents();"

SPLIT = Gemm(16, 128, 512), GemmTile(16, 64, 64, splits=2)
CASES: list[tuple[Gemm, GemmTile, dict[str, Any]]] = [
    (*SPLIT, {"instruction": "wgmma", "reduction": "workspace"}),
    (*SPLIT, {"instruction": "wgmma", "reduction": "workspace", "pdl": True}),
    (*SPLIT, {"instruction": "wgmma", "store": "cluster"}),
    (Gemm(64, 64, 256), GemmTile(64, 64, 32, splits=2), {"instruction": "mma"}),
    (Gemm(128, 128, 256), GemmTile(64, 64, 64, persistent=2), {"store": "tma", "pdl": True}),
    (Gemm(128, 128, 256), GemmTile(64, 64, 64), {"cluster": 2, "pdl": True}),
    (Gemm(60, 56, 64), GemmTile(64, 64, 32), {"instruction": "mma", "pdl": True}),
    (Gemm(64, 64, 64, dtype="fp32"), GemmTile(32, 32, 8), {"instruction": "simt", "pdl": True}),
]


def built(gemm: Gemm, tile: GemmTile, target: str = "h100", **options: Any) -> Any:
    return pipeliner.build(schedule_gemm(gemm, tile), target, **options)


def bodies(cuda: str) -> list[str]:
    """The text of each device function."""
    return re.split(r'extern "C" __global__ [^;{]*\{\n', cuda)[1:]


@pytest.mark.slow
@pytest.mark.parametrize(("gemm", "tile", "options"), CASES, ids=str)
@pytest.mark.part(9)
def test_right_and_every_wait_is_needed(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    kernel = built(gemm, tile, **options)
    arrays = assert_right(kernel, gemm)

    waits = [mutant for mutant in mutants(kernel.lowered) if mutant.what == "griddepcontrol"]
    assert len(waits) == len(bodies(kernel.cuda))
    for mutant in waits:
        broken = emulate(mutated(kernel.lowered, mutant), arrays)
        assert {"before-predecessor", "never-waited"} <= {h.kind for h in broken.hazards}


@pytest.mark.slow
@pytest.mark.parametrize(("gemm", "tile", "options"), CASES, ids=str)
@pytest.mark.part(9)
def test_where_they_stand(gemm: Gemm, tile: GemmTile, options: dict[str, Any]) -> None:
    kernel = built(gemm, tile, **options)
    found = bodies(kernel.cuda)
    for number, body in enumerate(found):
        assert body.count(WAIT) == 1
        before = body[: body.index(WAIT)]
        assert not re.search(r"\b([ABC]|parts)_ptr\b|&\([ABC]\w*_map\)", before)
        assert body.count(RELEASE) == (number in kernel.plan.launch.triggers)
        if RELEASE in body:
            behind = body[body.index(RELEASE) :]
            assert not re.search(r"&\([AB]\w*_map\)|cp_async_c[ag]|= [^;]*\b[AB]_ptr", behind)
    assert kernel.plan.launch.triggers == tuple(range(len(found)))


@pytest.mark.parametrize(
    ("gemm", "tile", "triggers"),
    [
        (Gemm(128, 4288, 256), GemmTile(64, 128, 64), ()),  # who comes next is not ours to know
        (Gemm(128, 4224, 256), GemmTile(64, 128, 64), (0,)),  # 66 of 132 SMs: there is room
        (*SPLIT, (0,)),  # a cluster adds up
        (Gemm(16, 128, 512, batch=2), SPLIT[1], (0, 1)),  # the sum leaves room
        (Gemm(130, 70, 100, dtype="fp16"), GemmTile(64, 64, 32, reordered=True), (0, 1)),
    ],
    ids=str,
)
def test_who_lets_the_next_one_in_by_default(
    gemm: Gemm, tile: GemmTile, triggers: tuple[int, ...]
) -> None:
    launch = built(gemm, tile).plan.launch
    assert (launch.pdl, launch.triggers) == (True, triggers)


def test_one_thread_of_the_producer_lets_the_next_one_in() -> None:
    (body,) = bodies(built(Gemm(128, 128, 256), GemmTile(128, 128, 64), pdl=True).cuda)
    lines = body.splitlines()
    at = next(i for i, line in enumerate(lines) if RELEASE in line)
    indent = len(lines[at]) - len(lines[at].lstrip())
    around = [line for line in lines[:at] if len(line) - len(line.lstrip()) == indent - 2]
    assert "elect_one_sync" in around[-1]


@pytest.mark.nvcc
@pytest.mark.parametrize(("gemm", "tile", "options"), CASES, ids=str)
@pytest.mark.deep("test_where_they_stand")
def test_no_load_is_moved_before_the_wait(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    kernel = built(gemm, tile, **options)
    try:
        functions = re.split(r"\.section\s+\.text\.", kernel.sass)[1:]
    except ToolError as err:
        pytest.skip(str(err))
    assert len(functions) == len(bodies(kernel.cuda))
    for sass in functions:
        waits, loads = (
            [match.start() for match in re.finditer(pattern, sass)]
            for pattern in (r"\bACQBULK\b", r"\b(LDG|LDGSTS|UTMALDG|STG|UTMASTG)\b")
        )
        assert len(waits) == 1
        assert waits[0] < min(loads)


@pytest.mark.parametrize(
    ("target", "tile", "options"),
    [
        ("a100", SPLIT[1], {}),
        ("h100", SPLIT[1], {"pdl": False}),
    ],
)
def test_in_order_elsewhere(target: str, tile: GemmTile, options: dict[str, Any]) -> None:
    kernel = built(SPLIT[0], tile, target, **options)
    assert kernel.plan.launch == LaunchPlan()
    assert "griddepcontrol" not in kernel.cuda
    assert "may start before" not in kernel.plan.explain()


def test_the_plan_says_it() -> None:
    kernel = built(*SPLIT, reduction="workspace")
    assert "kernel 0: the next one may start when the last loads are" in kernel.plan.explain()
    params = [
        [str(tag) for tag in func.attrs["tirx.kernel_launch_params"]]
        for func in kernel.lowered.functions.values()
    ]
    assert all("tirx.use_programtic_dependent_launch" in tags for tags in params)
    again = built(*SPLIT, plan=kernel.plan)
    assert again.cuda == kernel.cuda


def test_what_asks_for_all_its_ctas_at_once_is_launched_as_it_asks() -> None:
    """A barrier of the grid waits for CTAs that the kernel before would keep out."""
    func = schedule_gemm(Gemm(128, 64, 128), GemmTile(64, 64, 32)).mod["main"]
    together = func.with_attr(LAUNCH_PARAMS, [COOPERATIVE])
    kernel = pipeliner.build(together, "h100")
    assert not kernel.plan.launch.pdl
    assert "all of its CTAs at once" in kernel.plan.explain()
    (params,) = (
        [str(tag) for tag in func.attrs[LAUNCH_PARAMS]]
        for name, func in kernel.lowered.functions.items()
        if LAUNCH_PARAMS in func.attrs and "kernel" in str(name.name_hint)
    )
    assert COOPERATIVE in params
    with refused("launch.cooperative", PlanError, kernel=str(func.attrs["global_symbol"])):
        pipeliner.build(together, "h100", pdl=True)
    early = pipeliner.build(func, "h100").plan
    with refused("launch.cooperative", PlanError):
        pipeliner.build(together, "h100", plan=early)


def test_refused() -> None:
    with refused("launch.pdl", PlanError, machine="A100 SXM4"):
        built(*SPLIT, "a100", pdl=True)
    with refused("request.pdl", PlanError, value="'on'"):
        built(*SPLIT, pdl="on")
    plan = built(*SPLIT, reduction="workspace").plan
    wrong = replace(plan, launch=LaunchPlan(True, (2,)))
    with refused("launch.trigger", PlanError, number=2, kernels=2):
        built(*SPLIT, plan=wrong)
