"""Copies that give their lines the priority evict-first: the instructions, and that nothing breaks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import pipeliner
from pipeliner.mutation.mutants import mutants
from pipeliner.passes.copy.eviction import cache_hint
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.toolchain import nvcc

from .judged import assert_right

COMPARED = """extern "C" __global__ void compared(int* wrong) {{
  unsigned long long made;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(made));
  if (made != {policy}ULL) *wrong = 1;
}}"""
"""A store that ptxas leaves out if it knows that the two are the same."""

BY_TMA = {"instruction": "wgmma", "mechanism": "tma"}
SMALL = Gemm(64, 128, 256), GemmTile(64, 64, 64)
CASES: list[tuple[Gemm, GemmTile, str, dict[str, Any]]] = [
    (*SMALL, "h100", BY_TMA),
    (Gemm(128, 128, 256), GemmTile(64, 64, 64), "h100", {"cluster": 2}),
    (Gemm(60, 56, 72), GemmTile(64, 64, 64), "h100", BY_TMA),  # zero-filled
    (Gemm(64, 64, 256), GemmTile(64, 64, 64, splits=2), "h100", BY_TMA),
]


def both(gemm: Gemm, tile: GemmTile, target: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The kernel as it is chosen, and with a plan with B evict-first."""
    schedule = schedule_gemm(gemm, tile)
    plain = pipeliner.build(schedule, target, **options)
    assert {copy.eviction for copy in plain.plan.copies} == {"evict_normal"}
    copies = tuple(
        replace(copy, eviction="evict_first") if copy.src == "B" else copy
        for copy in plain.plan.copies
    )
    return plain, pipeliner.build(schedule, target, plan=replace(plain.plan, copies=copies))


@pytest.mark.part(4)
@pytest.mark.slow
@pytest.mark.parametrize(("gemm", "tile", "target", "options"), CASES, ids=str)
def test_same_kernel_but_for_the_hint(
    gemm: Gemm, tile: GemmTile, target: str, options: dict[str, Any]
) -> None:
    plain, hinted = both(gemm, tile, target, options)
    assert_right(hinted, gemm)
    assert [m.what for m in mutants(hinted.lowered)] == [m.what for m in mutants(plain.lowered)]

    assert "cache_hint" not in plain.cuda
    calls = [line for line in hinted.cuda.splitlines() if re.match(r" .*\bB_(ptr|map)\b", line)]
    copies = [line for line in calls if "tvm_builtin_ptx_cp_async" in line]
    assert copies
    assert all("L2__cache_hint" in line for line in copies)
    assert not any("cache_hint" in line for line in hinted.cuda.splitlines() if "A_" in line)


def test_the_plan_travels_with_it() -> None:
    _, hinted = both(*SMALL, "h100", BY_TMA)
    assert [copy.eviction for copy in hinted.plan.copies] == ["evict_normal", "evict_first"]
    assert type(hinted.plan).from_json(hinted.plan.to_json()) == hinted.plan


@pytest.mark.nvcc
def test_the_policy_is_what_createpolicy_makes() -> None:
    def sass(policy: int) -> str:
        source = COMPARED.format(policy=policy)
        return nvcc.disassemble(nvcc.compile_cuda(source, "sm_80", "cubin").data)

    name, (policy,) = cache_hint("first")
    assert name == ".L2::cache_hint"
    assert "STG" not in sass(int(policy.value))
    assert "STG" in sass(int(policy.value) + 1)


@pytest.mark.nvcc
@pytest.mark.parametrize(("gemm", "tile", "target", "options"), CASES[:3], ids=str)
@pytest.mark.deep("test_same_kernel_but_for_the_hint")
def test_machine_code_has_the_policy(
    gemm: Gemm, tile: GemmTile, target: str, options: dict[str, Any]
) -> None:
    plain, hinted = both(gemm, tile, target, options)
    upper = f"{int(cache_hint('first')[1][0].value) >> 32:#x}"
    without, sass = plain.sass, hinted.sass
    assert upper in sass
    assert upper not in without
    copies, before = (re.findall(r"\bUTMALDG\b.*", code) for code in (sass, without))
    descriptors = [copy for copy in copies if "desc[" in copy]
    assert descriptors
    assert len(descriptors) < len(copies)
    assert not any("desc[" in copy for copy in before)
    assert hinted.resources.spills == plain.resources.spills == 0
