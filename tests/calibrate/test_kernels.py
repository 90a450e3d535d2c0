"""What is timed is what is meant: the instructions of each kernel, and nothing spilled."""

from __future__ import annotations

import re

import pytest

from pipeliner.calibrate import probes
from pipeliner.calibrate.measure import PIPELINE
from pipeliner.calibrate.probes import Probe
from pipeliner.kernel.compiled import compile_kernel
from pipeliner.machine import GTX_1080_TI, H100, MACHINES, T4
from pipeliner.targets import cuda_target

INSTRUCTIONS = {
    "memory latency": r"LDG\.E\.STRONG\.GPU|LDG",
    "L2 latency": r"LDG",
    "shared memory latency": r"\bLDS ",
    "L2 bandwidth": r"LDG\.E\.128",
    "memory bandwidth": r"LDG\.E\.128",
    "shared memory": r"LDS\.128",
    "ldmatrix": r"LDSM\.16\.M88\.4",
    "barrier": r"BAR\.SYNC",
    "mbarrier": r"SYNCS\.ARRIVE|SYNCS\.PHASECHK",
    "multiply-adds": r"FFMA",
    "mma.sync m16n8k16 of float16": r"HMMA\.16816\.F32 ",
    "mma.sync m16n8k16 of bfloat16": r"HMMA\.16816\.F32\.BF16",
    "mma.sync m16n8k8 of tfloat32": r"HMMA\.1688\.F32\.TF32",
    "mma.sync m16n8k32 of int8": r"IMMA\.16832\.S8\.S8",
    "mma.sync m16n8k32 of uint8": r"IMMA\.16832\.U8\.U8",
    "cp.async latency": r"LDGSTS\.E\.BYPASS\.128",
    "TMA latency": r"UTMALDG\.2D",
    "wgmma": r"HGMMA\.64x(64|128|256)x16\.F32",
    "clock": r"HGMMA\.64x256x16\.F32",
}
PROBES = {probe.name: probe for probe in probes(H100)}


def test_every_probe_is_looked_at() -> None:
    assert set(PROBES) == set(INSTRUCTIONS)


@pytest.mark.part(3)
@pytest.mark.nvcc
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_a_kernel_has_its_instruction(name) -> None:
    for run in {run.make.func: run for run in PROBES[name].runs}.values():
        kernel = compile_kernel(run.make(), cuda_target("sm_90a"), PIPELINE)
        assert re.search(INSTRUCTIONS[name], kernel.sass), kernel.sass[:2000]
        assert kernel.resources.spills == 0
        # Its clock is read twice, and no barrier comes between but those that are meant.
        assert kernel.cuda.count("tvm_builtin_clock64()") == 2 + ("clock64();" in kernel.cuda)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.key)
def test_a_gpu_is_asked_what_it_can_answer(machine) -> None:
    names = [probe.name for probe in probes(machine)]
    assert len(set(names)) == len(names)
    assert ("TMA latency" in names) == machine.has_tma
    assert ("cp.async latency" in names) == machine.has_cp_async
    assert ("wgmma" in names) == bool(machine.wgmmas)
    assert ("ldmatrix" in names) == (machine.capability >= T4.capability)
    assert sum(name.startswith("mma.sync") for name in names) == len(machine.mmas)


@pytest.mark.part(4)
@pytest.mark.nvcc
@pytest.mark.parametrize("probe", [*probes(GTX_1080_TI)], ids=lambda probe: probe.name)
def test_the_oldest_machine_that_nvcc_knows_compiles_its_kernels(probe: Probe) -> None:
    for run in probe.runs[:1]:
        assert compile_kernel(run.make(), cuda_target("sm_75"), PIPELINE).resources.registers


@pytest.mark.part(2)
@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["shared memory", "ldmatrix"])
def test_every_step_reads_shared_memory(name) -> None:
    """Loads whose addresses repeat are made once, or taken out of the loop."""
    (run,) = PROBES[name].runs
    sass = compile_kernel(run.make(), cuda_target("sm_90a"), PIPELINE).sass
    before, loop = sass.split(".L_x_0:", 1)
    loop = loop[: loop.index("BRA `(.L_x_0)")]
    steps = len(re.findall(INSTRUCTIONS[name], loop))
    assert not re.search(INSTRUCTIONS[name], before)
    # The loop is unrolled: what counts 32 rows a step moves on by as many steps as it has loads.
    assert steps >= 2
    assert re.search(rf"VIADD (R\d+), \1, {32 * steps:#x} ;", loop)
