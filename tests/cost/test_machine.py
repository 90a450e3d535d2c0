from __future__ import annotations

import pytest
from tvm.target import Target

from pipeliner.errors import TargetError
from pipeliner.machine import A100, H100, MACHINES, T4, machine_for


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("sm_80", A100),
        ("sm_90", H100),
        ("sm_90a", H100),
        ("sm_75", T4),
        ("cuda -arch=sm_80", A100),
        ("nvidia/nvidia-h100", H100),
        (Target({"kind": "cuda", "arch": "sm_90a"}), H100),
        (H100, H100),
    ],
)
def test_a_target_names_its_machine(target, machine):
    assert machine_for(target) is machine


def test_an_architecture_without_constants_is_refused_by_name():
    with pytest.raises(TargetError) as error:
        machine_for("sm_86")
    assert str(error.value) == (
        "cannot plan for sm_86: its machine is not described, expected sm_75, sm_80, sm_90"
    )


def test_a_target_that_is_no_gpu_is_refused():
    with pytest.raises(TargetError, match="expected a CUDA target with an architecture"):
        machine_for(Target("llvm"))


@pytest.mark.parametrize(("machine", "tflops"), [(A100, 312), (H100, 989 * 0.63)])
def test_tensor_rate_times_clock_is_the_published_peak(machine, tflops):
    rate = machine.mma("float16")
    assert rate is not None
    peak = rate.ops_per_cycle * machine.sms * machine.clock_ghz / 1e3
    assert peak == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_cta_gets_no_more_than_an_sm_has(machine):
    assert machine.smem_per_cta + machine.smem_reserved <= machine.smem_per_sm
    assert machine.max_threads_per_cta <= machine.max_threads_per_sm


def test_asynchronous_copies_begin_with_sm_80():
    assert [machine.has_cp_async for machine in (T4, A100, H100)] == [False, True, True]
