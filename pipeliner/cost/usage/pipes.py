"""Cycles that one statement of a loop's body keeps each pipe of an SM busy, in one iteration.

    tensor   2 * m * n * k / ops_per_cycle                        mma.sync and wgmma
    fma      m * n * k / fp32_per_cycle                           multiply-adds by CUDA cores
    sfu      transcendental functions / sfu_per_cycle
    lsu      bytes through shared memory / smem_bytes_per_cycle   or accesses to global memory
    l2       bytes from outside the SM / rate
    issue    warp instructions / issue_per_cycle                  of whatever pipe

An iteration takes at least the cycles of the busiest pipe: the roofline of the SM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...machine import WARP, Machine
from ...machine.constant import constant, fitted
from ...values.facts import StatementInfo

PIPES: Final = ("tensor", "fma", "sfu", "lsu", "l2", "issue")

PIPE_WORDS: Final = {
    "tensor": "tensor cores",
    "fma": "FMA pipe",
    "sfu": "special functions",
    "lsu": "shared memory",
    "l2": "L2 or memory bandwidth",
    "issue": "instruction issue",
}

PIPE_NORM: Final = constant(
    "PIPE_NORM",
    8.0,
    "1",
    "exponent of the norm that combines the pipes of an SM",
    formula="norm = (sum of pipe ^ PIPE_NORM) ^ (1 / PIPE_NORM)",
    source=fitted(
        "H100, 4096x4096x4096 fp16 by mma.sync",
        "474 and 495 thousand cycles with 128x256x64 and 128x128x64 are met",
    ),
    date="2026-11-22",
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Cycles of each pipe, and bytes from outside the SM. Sums of usages are usages."""

    tensor: float = 0.0
    """Cycles of the tensor cores."""
    fma: float = 0.0
    """Cycles of the FMA pipe."""
    sfu: float = 0.0
    """Cycles of the special function units."""
    lsu: float = 0.0
    """Cycles of the load and store units and of shared memory."""
    l2: float = 0.0
    """Cycles until what comes from outside the SM has arrived at its rate."""
    issue: float = 0.0
    """Cycles of the four warp schedulers together."""
    global_bytes: int = 0
    """Bytes from outside the SM."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.tensor + other.tensor,
            self.fma + other.fma,
            self.sfu + other.sfu,
            self.lsu + other.lsu,
            self.l2 + other.l2,
            self.issue + other.issue,
            self.global_bytes + other.global_bytes,
        )

    @property
    def cycles(self) -> tuple[float, ...]:
        """Cycles of each pipe, in the order of ``PIPES``."""
        return (self.tensor, self.fma, self.sfu, self.lsu, self.l2, self.issue)

    @property
    def compute(self) -> float:
        """Cycles that arithmetic alone takes."""
        return max(self.tensor, self.fma, self.sfu)

    def busiest(self) -> tuple[str, float]:
        """The pipe that bounds an iteration from below, and its cycles (II)."""
        cycles = self.cycles
        most = max(cycles)
        return PIPES[cycles.index(most)], most

    def norm(self, exponent: float, *, tensor: bool = True, issue: float | None = None) -> float:
        """``(sum over the pipes of cycles ^ exponent) ^ (1 / exponent)``: at least ``II``.

        ``tensor``: the tensor cores are among the pipes. ``issue``: cycles of the schedulers, where
        they take longer than four that share all instructions.
        """
        total = (
            (self.tensor**exponent if tensor else 0.0)
            + self.fma**exponent
            + self.sfu**exponent
            + self.lsu**exponent
            + self.l2**exponent
            + (self.issue if issue is None else issue) ** exponent
        )
        return float(total ** (1.0 / exponent))


def of_statement(info: StatementInfo, machine: Machine, rate: float) -> Usage:
    """Cycles of any other statement, from the bytes and operations that were counted in it."""
    rates = [mma.ops_per_cycle for mma in machine.mmas if mma.dtype == "float16"]
    words = (info.global_bytes + info.shared_bytes) / 4
    operations = info.flops / 2 + info.transcendentals + words
    return Usage(
        tensor=info.tensor_flops / rates[0] if rates else 0.0,
        fma=info.flops / 2 / machine.fp32_per_cycle,
        sfu=info.transcendentals / machine.sfu_per_cycle,
        lsu=info.shared_bytes / machine.smem_bytes_per_cycle,
        l2=info.global_bytes / rate,
        issue=operations / WARP / machine.issue_per_cycle,
        global_bytes=info.global_bytes,
    )
