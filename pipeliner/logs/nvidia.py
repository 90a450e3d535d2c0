"""What NVIDIA's own heuristics choose (nvMatmulHeuristics), as candidates that we can make.

The package is asked for where it is wanted alone: no other part of the library knows of it. It
names kernels of CUTLASS 3; each is mapped to the tile, the stages, the cluster and the split of
ours that are the same, or, where our library refuses that, to the same tile with the rest left
open. Of a convolution it is asked for the product that it is, tensors being read along channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from ..errors import PipelinerError, ToolError
from ..instructions.table import MATMUL_INSTRUCTIONS
from ..machine import Machine
from ..records.candidate import Candidate
from ..records.names import candidate
from ..schedules.closed_form import typical
from ..schedules.workloads import Conv, GatedGemm, Gemm, Spec

PACKAGE: Final = "nvMatmulHeuristics"

ASKED: Final = 32
"""Kernels asked for, of which several differ in warps alone and are one of ours."""

PRECISIONS: Final[Mapping[str, str]] = {
    "float16": "HSH",
    "bfloat16": "TST",
    "float32": "SSS",
    "tfloat32": "SFS",
    "int8": "BII",
    "float8_e4m3fn": "QQHSH",
    "float8_e5m2": "RRHSH",
}
"""Operands, sums and results, in the package's letters, by our type of the operands."""

GPUS: Final[Mapping[str, str]] = {
    "a100": "A100_SXM_80GB",
    "rtx3090": "RTX_3090",
    "rtx4090": "RTX_4090",
    "l40s": "L40S",
    "h100": "H100_SXM",
    "h200": "H200_SXM",
    "b200": "B200",
    "rtx5090": "RTX_5090",
}
"""What the package calls a GPU."""

MOST_IN_CLUSTER: Final = 2
"""CTAs: a larger cluster of theirs is one of two, the largest that is automatic here."""

_WARPGROUP_ROWS: Final = 64


class NvidiaHeuristics:
    """The package, for one GPU."""

    def __init__(self, machine: Machine) -> None:
        """ToolError: the package is not installed, or does not know the GPU."""
        if find_spec(PACKAGE) is None:
            raise ToolError("command.no_heuristics")
        if machine.key not in GPUS:
            raise ToolError("command.no_heuristics_of", machine=machine.name)
        package: Any = import_module(PACKAGE)
        self._machine = machine
        self._layouts = package.NvMatmulHeuristicsMatmulLayout
        self._asked = package.NvMatmulHeuristicsInterfaceEx(
            backend=package.NvMatmulHeuristicsTarget.CUTLASS3,
            flags=package.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
            gpu=package.NvMatmulHeuristicsNvidiaGpu[GPUS[machine.key]],
        )

    def __call__(self, spec: Spec) -> list[Candidate]:
        """Its choices for ``spec``, best first, each of our kernels once; none where it has none.

        It knows plain products, and convolutions as products.
        """
        if isinstance(spec, GatedGemm) or not isinstance(spec, (Gemm, Conv)):
            return []
        found = (_mapped(kernel, spec, self._machine) for kernel in self._kernels(spec))
        return list(dict.fromkeys(one for one in found if one is not None))

    def _kernels(self, spec: Gemm | Conv) -> Iterator[Any]:
        """Its kernels, the fastest by its own estimate first."""
        precision = PRECISIONS.get(spec.types.dtype)
        if precision is None or (isinstance(spec, Conv) and spec.groups > 1):
            return
        batch = spec.batch if isinstance(spec, Gemm) else 1
        layout = spec.layout if isinstance(spec, Gemm) else "NT"
        m, n, k = typical(spec.contraction())
        if isinstance(spec, Conv):
            k *= math.prod(spec.kernel)
        problem = self._asked.makeNvMatmulHeuristicsProblem(
            m, n, k, self._layouts[f"{layout}_ROW_MAJOR"], batch or 1
        )
        kernels = self._asked.get(problem, ASKED, precision=precision)
        for one in sorted(kernels, key=lambda one: float(one["runtime"])):
            yield one["kernel"]


def _mapped(kernel: Any, spec: Spec, machine: Machine) -> Candidate | None:
    """``kernel`` as one of ours; None: our library makes nothing of that tile."""
    for one in _closest(kernel, spec, machine):
        try:
            plan = one.plan(spec, machine)
        except PipelinerError:
            continue
        if plan.matmuls:
            return one
    return None


def _closest(kernel: Any, spec: Spec, machine: Machine) -> Iterator[Candidate]:
    """The same kernel, then those of the same tile with less and less else of it.

    CTAs are persistent where there are more tiles than SMs, as CUTLASS 3 has it.
    """
    extents = (kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k)
    size = min(kernel.cluster_m * kernel.cluster_n, MOST_IN_CLUSTER)
    splits = max(1, kernel.split_k)
    for way in _ways(kernel, spec, machine):
        for cluster, persistent in ((size, machine.sms), (1, machine.sms), (size, 0), (1, 0)):
            one = candidate(
                spec,
                machine,
                way,
                extents,
                kernel.stages,
                splits=splits,
                persistent=persistent if splits == 1 else 0,
                cluster=cluster,
            )
            for depth in (kernel.stages, "auto"):
                yield replace(one, request=replace(one.request, depth=depth, consumers="auto"))


def _ways(kernel: Any, spec: Spec, machine: Machine) -> Sequence[tuple[str, str]]:
    """Instructions and mechanisms, the one that it means first."""
    if spec.types.dtype == "float32":
        return (("simt", "cp_async"), ("auto", "auto"))
    wide = machine.multiplies_by_warpgroup and kernel.instr_tile_m == _WARPGROUP_ROWS
    means = ("wgmma", "tma") if wide else ("mma", "cp_async")
    assert means[0] in MATMUL_INSTRUCTIONS
    return (means, (means[0], "auto"), ("auto", "auto"))
