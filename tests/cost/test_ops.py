from __future__ import annotations

import pytest

from pipeliner.cost import op_cost
from pipeliner.machine import A100, T4
from pipeliner.plan.request import Request
from pipeliner.space.ranking import choose

from .kernels import gemm, stream


def costs(names, info, machine=A100):
    plan = choose(info, machine, Request())
    return {name: op_cost(name, info, plan, machine) for name in names}


def test_costs_of_a_gemm_by_hand():
    found = costs(["A_shared", "A_shared.wait", "C_update.k0.a", "C_update.k1", "mma.k1"], gemm())
    # 128x32 halves at 5120 / 108 bytes a cycle, after 466 cycles of latency
    assert found["A_shared"] == ("l2", 466 + 173, 173)
    assert found["A_shared.wait"] == ("sync", 30, 1)
    # 4 warps read 64 rows of 16 halves each: 8192 bytes at 128 a cycle
    assert found["C_update.k0.a"] == ("lsu", 29 + 64, 64)
    # 2 * 128 * 128 * 16 operations at 2048 a cycle
    assert found["C_update.k1"] == ("tensor", 256, 256)
    assert found["mma.k1"] == found["C_update.k1"]


def test_the_halves_of_a_copy_through_registers():
    found = costs(["A_shared.load", "A_shared.store"], gemm(64, 64, 16), T4)
    assert found["A_shared.load"].pipe == "l2"
    assert found["A_shared.load"].latency > T4.global_latency
    assert found["A_shared.store"] == ("lsu", 19 + 16, 16)


def test_steps_add_up_to_the_whole():
    names = [f"C_update.k{step}" for step in range(2)]
    found = costs([*names, "C_update"], gemm())
    assert sum(found[name].occupancy for name in names) == found["C_update"].occupancy


def test_a_streaming_statement_loads_and_computes():
    found = costs(["C", "C.load"], stream())
    assert found["C.load"].pipe == "l2"
    assert found["C.load"].latency >= A100.global_latency


@pytest.mark.parametrize("name", ["unknown", "unknown.k0", "unknown.load"])
def test_an_unknown_op_costs_one_cycle(name):
    assert costs([name], gemm())[name] == ("alu", 1, 1)
