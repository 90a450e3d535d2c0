from __future__ import annotations

import pytest
from tvm.target import Target

from pipeliner.errors import TargetError
from pipeliner.machine import (
    A100,
    B200,
    GTX_1080_TI,
    H100,
    H200,
    L40S,
    MACHINES,
    RTX_3090,
    RTX_4090,
    RTX_5090,
    T4,
    V100,
    machine_for,
    model_of,
)
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.targets import accelerated, cuda_target
from pipeliner.tuning.space import point_of
from tests.refusals import refused

every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("sm_80", A100),
        ("sm_90", H100),
        ("sm_90a", H100),
        ("sm_75", T4),
        ("sm_86", RTX_3090),
        ("sm_89", RTX_4090),
        ("sm_100", B200),
        ("sm_100a", B200),
        ("sm_120", RTX_5090),
        ("sm_120a", RTX_5090),
        ("b200", B200),
        ("rtx5090", RTX_5090),
        ("h200", H200),
        ("RTX 4090", RTX_4090),
        ("cuda -arch=sm_80", A100),
        ("nvidia/nvidia-h100", H100),
        ("nvidia/nvidia-v100", V100),
        ("nvidia/geforce-gtx-1080-ti", GTX_1080_TI),
        (Target({"kind": "cuda", "arch": "sm_90a"}), H100),
        (Target({"kind": "cuda", "arch": "sm_90a", "model": "h200"}), H200),
        (H100, H100),
    ],
)
def test_a_target_names_its_machine(target, machine):
    assert machine_for(target) is machine


@every_machine
def test_its_name_makes_a_target_that_finds_it_again(machine):
    target = cuda_target(machine.key)
    assert machine_for(target) is machine_for(accelerated(target)) is machine
    assert machine_for(machine.name) is machine


@pytest.mark.parametrize(
    ("arch", "name", "model"),
    [
        ("sm_90", "NVIDIA H200", "h200"),
        ("sm_90", "NVIDIA H100 80GB HBM3", None),
        ("sm_89", "NVIDIA L40S", "l40s"),
        ("sm_89", "NVIDIA GeForce RTX 4090", None),
        ("sm_89", "NVIDIA GeForce RTX 4080", None),
        ("sm_120", "NVIDIA GeForce RTX 5090", None),
        ("sm_72", "Xavier", None),
    ],
)
def test_a_gpu_that_is_present_is_told_from_others_of_its_architecture(arch, name, model):
    assert model_of(arch, name) == model


def test_an_architecture_without_constants_is_refused_by_name():
    with pytest.raises(TargetError) as error:
        machine_for("sm_72")
    assert str(error.value) == (
        "cannot plan for sm_72: its machine is not described, expected sm_61, sm_70, sm_75, sm_80, "
        "sm_86, sm_89, sm_90, sm_100, sm_120"
    )


def test_a_target_that_is_no_gpu_is_refused():
    with refused("target.no_arch", TargetError):
        machine_for(Target("llvm"))


@pytest.mark.parametrize(
    ("machine", "dtype", "tflops"),
    [
        (A100, "float16", 312),
        (RTX_3090, "float16", 71),
        (RTX_3090, "int8", 284),
        (RTX_4090, "float16", 165.2),
        (RTX_4090, "tfloat32", 82.6),
        (RTX_4090, "int8", 660.6),
        (RTX_5090, "float16", 209.5),
        (RTX_5090, "tfloat32", 104.8),
        (RTX_5090, "int8", 838),
        (L40S, "float16", 362.05),
        (L40S, "int8", 733),
        (H100, "float16", 989 * 0.63),
    ],
)
def test_tensor_rate_times_clock_is_the_published_peak(machine, dtype, tflops):
    rate = machine.mma(dtype)
    assert rate is not None
    peak = rate.ops_per_cycle * machine.sms * machine.clock_ghz / 1e3
    assert peak == pytest.approx(tflops, rel=0.015)


@pytest.mark.parametrize(
    ("machine", "tflops"),
    [
        (GTX_1080_TI, 11.34),
        (V100, 15.7),
        (T4, 8.1),
        (A100, 19.5),
        (RTX_3090, 35.6),
        (RTX_4090, 82.6),
        (RTX_5090, 104.8),
        (L40S, 91.6),
        (H200, 66.9 * 1.83 / 1.98),  # published at the higher of its clocks
    ],
)
def test_fp32_rate_times_clock_is_the_published_peak(machine, tflops):
    peak = 2 * machine.fp32_per_cycle * machine.sms * machine.clock_ghz / 1e3
    assert peak == pytest.approx(tflops, rel=0.015)


@every_machine
def test_a_cta_gets_no_more_than_an_sm_has(machine):
    assert machine.smem_per_cta + machine.smem_reserved <= machine.smem_per_sm
    assert machine.max_threads_per_cta <= machine.max_threads_per_sm
    assert machine.max_threads_per_cta * 64 <= machine.registers_per_sm


@every_machine
def test_what_is_further_away_takes_longer(machine):
    assert machine.shared_latency < machine.l2_latency < machine.global_latency
    assert machine.dram_bytes_per_cycle < machine.l2_bytes_per_cycle < machine.smem_bytes_per_cycle


@every_machine
def test_capacities_are_those_of_the_compute_capability(machine):
    """KB of an SM and a CTA, threads and CTAs of an SM: CUDA C++ Programming Guide."""
    found = (machine.smem_per_sm, machine.smem_per_cta)
    expected = {
        "sm_61": (96, 48, 2048, 32),
        "sm_70": (96, 96, 2048, 32),
        "sm_75": (64, 64, 1024, 16),
        "sm_80": (164, 163, 2048, 32),
        "sm_86": (100, 99, 1536, 16),
        "sm_89": (100, 99, 1536, 24),
        "sm_90": (228, 227, 2048, 32),
        "sm_100": (228, 227, 2048, 32),
        "sm_120": (100, 99, 1536, 24),
    }[machine.arch]
    assert tuple(size // 1024 for size in found) == expected[:2]
    assert (machine.max_threads_per_sm, machine.max_ctas_per_sm) == expected[2:]
    assert machine.registers_per_sm == 65536


@every_machine
def test_capabilities_are_those_of_the_architecture(machine):
    """PTX ISA: cp.async and mma.sync of m16n8k16 need sm_80, cp.async.bulk sm_90.

    wgmma is sm_90a's alone, tcgen05 of sm_100 to sm_110.
    """
    number = int(machine.arch.removeprefix("sm_"))
    assert machine.has_cp_async == bool(machine.mmas) == (number >= 80)
    assert machine.has_tma == (number >= 90)
    assert bool(machine.wgmmas) == (number == 90)
    assert machine.has_tcgen05 == (number == 100)
    assert all(rate.shape[:2] == (16, 8) for rate in machine.mmas)
    assert all(rate.shape[:2] == (64, 256) for rate in machine.wgmmas)


def test_an_h200_is_an_h100_with_faster_memory():
    assert H200.dram_bytes_per_second > 1.4 * H100.dram_bytes_per_second
    assert (H200.sms, H200.wgmmas, H200.smem_per_sm) == (H100.sms, H100.wgmmas, H100.smem_per_sm)


def test_clusters_fill_as_many_sms_as_the_gpcs_have_room_for() -> None:
    assert [H200.sms_of(size) for size in (1, 2, 3, 4, 6, 8)] == [132, 132, 117, 120, 102, 120]
    assert A100.sms_of(4) == A100.sms  # nothing is known of it
    # Measured on an H200: 20 tiles in six parts, 120 CTAs, take 10.5 us; ten in eight, 80, 8.3.
    gemm, asked = Gemm(45, 600, 2952), Request(instruction="wgmma", store="cluster")
    six, eight = (
        point_of(
            gemm, H200, Candidate(GemmTile(m, 64, 64, raster_group=group, splits=splits), asked)
        )
        for m, group, splits in ((24, 2, 6), (48, 1, 8))
    )
    assert six.predicted_us > eight.predicted_us
