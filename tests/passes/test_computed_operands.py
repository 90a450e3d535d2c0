"""What is computed of sums is the next matmul's operand in registers, by mma.sync too."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import PipelinerError
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import Attention, AttentionTile, schedule_attention
from tests.refusals import gives

TWO_ROWS = Attention(1, 1, 30, 75, 32)
TILE = AttentionTile(32, 32)


def built(attention: Attention, tile: AttentionTile, target: str, **options: object) -> Kernel:
    return pipeliner.build(schedule_attention(attention, tile), target, **options)


def error(kernel: Kernel, attention: Attention) -> float:
    inputs = attention.inputs(seed=1)
    done = kernel.emulate(*inputs, np.full(attention.shapes()[-1], np.nan, "float16"))
    assert not done.hazards
    return float(np.abs(done.outputs["Out"] - attention.reference(*inputs)).max())


def operands(kernel: Kernel) -> list[str]:
    return [one.operand for one in kernel.plan.matmuls]


def lies_in_shared(kernel: Kernel, buffer: str) -> bool:
    return any(gives(why, "mapped.shared", buffer=buffer) for why in kernel.plan.reasons)


@pytest.mark.parametrize(("target", "roles"), [("a100", []), ("rtx5090", ["consumer", "producer"])])
def test_weights_stay_where_they_are_computed(target: str, roles: list[str]) -> None:
    attention = Attention(1, 1, 60, 75, 32)
    kernel = built(
        attention, AttentionTile(64, 32), target, **({"mechanism": "tma"} if roles else {})
    )
    assert [role.name for role in kernel.plan.roles] == roles
    assert operands(kernel) == ["shared", "computed"]
    assert not lies_in_shared(kernel, "weights")
    assert "weights" not in [place.buffer for place in kernel.plan.smem.buffers]
    (loop,) = kernel.plan.loops
    names = [str(op.name) for op in loop.ops]
    assert "acc.k0.b" in names
    assert "acc.k0.a" not in names
    assert error(kernel, attention) < 1e-3


def test_they_go_through_shared_memory_where_that_is_asked_for() -> None:
    kernel = built(TWO_ROWS, TILE, "a100", operand="shared")
    assert operands(kernel) == ["shared", "shared"]
    assert lies_in_shared(kernel, "weights")
    assert error(kernel, TWO_ROWS) < 1e-3
    again = built(TWO_ROWS, TILE, "a100", plan=kernel.plan)
    assert operands(again) == ["shared", "shared"]
    assert again.cuda == kernel.cuda


def test_warps_that_share_rows_read_them_from_shared_memory() -> None:
    kernel = built(TWO_ROWS, TILE, "a100", warps=(1, 2))
    assert operands(kernel) == ["shared", "shared"]
    assert error(kernel, TWO_ROWS) < 1e-3


def test_nobody_loads_them_to_registers() -> None:
    with pytest.raises(PipelinerError):
        built(TWO_ROWS, TILE, "a100", operand="registers")


@pytest.mark.nvcc
@pytest.mark.slow
def test_no_register_spills_on_an_a100() -> None:
    attention = Attention(1, 16, 4096, 4096, 64)
    kernel = built(attention, AttentionTile(64, 64), "a100")
    assert operands(kernel) == ["shared", "computed"]
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
