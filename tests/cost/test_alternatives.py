"""The alternatives to a plan have the times and reasons that asking for them gives."""

from __future__ import annotations

import pytest

from pipeliner.choice.again import with_prediction
from pipeliner.choice.alternatives import depth_options, instruction_options, mechanism_options
from pipeliner.choice.choose import choose
from pipeliner.errors import PipelinerError, PlanError
from pipeliner.machine import A100, H100, T4, V100
from pipeliner.plan.request import Request
from tests.refusals import says, the

from .kernels import gemm, stream

KERNELS = {
    "mma": (gemm(), A100, Request()),
    "wgmma": (gemm(128, 256, 64, trip=64, grid=(512,)), H100, Request()),
    "registers": (gemm(64, 64, 16), T4, Request()),
    "asked": (gemm(64, 64), A100, Request(depth=2, mechanism="register")),
    "no tile": (stream(), H100, Request()),
    "declined": (gemm(trip=1), A100, Request()),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def asked_us(info, machine, **options):
    """The predicted time, or the error's line, of a plan with that asked for."""
    try:
        return choose(info, machine, Request(**options)).predicted_us
    except PipelinerError as err:
        return err.reason


@every_kernel
def test_a_depth_takes_what_a_plan_takes_that_asks_for_it(name):
    info, machine, request = KERNELS[name]
    plan = choose(info, machine, request)
    (loop,) = depth_options(info, plan, machine, request)
    assert [option.depth for option in loop.depths] == [*range(1, len(loop.depths) + 1)]
    # Left alone, a loop has not the copies that one slot would be asked for with.
    for option in loop.depths if plan.pipelined else loop.depths[1:]:
        options = {"depth": option.depth, "mechanism": request.mechanism}
        expected = asked_us(info, machine, **options)
        found = option.why if option.us is None else round(option.us, 2)
        assert found == expected, option


@every_kernel
def test_the_chosen_depth_is_the_plans(name):
    info, machine, request = KERNELS[name]
    plan = with_prediction(info, machine, choose(info, machine, request))
    (loop,) = depth_options(info, plan, machine, request)
    chosen = [option for option in loop.depths if option.chosen]
    depths = {ring.depth for ring in plan.loops[0].rings} or {1}
    assert {option.depth for option in chosen} == depths
    assert [round(option.us, 2) for option in chosen] == [plan.predicted_us]


def test_the_first_depth_that_does_not_fit_ends_the_table_with_numbers():
    info = gemm(128, 256, 64, trip=64, grid=(512,))
    request = Request(instruction="mma")
    (loop,) = depth_options(info, choose(info, H100, request), H100, request)
    last = loop.depths[-1]
    assert (last.depth, last.us, last.smem) == (5, None, 5 * 49152)
    assert the("depth.smem", [last.why])["smem"] == 245760


@every_kernel
def test_an_instruction_takes_what_a_plan_takes_that_asks_for_it(name):
    info, machine, request = KERNELS[name]
    plan = choose(info, machine, request)
    options = instruction_options(info, plan, machine, request)
    assert [option.name for option in options] in (["simt", "mma", "wgmma"], [])
    assert bool(options) == bool(plan.matmuls)
    taken = {matmul.instruction for matmul in plan.matmuls}
    assert {option.instruction for option in options if option.chosen} == taken
    for option in options:
        asked = {"instruction": option.name, "mechanism": request.mechanism}
        expected = asked_us(info, machine, **asked, depth=request.depth)
        if expected:  # 0: nothing is known of its loops
            assert expected == (option.why if option.us is None else option.us)


def test_exact_float32_says_why_faster_tensor_cores_are_not_taken():
    info = gemm(dtype="float32", k=16)
    options = instruction_options(info, choose(info, A100, Request()), A100, Request())
    simt, mma, _ = options
    assert simt.chosen
    assert mma.us < simt.us
    assert says("mapping.exact", [mma.why])


def test_a_copy_that_is_left_as_it_is_takes_as_long_as_with_one_slot():
    info = gemm()
    plan = choose(info, A100, Request())
    options = {option.name: option for option in mechanism_options(info, plan, A100, Request())}
    assert list(options) == ["tma", "cp_async", "register", "direct"]
    assert options["direct"].us == asked_us(info, A100, mechanism="direct", depth=1)
    assert options["direct"].us <= asked_us(info, A100, mechanism="direct", depth=3)
    assert says("choice.in_statement", [options["direct"].why])
    assert options["cp_async"].chosen
    assert options["cp_async"].us == plan.predicted_us
    assert options["tma"].why == asked_us(info, A100, mechanism="tma")


def test_before_ampere_the_reasons_name_what_is_missing():
    info = gemm(64, 64, 16)
    plan = choose(info, V100, Request())
    mechanisms = {item.name: item for item in mechanism_options(info, plan, V100, Request())}
    assert the("cp_async.machine", [mechanisms["cp_async"].why])["arch"] == "sm_70"
    assert mechanisms["register"].chosen
    instructions = {item.name: item for item in instruction_options(info, plan, V100, Request())}
    assert the("mapping.no_mma", [instructions["mma"].why])["dtype"] == "float16"
    assert instructions["simt"].chosen


def test_a_stream_has_neither_instructions_nor_mechanisms():
    plan = choose(stream(), H100, Request())
    assert instruction_options(stream(), plan, H100, Request()) == ()
    assert mechanism_options(stream(), plan, H100, Request()) == ()


def test_a_depth_is_refused_as_a_request_for_it_is():
    info = gemm(128, 256, 64, trip=64)
    plan = choose(info, A100, Request())
    (loop,) = depth_options(info, plan, A100, Request())
    with pytest.raises(PlanError) as error:
        choose(info, A100, Request(depth=loop.depths[-1].depth))
    assert error.value.reason == loop.depths[-1].why
