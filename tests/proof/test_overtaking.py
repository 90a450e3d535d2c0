"""A kernel that may start early is judged for it, unless all its threads wait ahead of all else."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx

import pipeliner
from pipeliner.proof.prove import prove
from pipeliner.proof.reading.overtaking import may_overtake
from pipeliner.proof.running.subjects import host_and_kernels
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

KERNELS: dict[str, dict[str, Any]] = {
    "roles": {"instruction": "wgmma", "mechanism": "tma"},
    "cp.async": {"instruction": "mma", "mechanism": "cp_async"},
    "registers": {"instruction": "mma", "mechanism": "register"},
}


def lowered(options: dict[str, Any]) -> Any:
    tile = GemmTile(64, 64, 32)
    return pipeliner.build(schedule_gemm(Gemm(128, 64, 256), tile), "h100", **options).lowered


def edited(module: Any, change: Any) -> Any:
    """The module with what ``change`` makes of each wait for the kernel before."""

    def visit(stmt: Any) -> Any:
        is_wait = "griddepcontrol" in str(stmt.value) and '"wait"' in str(stmt.value)
        return change(stmt) if is_wait else stmt

    _, kernels = host_and_kernels(module)
    functions = {
        var: func.with_body(
            tvm_ffi.structural_map(func.body, [(tirx.Evaluate, visit)], order="post")
        )
        if str(var.name_hint) in kernels
        else func
        for var, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def kernel(module: Any) -> Any:
    (func,) = host_and_kernels(module)[1].values()
    return func


@pytest.mark.parametrize("name", KERNELS)
def test_who_waits_first_is_as_one_that_starts_behind(name: str) -> None:
    module = lowered(KERNELS[name])
    assert not may_overtake(kernel(module))
    early, in_turn = (
        prove(one).kernels[0] for one in (module, lowered({**KERNELS[name], "pdl": False}))
    )
    assert early.ok
    assert early.loops == in_turn.loops


@pytest.mark.parametrize("name", KERNELS)
def test_a_wait_that_is_missing_or_conditional_is_told(name: str) -> None:
    module = lowered(KERNELS[name])
    without = edited(module, lambda wait: tirx.Evaluate(0))
    assert may_overtake(kernel(without))
    (proof,) = prove(without).kernels
    assert not proof.ok
    assert proof.refuted is not None
    assert proof.refuted.hazard.kind in ("before-predecessor", "never-waited")
    thread = tirx.Var("threadIdx_x", "int32")
    some = edited(module, lambda wait: tirx.IfThenElse(thread < 32, wait, None))
    assert may_overtake(kernel(some))
