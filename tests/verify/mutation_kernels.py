"""GEMMs to mutate, and how many operations that synchronise their CUDA has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pipeliner.diagnostics import Reason
from pipeliner.kernel.building import build_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.mutation import Fate
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

MMA, SIMT = (32, 32, 16), (16, 32, 8)


def gemm(trips: int, depth: int, **how: Any) -> Kernel:
    """A GEMM of one CTA and ``trips`` iterations."""
    simt = how["instruction"] == "simt"
    m, n, k = SIMT if simt else MMA
    shape = Gemm(m, n, trips * k, dtype="float32" if simt else "float16")
    request = Request(depth=depth, **how)
    return build_with(schedule_gemm(shape, GemmTile(m, n, k)), "a100", request)


def killer(fate: Fate) -> str:
    """The kind of hazard that killed a mutant, '' where an output differs or it survived."""
    by = fate.killed_by
    return by["hazard"] if isinstance(by, Reason) and by.code == "mutation.hazard" else ""


def family(depth: int, **how: Any) -> Mapping[str, Callable[[], Kernel]]:
    return {
        f"{trips} trips": lambda trips=trips: gemm(trips, depth, **how)
        for trips in (2, depth + 1, depth + 2)
    }


# Operations that synchronise, counted in the CUDA that TVM prints from the same functions.

SYNCHRONISES = re.compile(
    r"^\s+(__sync\w+|tvm_builtin_(ptx|cuda)_\w*"
    r"(commit_group|wait_group|wait_all|mbarrier|bar_sync|barrier|fence|cluster_sync)\w*)\(",
    re.MULTILINE,
)


def count_in_cuda(source: str) -> int:
    kernels = source[source.index("__global__") :]
    return len(SYNCHRONISES.findall(kernels))


FORMS = [
    {"instruction": "mma", "mechanism": "cp_async", "epilogue": "rolled"},
    {"instruction": "mma", "mechanism": "cp_async", "epilogue": "clamped"},
    {"instruction": "mma", "mechanism": "cp_async", "epilogue": "peeled"},
    {"instruction": "simt", "mechanism": "register", "epilogue": "rolled"},
    {"instruction": "simt", "mechanism": "register", "epilogue": "peeled"},
    {"instruction": "simt", "mechanism": "cp_async", "epilogue": "clamped"},
    {"instruction": "simt", "mechanism": "direct", "epilogue": "rolled"},
]


def unexplained(fates: Any) -> list[str]:
    return [f"{fate.mutant}" for fate in fates if not fate.ok]
