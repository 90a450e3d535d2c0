"""Kernels with one defect planted in their device code, compiled as the whole ones are.

python -m tests.gpu.planted float16 barrier      runs one on the GPU, for the sanitizer to watch
python -m tests.gpu.planted wgmma fence 100      runs it 100 times, and says how often it was wrong
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, Final

import numpy as np
import tvm
from tvm import tirx

import pipeliner
from pipeliner.emulator import emulate
from pipeliner.kernel.compiled import Kernel, as_module
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

CROSSING: Final = {
    "wgmma": (
        Gemm(256, 256, 512, dtype="float16"),
        GemmTile(128, 128, 64),
        {"depth": 3, "instruction": "wgmma", "mechanism": "cp_async"},
    ),
    "store": (
        Gemm(512, 256, 256, dtype="float16"),
        GemmTile(128, 128, 64, persistent=2),
        {"instruction": "wgmma", "store": "tma"},
    ),
}
"""What crosses from the generic to the async proxy, and so has a proxy fence to leave out.

cp.async fills what wgmma reads; stmatrix what TMA stores, for several tiles one after the other.
Racecheck knows no proxies, so on a GPU only results can tell.
"""

_NUMBERS: Final = count()

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
    gemm, tile, options = (KERNELS | CROSSING)[name]
    return pipeliner.build(pipeliner.pipeline(schedule_gemm(gemm, tile), target, **options))


def operands(name: str) -> list[Any]:
    """Small integers, whose products and sums every type here holds exactly; C is NaN."""
    gemm, _, _ = (KERNELS | CROSSING)[name]
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, shape).astype(gemm.storage) for shape in gemm.shapes()[:2])
    return [a, b, np.full(gemm.shapes()[2], np.nan, gemm.out)]


@cache
def defect(name: str, kind: str, target: str) -> Mutant:
    """The first mutant of that kind to which the emulator objects as ``DEFECTS`` says."""
    lowered = whole(name, target).lowered
    for mutant in mutants(lowered):
        if mutant.kind != kind or (kind == "fence" and mutant.what != "fence_proxy"):
            continue
        hazards = emulate(mutated(lowered, mutant), operands(name)).hazards
        expected = DEFECTS.get((name, kind), {"missing-proxy-fence"})
        if hazards and {hazard.kind for hazard in hazards} <= expected:
            return mutant
    raise AssertionError(f"no {kind} of the {name} kernel breaks it as expected")


def planted(name: str, kind: str, target: str) -> Kernel:
    """The kernel with its defect, to be printed, compiled and run like any other."""
    return planted_with(whole(name, target), defect(name, kind, target))


def planted_with(kernel: Kernel, mutant: Mutant) -> Kernel:
    """A kernel with a defect, to be printed, compiled and run like any other."""
    broken = mutated(kernel.lowered, mutant)
    bodies = {str(var.name_hint): func for var, func in broken.functions.items()}
    pipeline, finalize_host, finalize_device = tirx.get_tir_pipeline(PIPELINE)

    @tvm.transform.module_pass(opt_level=0)
    def plant(mod: Any, _ctx: Any) -> Any:
        return tvm.IRModule({var: bodies[str(var.name_hint)] for var in mod.functions})

    def finalize() -> Callable[[Any], Any]:
        return lambda mod: plant(finalize_device()(mod))

    registered = f"planted_{next(_NUMBERS)}"
    tirx.register_tir_pipeline(registered, lambda: (pipeline, finalize_host, finalize))
    return Kernel(as_module(kernel.function), kernel.target, registered)


def wrong_runs(kernel: Kernel, name: str, runs: int) -> int:
    """How many of ``runs`` on the GPU gave another result than the exact one."""
    a, b, _ = operands(name)
    exact = a.astype("float64") @ b.astype("float64").T
    wrong = 0
    for _ in range(runs):
        result = operands(name)
        kernel(*result)
        wrong += not np.array_equal(result[-1].astype("float64"), exact)
    return wrong


def main() -> None:
    """Run a kernel, planted with the defect named after it if any, on the GPU that is here."""
    name, *rest = sys.argv[1:]
    target = f"{gpu_arch()}a" if name in CROSSING else str(gpu_arch())
    runs = int(rest.pop()) if rest and rest[-1].isdigit() else 0
    kernel = planted(name, rest[0], target) if rest else whole(name, target)
    if not runs:
        kernel(*operands(name))
        return
    print(f"{name} {' '.join(rest) or 'whole'}: {wrong_runs(kernel, name, runs)} of {runs} wrong")


if __name__ == "__main__":
    main()
