"""One point of the option space of pipelined convolutions: its workload, its request, its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeliner.api import build
from pipeliner.errors import WorkloadError
from pipeliner.kernel.building import pipeline_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, schedule_conv
from pipeliner.schedules.workloads import (
    Conv,
    ConvInputGrad,
    Convolution,
    ConvWeightGrad,
    can_fold,
    conv,
)
from pipeliner.verification.accuracy import poisoned, worst_error

FACTORS: Final[Mapping[str, Sequence[Any]]] = {
    "rank": (1, 2, 3),
    "of": ("forward", "input", "weight"),
    "layout": ("last", "first"),
    "kernel": (1, 2, 3),
    "stride": (1, 2, 3),
    "dilation": (1, 2),
    "pad": ((0, 0), (1, 1), (0, 2)),
    "c": (3, 8, 20, 32),
    "k": (5, 16, 24),
    "groups": (1, 2),
    "fold": (False, True),
    "dtype": ("fp32", "tf32", "fp16", "bf16", "int8"),
    "fuse": ((), ("bias", "relu"), ("residual", "silu")),
    "depth": (1, 2, 3, "auto"),
    "mechanism": ("auto", "register"),
    "epilogue": ("auto", "clamped", "peeled"),
    "target": ("sm_75", "sm_80", "sm_90"),
}

TILES: Final[Mapping[str, tuple[int, int, int]]] = {
    "fp32": (16, 32, 8),
    "tf32": (16, 16, 16),
    "fp16": (16, 16, 16),
    "bf16": (16, 16, 16),
    "int8": (16, 16, 32),
}


@dataclass(frozen=True, slots=True)
class ConvCase:
    """One value of each factor."""

    rank: int
    of: str
    layout: str
    kernel: int
    stride: int
    dilation: int
    pad: tuple[int, int]
    c: int
    k: int
    groups: int
    fold: bool
    dtype: str
    fuse: tuple[str, ...]
    depth: int | str
    mechanism: str
    epilogue: str
    target: str

    def __str__(self) -> str:
        """Every value, for the name of a test."""
        return ",".join(str(getattr(self, name)).replace(" ", "") for name in FACTORS)

    @property
    def is_legal(self) -> bool:
        """Whether such a convolution exists, and such a kernel of it."""
        if self.mechanism == "register" and self.epilogue == "clamped":
            return False  # what is clamped are asynchronous copies
        if self.target == "sm_75" and (self.dtype == "tf32" or self.epilogue == "clamped"):
            return False
        if self.fuse and (self.of != "forward" or (self.dtype == "int8" and "silu" in self.fuse)):
            return False
        if self.epilogue == "clamped" and not self._moves_words:
            return False
        try:
            spec = self.spec()
        except WorkloadError:
            return False
        if not self.fold:
            return True
        return isinstance(spec, ConvWeightGrad) or (isinstance(spec, Conv) and can_fold(spec))

    @property
    def _moves_words(self) -> bool:
        """Whether a copy can be asynchronous, which moves 4 bytes at least."""
        return self.dtype in ("fp32", "tf32") or (
            self.layout == "last" and self.c % 4 == 0 and self.k % 4 == 0 and self.c > 3
        )

    def spec(self) -> Convolution:
        size = {1: (11,), 2: (5, 7), 3: (3, 4, 5)}[self.rank]
        layouts = {"last": ("NWC", "NHWC", "NDHWC"), "first": ("NCW", "NCHW", "NCDHW")}
        forward = conv(
            2,
            size,
            self.c,
            self.k,
            (self.kernel,) * self.rank,
            stride=self.stride,
            pad=self.pad * self.rank,
            dilation=self.dilation,
            groups=self.groups,
            dtype=self.dtype,
            layout=layouts[self.layout][self.rank - 1],
            epilogue=self.fuse,
        )
        if self.of == "forward":
            return forward
        return (ConvInputGrad if self.of == "input" else ConvWeightGrad)(forward)

    def kernel_of(self) -> Kernel:
        request = Request(depth=self.depth, mechanism=self.mechanism, epilogue=self.epilogue)
        tile = ConvTile(*TILES[self.dtype], fold=self.fold)
        return build(pipeline_with(schedule_conv(self.spec(), tile), self.target, request))


def check(spec: Convolution, kernel: Kernel, timings: Sequence[str] = ("late",)) -> None:
    """Run ``kernel``: right to rounding, and nothing objected to."""
    inputs = spec.inputs(seed=7)
    exact, magnitude = spec.reference(*inputs), spec.magnitude(*inputs)
    for timing in timings:
        out = poisoned(spec.shapes()[-1], spec.out)
        outcome = kernel.emulate(*inputs, out, timing=timing)
        assert outcome.hazards == (), f"{timing}: {outcome.hazards[0]}"
        found = outcome.outputs[str(kernel.function.params[-1].name)]
        worst = worst_error(spec, found, exact, magnitude)
        assert worst <= 1, f"{timing}: error of {worst} times what is allowed"
