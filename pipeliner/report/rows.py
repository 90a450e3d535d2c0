"""From records to rows: of each workload what was tried, the fastest, the least time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..instructions.dtypes import element_bytes
from ..machine import Machine
from ..records import OURS, Record
from ..records.candidate import workload_of
from ..records.functions import is_function, name_of
from ..schedules import Conv, Gemm
from ..schedules.suites import label_of as suite_label
from ..schedules.workloads import Spec


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function of the user's on one GPU: all that was tried. Nobody counts its operations."""

    label: str
    records: tuple[Record, ...]

    @property
    def ours(self) -> tuple[Record, ...]:
        """Our candidates that ran, and have a time."""
        return tuple(one for one in self.records if one.contender == OURS and not one.failure)

    @property
    def best(self) -> Record | None:
        """The fastest of ours."""
        return min(self.ours, key=lambda one: one.us, default=None)

    @property
    def failures(self) -> tuple[Record, ...]:
        """What has no time."""
        return tuple(one for one in self.records if one.failure)


@dataclass(frozen=True, slots=True)
class Row(FunctionRow):
    """A workload on one GPU: the fastest of ours, each peer's, and all that was tried."""

    spec: Spec
    machine: Machine

    @property
    def tried(self) -> int:
        """Kernels of ours that have a time; one that was timed again counts once."""
        return len({one.candidate for one in self.ours})

    @property
    def peers(self) -> dict[str, Record]:
        """The fastest of each peer's."""
        found: dict[str, Record] = {}
        for one in self.records:
            if one.contender != OURS and not one.failure:
                known = found.get(one.contender)
                found[one.contender] = one if known is None or one.us < known.us else known
        return found

    @property
    def roofline_us(self) -> float:
        """The least time: all arithmetic at the peak rate, or all operands and results once."""
        return max(
            self.spec.flops() / peak_flops(self.spec, self.machine) * 1e6,
            bytes_of(self.spec) / self.machine.dram_bytes_per_second * 1e6,
        )

    def tflops(self, us: float) -> float:
        """The rate of a run of ``us`` microseconds."""
        return self.spec.flops() / us * 1e-6


def peak_flops(spec: Spec, machine: Machine) -> float:
    """Operations a second of the fastest instruction for the workload's operands."""
    rates = [machine.mma(spec.types.dtype), machine.wgmma(spec.types.dtype)]
    each = max((rate.ops_per_cycle for rate in rates if rate), default=2 * machine.fp32_per_cycle)
    if spec.types.dtype == "float32":
        each = 2 * machine.fp32_per_cycle  # exact: no tensor cores
    return each * machine.sms * machine.clock_ghz * 1e9


def bytes_of(spec: Spec) -> int:
    """Of all operands and the result, each once."""
    *inputs, out = spec.shapes()
    read = _share_read(spec)
    kinds = (spec.storage, getattr(spec, "weights", "") or spec.storage)
    sizes = (math.prod(one) * element_bytes(kind) for one, kind in zip(inputs, kinds))
    operands = sum(size * share for size, share in zip(sizes, (read, 1)))
    others = sum(math.prod(shape) for shape in (*inputs[2:], out)) * element_bytes(spec.out)
    return round(operands + others)


def _share_read(spec: Spec) -> float:
    """The share of its first operand that a workload reads: strides leave out rows of images."""
    if not isinstance(spec, Conv):
        return 1
    share = 1.0
    for at, size in enumerate(spec.size):
        first, step, between = -spec.pad[at][0], spec.stride[at], spec.dilation[at]
        starts = range(first, first + spec.out_size[at] * step, step)
        taps = range(0, spec.kernel[at] * between, between)
        share *= len({start + tap for start in starts for tap in taps} & {*range(size)}) / size
    return share


def rows_of(records: Sequence[Record], machine: Machine) -> list[Row]:
    """The records by workload, in the order in which workloads were first tried.

    ``records``: of one ``machine`` and versions. RecordsError: a workload that is none of ours.
    Functions have rows of their own.
    """
    return [
        Row(label_of(spec := workload_of(key)), tuple(found), spec, machine)
        for key, found in _by_workload(records).items()
        if not is_function(key)
    ]


def function_rows(records: Sequence[Record]) -> list[FunctionRow]:
    """The records of functions of the user's, in the order in which they were first tried."""
    return [
        FunctionRow(name_of(key), tuple(found))
        for key, found in _by_workload(records).items()
        if is_function(key)
    ]


def _by_workload(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.workload, []).append(record)
    return groups


def label_of(spec: Spec) -> str:
    """The name of a workload in its suite, or else a product's extents, types and layout."""
    known = suite_label(spec)
    if known is not None:
        return known if spec.types.dtype == "float16" else f"{known} {spec.types.suffix}"
    if isinstance(spec, Gemm) and spec.batch is None and not spec.epilogue:
        return f"{spec.m}x{spec.n}x{spec.k} {spec.types.suffix} {spec.layout}"
    return spec.name
