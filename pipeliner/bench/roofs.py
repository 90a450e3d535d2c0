"""The roof of a workload: microseconds that no kernel beats, by its bytes or its multiplications.

    roof = max(bytes / bytes that a copy moves a us, FLOPs / FLOPs of the pipe a us)

Bytes are those of each operand and of the output, once; of a tensor that a stride steps over those
that are read. The pipe is that which multiplies: tensor cores, at the rate of the datasheet, or the
fp32 pipe for fp32 and for a depthwise convolution, which sums over no channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from ..instructions.dtypes import element_bytes
from ..machine import Machine
from ..schedules import (
    Attention,
    BackToBackGemm,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    Gemm,
    GroupedGemm,
    PackedGemm,
    ScaledGemm,
)
from ..schedules.workloads import Spec


def roofs(specs: Mapping[str, Spec], machine: Machine, copied: float) -> dict[str, float]:
    """The roof of each workload; ``copied``: bytes that a copy reads and writes in a us."""
    return {
        label: max(moved(spec) / copied, spec.flops() / flops_per_us(spec, machine))
        for label, spec in specs.items()
    }


def moved(spec: Spec) -> float:
    """Bytes that every kernel of it has to read and write."""
    return float(sum(_bytes(spec)))


def flops_per_us(spec: Spec, machine: Machine) -> float:
    """What the pipe that multiplies it can do, on all SMs."""
    cycles = machine.sms * machine.clock_ghz * 1e3
    rate = machine.wgmma(spec.dtype) or machine.mma(spec.dtype)
    if _is_depthwise(spec) or rate is None:
        return 2 * machine.fp32_per_cycle * cycles
    return rate.ops_per_cycle * cycles


def _is_depthwise(spec: Spec) -> bool:
    conv = spec.forward if isinstance(spec, (ConvInputGrad, ConvWeightGrad)) else spec
    return isinstance(conv, Conv) and conv.depthwise


def _bytes(spec: Spec) -> Iterator[Fraction]:
    *inputs, out = spec.shapes()
    kinds = [spec.storage] * len(inputs)
    if isinstance(spec, (Gemm, Attention, BackToBackGemm, ScaledGemm, GroupedGemm, PackedGemm)):
        kinds = list(spec.input_dtypes)
    read = _read(spec)
    for at, (shape, kind) in enumerate(zip(inputs, kinds)):
        yield math.prod(shape) * element_bytes(kind) * read.get(at, Fraction(1))
    yield Fraction(math.prod(out) * element_bytes(spec.out))


def _read(spec: Spec) -> dict[int, Fraction]:
    """Of which input only a part is read: images whose stride is longer than the kernel."""
    conv = spec.forward if isinstance(spec, ConvWeightGrad) else spec
    if not isinstance(conv, Conv):
        return {}
    steps = zip(conv.kernel, conv.stride)
    part = math.prod(
        (Fraction(min(kernel, step), step) for kernel, step in steps), start=Fraction(1)
    )
    return {1 if isinstance(spec, ConvWeightGrad) else 0: part}
