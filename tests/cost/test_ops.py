from __future__ import annotations

from dataclasses import replace

from pipeliner.machine import A100, H100, T4
from pipeliner.plan.request import Request
from pipeliner.space.ranking import choose
from pipeliner.values.op import Op

from .kernels import gemm, stream


def costs(info, machine=A100, request=None):
    """(pipe, latency, occupancy) of each op that the plan has."""
    plan = choose(info, machine, request or Request())
    return {op.name: (op.pipe, op.latency, op.occupancy) for loop in plan.loops for op in loop.ops}


def test_costs_of_a_gemm_by_hand():
    found = costs(gemm())
    # 128x32 halves at 5120 / 108 bytes a cycle, after 466 cycles of latency
    assert found["A_shared"] == ("l2", 466 + 173, 173)
    # 4 warps read 64 rows of 16 halves each: 8192 bytes at 128 a cycle
    assert found["C_update.k0.a"] == ("lsu", 29 + 64, 64)
    # 2 * 128 * 128 * 16 operations at 2048 a cycle
    assert found["C_update.k1"] == ("tensor", 256, 256)


def test_the_ops_of_each_statement_in_program_order():
    steps = [f"C_update.k{step}{end}" for step in range(2) for end in (".a", ".b", "")]
    assert list(costs(gemm())) == ["A_shared", "B_shared", *steps]


def test_the_halves_of_a_copy_through_registers():
    found = costs(gemm(64, 64, 16), T4)
    pipe, latency, _ = found[Op("A_shared", "load")]
    assert pipe == "l2"
    assert latency > T4.global_latency
    assert found[Op("A_shared", "store")] == ("lsu", 19 + 16, 16)


def test_chunks_share_what_the_copy_takes():
    tile = gemm(128, 128, 16, "float32")
    asked = Request(instruction="simt", mechanism="cp_async")
    (a, b, matmul), (loop,) = tile.loops[0].ops, tile.loops
    narrow = replace(tile, loops=(replace(loop, ops=(replace(a, aligned=1), b, matmul)),))
    whole, split = costs(tile, A100, asked), costs(narrow, A100, asked)
    chunks = [op for op in split if op.statement == "A_shared"]
    assert chunks == [Op("A_shared", chunk=chunk) for chunk in range(len(chunks))]
    assert len(chunks) > 1
    pipe, latency, occupancy = whole[Op("A_shared")]
    assert {split[op] for op in chunks} == {(pipe, latency, occupancy // len(chunks))}


def test_steps_add_up_to_the_whole():
    (_, _, wgmma) = costs(gemm(128, 128, 64), H100, Request(instruction="wgmma"))["C_update"]
    # 2 * 128 * 128 * 64 operations at 4096 a cycle
    assert wgmma == 512
    steps = [cost for op, cost in costs(gemm(128, 128, 64)).items() if op.part == "multiply"]
    # at 2048 a cycle
    assert sum(occupancy for _, _, occupancy in steps) == 1024


def test_a_wait_for_wgmma_costs_nothing():
    asked = Request(instruction="wgmma", mechanism="cp_async", depth=3)
    found = costs(gemm(128, 128, 64), H100, asked)
    assert list(found)[2:] == ["C_update", "C_update.mma_wait"]
    assert found["C_update.mma_wait"] == ("sync", 1, 1)
    specialised = costs(gemm(128, 128, 64), H100, Request(instruction="wgmma"))
    assert list(specialised)[2:] == ["C_update"]


def test_a_streaming_statement_loads_and_computes():
    found = costs(stream())
    assert list(found) == ["C.load", "C"]
    pipe, latency, _ = found["C.load"]
    assert pipe == "l2"
    assert latency >= A100.global_latency
    assert found["C"][0] != "l2"
