"""Predictions corrected by what ptxas made of a kernel, and what is chosen by them."""

from __future__ import annotations

import pytest

from pipeliner.choice.built import AsBuilt, as_built, best_built, read_loop, worth_building
from pipeliner.choice.mapped import map_kernel
from pipeliner.cost.predict import predict
from pipeliner.machine import A100, GTX_1080_TI, H100, WARP
from pipeliner.plan.request import Request
from pipeliner.records.names import named_candidate
from pipeliner.schedules import conv2d
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.toolchain.machine_code import LoopCode

from .kernels import gemm


def mapped(info, machine=H100, **request):
    found = map_kernel(info, machine, Request(**request))
    return found.loops[0], found.matmuls


@pytest.mark.parametrize(
    ("instruction", "code", "times"),
    [
        # 128 x 128 x 32: 64 multiply-adds a k of each of 256 threads, 32 of m16n8k16 of each warp.
        ("simt", LoopCode(5000, multiplies=4096, conflicts=100), 2),
        ("simt", LoopCode(2500, multiplies=2050, conflicts=50), 1),
        ("mma", LoopCode(160, tensor=32, spills=3), 1),
        ("mma", LoopCode(480, tensor=96, spills=9), 3),
    ],
)
def test_a_loop_is_counted_in_iterations(instruction, code, times) -> None:
    dtype = "float32" if instruction == "simt" else "float16"
    loop, matmuls = mapped(gemm(dtype=dtype), instruction=instruction, warps=(4, 2))
    found = read_loop(99, code, loop.loop, matmuls)
    assert found.registers == 99
    assert found.instructions == code.instructions / times
    assert found.conflicts == code.conflicts / times
    assert found.spills == code.spills / times


@pytest.mark.parametrize(
    "code", [None, LoopCode(70, multiplies=64), LoopCode(9000, multiplies=3000)]
)
def test_another_loop_says_nothing(code) -> None:
    loop, matmuls = mapped(gemm(dtype="float32"), instruction="simt", warps=(4, 2))
    assert read_loop(99, code, loop.loop, matmuls) == AsBuilt(99)


def test_registers_decide_how_many_ctas_an_sm_has() -> None:
    loop, _ = mapped(gemm(64, 64, dtype="float16"), A100, instruction="mma")
    estimate = predict(loop.work, A100, 3)
    few = predict(as_built(loop.work, AsBuilt(64), A100), A100, 3)
    many = predict(as_built(loop.work, AsBuilt(250), A100), A100, 3)
    assert estimate is not None
    assert few is not None
    assert many is not None
    assert few.resident >= estimate.resident > many.resident
    assert few.work.registers_at(3) == 64  # of this depth, whatever is staged in registers
    assert predict(as_built(loop.work, AsBuilt(300), A100), A100, 3) is None


def test_a_conflict_takes_a_slot_of_its_scheduler_and_of_its_pipe() -> None:
    loop, _ = mapped(gemm(dtype="float32"), instruction="simt", warps=(4, 2))
    work = loop.work
    none = as_built(work, AsBuilt(128, instructions=2500), H100)
    some = as_built(work, AsBuilt(128, instructions=2500, conflicts=250), H100)
    each = work.threads.count / WARP / 4
    assert none.usage.issue == 2500 * each
    assert none.usage.fma == work.usage.fma
    assert some.usage.issue == 2750 * each
    assert some.usage.fma == work.usage.fma + 250 * each
    assert as_built(work, AsBuilt(128, 2500, spills=4), H100).fragments.first > none.fragments.first
    early = as_built(work, AsBuilt(128, instructions=2500, conflicts=250), GTX_1080_TI)
    assert early.usage.fma == work.usage.fma  # four banks, of which nothing is counted


TIMES = {1: (255, 1176, 25, 263.01), 2: (255, 1205, 36, 214.77), 3: (220, 1212, 148, 242.85)} | {
    4: (255, 1207, 37, 215.82),
    5: (220, 1212, 148, 244.0),
}
"""Registers, instructions and conflicts by ptxas 13.0, and microseconds on an H100, by slots: 3 x 3
filters on 32 x 28 x 28 x 128 in fp32 by 128 x 128 x 8, overrunning loads clamped."""


def test_what_ptxas_made_of_each_depth_chooses_the_best() -> None:
    spec = conv2d(32, 28, 28, 128, 128, 3, 3, pad=1, dtype="float32")
    one = named_candidate("simt/cp_async 128x128x8 d3", spec, H100)
    info = kernel_info(spec, one.tile)
    loop, matmuls = mapped(info, instruction="simt", mechanism="cp_async")
    before = {depth: predict(loop.work, H100, depth) for depth in TIMES}
    assert all(option is not None for option in before.values())
    assert before[3].us == pytest.approx(before[4].us, rel=0.001)  # nothing tells them apart
    after = []
    for depth, (registers, instructions, conflicts, _) in TIMES.items():
        code = LoopCode(instructions, multiplies=1024, conflicts=conflicts)
        found = read_loop(registers, code, loop.loop, matmuls)
        after.append(predict(as_built(loop.work, found, H100), H100, depth))
    assert set(worth_building(before.values())) == set(before.values())
    best = best_built(before.values(), after)
    assert best is not None
    assert best.depth in (2, 4)
    assert TIMES[best.depth][-1] < 1.01 * min(us for *_, us in TIMES.values())


def test_without_a_correction_the_choice_stands() -> None:
    loop, _ = mapped(gemm(dtype="float32"), instruction="simt", warps=(4, 2))
    before = [predict(loop.work, H100, depth) for depth in (1, 2, 3)]
    same = [
        predict(as_built(loop.work, AsBuilt(loop.work.registers_at(depth)), H100), H100, depth)
        for depth in (1, 2, 3)
    ]
    assert best_built(before, same) is None


def test_depths_that_are_far_behind_are_not_built() -> None:
    loop, _ = mapped(gemm(trip=512, grid=(64,)), A100, instruction="mma")
    options = [predict(loop.work, A100, depth) for depth in range(1, 6)]
    close = worth_building(options)
    assert {option.depth for option in close} < {1, 2, 3, 4, 5}
    assert 1 not in {option.depth for option in close}
    assert worth_building([]) == ()
