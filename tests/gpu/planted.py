"""Kernels with one defect planted in their device code, compiled as the whole ones are.

python -m tests.gpu.planted float16 barrier      runs one on the GPU, for the sanitizer to watch
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

import numpy as np
import tvm
from tvm import tirx

import pipeliner
from pipeliner.compiled import Kernel, as_module
from pipeliner.emulator import emulate
from pipeliner.mutation import Mutant, mutants, mutated
from pipeliner.passes.lower import PIPELINE
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import gpu_arch

KERNELS: Final = {
    "float16": (
        Gemm(128, 64, 256, dtype="float16"),
        GemmTile(64, 64, 32),
        {"depth": 3, "instruction": "mma"},
    ),
    "float32": (
        Gemm(64, 64, 64, dtype="float32"),
        GemmTile(64, 64, 8),
        {"depth": 2, "mechanism": "register"},
    ),
}
"""Asynchronous copies for tensor cores, and stores from registers for FMA."""

DEFECTS: Final = {
    ("float16", "barrier"): {"race", "write-while-read"},
    ("float16", "wait"): {"read-before-arrival", "write-in-flight"},
    ("float32", "barrier"): {"race", "write-while-read"},
    ("float32", "slot"): {"write-while-read"},
}
"""What is planted in which kernel, and the only hazards that the emulator may see in it.

A deleted barrier, a wait that lets one group more fly, a slot that is written while it is read:
two accesses of shared memory without an ordering, which racecheck is there to find.
"""


@cache
def whole(name: str, target: str) -> Kernel:
    """The kernel called ``name``, without a defect."""
    gemm, tile, options = KERNELS[name]
    return pipeliner.build(pipeliner.pipeline(schedule_gemm(gemm, tile), target, **options))


def operands(name: str) -> list[Any]:
    """Small integers, whose products and sums every type here holds exactly; C is NaN."""
    gemm, _, _ = KERNELS[name]
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, shape).astype(gemm.storage) for shape in gemm.shapes()[:2])
    return [a, b, np.full(gemm.shapes()[2], np.nan, gemm.out)]


@cache
def defect(name: str, kind: str, target: str) -> Mutant:
    """The first mutant of that kind to which the emulator objects as ``DEFECTS`` says."""
    lowered = whole(name, target).lowered
    for mutant in mutants(lowered):
        if mutant.kind != kind:
            continue
        hazards = emulate(mutated(lowered, mutant), operands(name)).hazards
        if hazards and {hazard.kind for hazard in hazards} <= DEFECTS[name, kind]:
            return mutant
    raise AssertionError(f"no {kind} of the {name} kernel breaks it as expected")


def planted(name: str, kind: str, target: str) -> Kernel:
    """The kernel with its defect, to be printed, compiled and run like any other."""
    kernel = whole(name, target)
    broken = mutated(kernel.lowered, defect(name, kind, target))
    bodies = {str(var.name_hint): func for var, func in broken.functions.items()}
    pipeline, finalize_host, finalize_device = tirx.get_tir_pipeline(PIPELINE)

    @tvm.transform.module_pass(opt_level=0)
    def plant(mod: Any, _ctx: Any) -> Any:
        return tvm.IRModule({var: bodies[str(var.name_hint)] for var in mod.functions})

    def finalize() -> Any:
        return tvm.transform.Sequential([finalize_device(), plant])

    registered = f"planted_{name}_{kind}_{target}"
    tirx.register_tir_pipeline(registered, lambda: (pipeline, finalize_host, finalize))
    return Kernel(as_module(kernel.function), kernel.target, registered)


def main() -> None:
    """Run a kernel, planted with the defect named after it if any, on the GPU that is here."""
    name, *kinds = sys.argv[1:]
    target = str(gpu_arch())
    kernel = planted(name, kinds[0], target) if kinds else whole(name, target)
    kernel(*operands(name))


if __name__ == "__main__":
    main()
