"""Calibration with kernels whose times are made up: what the numbers come to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pipeliner.calibrate import Calibration, Took, calibrate, probes, with_measured
from pipeliner.calibrate import measure as module
from pipeliner.calibrate.probes import BOX_ROWS, FEW_STEPS, STEPS
from pipeliner.machine import A100, H100, MeasuredValue
from pipeliner.measuring import BuiltCandidate

from .. import fake_torch


def took(cycles, us=1.0):
    return Took(float(cycles), us)


def answers(machine, name, *times):
    probe = next(probe for probe in probes(machine) if probe.name == name)
    assert len(probe.runs) == len(times)
    return {key: one.value for key, one in probe.values(times).items()}


def test_latencies_are_cycles_of_a_step() -> None:
    assert answers(H100, "memory latency", took(600 * STEPS)) == {"global_latency": 600}
    assert answers(H100, "L2 latency", took(260 * STEPS)) == {"l2_latency": 260}
    assert answers(H100, "shared memory latency", took(29 * STEPS)) == {"shared_latency": 29}
    found = answers(H100, "TMA latency", *(took((600 + rows) * FEW_STEPS) for rows in BOX_ROWS))
    assert found == {f"tma_{rows * 128}": 600 + rows for rows in BOX_ROWS}


def test_bandwidths_are_bytes_moved_over_time() -> None:
    # 2 x 132 CTAs of 512 threads, 256 steps of 16 bytes each: 4194304 bytes an SM
    assert answers(H100, "L2 bandwidth", took(65536)) == {"l2_bytes_per_cycle": 64}
    found = answers(H100, "memory bandwidth", took(1, us=400.0))
    # 496 whole steps of 2 x 132 CTAs, 8192 bytes each
    assert found == {"dram_bytes_per_second": 496 * 264 * 8192 / 400e-6}
    assert answers(H100, "ldmatrix", took(131072)) == {"ldmatrix_bytes_per_cycle": 128}


def test_tensor_cores_are_operations_over_cycles() -> None:
    ops = 2 * 16 * 8 * 16 * 64 * FEW_STEPS
    found = answers(H100, "mma.sync m16n8k16 of float16", took(33 * STEPS), took(ops / 2048))
    assert found == {"mma_float16_m16n8k16_latency": 33, "mma_float16_m16n8k16_rate": 2048}
    ops = 2 * 64 * 256 * 16 * 16 * FEW_STEPS
    times = [took(cycles * FEW_STEPS) for cycles in (60, 90, 150)]
    found = answers(H100, "wgmma", *times, took(ops / 4000))
    assert found["wgmma_m64n256k16_latency"] == 150
    assert found["wgmma_m64n256k16_rate"] == 4000


def test_the_clock_is_cycles_over_time() -> None:
    assert answers(H100, "clock", took(1_755_000, us=1000.0)) == {"clock_ghz": 1.755}


def test_a_machine_takes_what_was_measured_and_keeps_the_rest() -> None:
    def one(value):
        return MeasuredValue(value, "", "")

    found = {
        "l2_latency": one(261.7),
        "l2_bytes_per_cycle": one(51.25),
        "mma_float16_m16n8k16_rate": one(2600.2),
        "mma_float16_m16n8k16_latency": one(32.6),
        "wgmma_m64n256k16_rate": one(4096 * 0.98),
        "wgmma_m64n256k16_latency": one(151.2),
        "smem_bytes_per_cycle": one(120.0),
    }
    made = with_measured(H100, found)
    # what SMs that read apart get from L2 is no kernel's share of it
    assert (made.l2_latency, made.l2_bytes_per_cycle) == (262, H100.l2_bytes_per_cycle)
    assert (made.mma("float16").ops_per_cycle, made.mma("float16").latency) == (2600, 33)
    assert made.mma("int8") == H100.mma("int8")
    assert made.wgmma("float8_e4m3fn").ops_per_cycle == round(8192 * 0.98)
    assert made.wgmma("tfloat32").latency == 151
    assert made.smem_bytes_per_cycle == H100.smem_bytes_per_cycle
    assert made.global_latency == H100.global_latency
    assert with_measured(A100, {}) == A100


@dataclass(frozen=True)
class Stub(BuiltCandidate):
    """A kernel that takes 1 us, each CTA of it 1000 cycles."""

    fails: bool = False
    interrupts: bool = False

    def load(self):
        if self.interrupts:
            raise KeyboardInterrupt
        if self.fails:
            raise RuntimeError("Traceback\nCUDA error: misaligned address")
        return self, ""

    def __call__(self, *tensors) -> None:
        fake_torch.Clock.now += 1e-3
        for tensor in tensors:
            if tensor.data.dtype == np.int64:
                tensor.data[...] = 1000


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(
        module, "pointer_cycle", lambda torch, words: torch.zeros((4,), "int32", "cuda")
    )
    monkeypatch.setattr(module, "launch_times", lambda torch, kernel: {})
    places = [(-1, 0)]
    for at, probe in enumerate(probes(A100)):
        places += [(at, run) for run in range(len(probe.runs))]
    monkeypatch.setattr(fake_torch, "int64", np.dtype("int64"), raising=False)
    return {place: Stub() for place in places}


def calibrated(made, say=lambda text: None):
    def make(kernel):
        return made[kernel.probe, kernel.run]

    return calibrate(fake_torch, A100, None, 1, say, make)


def test_every_probe_is_asked(made) -> None:
    said = []
    found = calibrated(made, said.append)
    assert (found.failed, found.interrupted) == ({}, False)
    assert found.measured["l2_latency"].value == round(1000 / STEPS, 2)
    assert len(said) == len(list(probes(A100))) + 1
    assert said[1].startswith("L2 latency: l2_latency 0.98 cycles")


def test_what_fails_is_named_and_the_rest_measured(made) -> None:
    made[1, 0] = Stub(fails=True)
    found = calibrated(made)
    assert found.failed == {"L2 latency": "CUDA error: misaligned address"}
    assert "l2_latency" not in found.measured
    assert "shared_latency" in found.measured


def test_an_interrupt_keeps_what_was_measured(made) -> None:
    made[2, 0] = Stub(interrupts=True)
    found = calibrated(made)
    assert isinstance(found, Calibration)
    assert found.interrupted
    assert set(found.measured) == {"global_latency", "l2_latency"}
