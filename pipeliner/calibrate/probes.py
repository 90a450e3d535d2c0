"""What is measured, with which kernels, and what their cycles and microseconds come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ..machine import Machine, MeasuredValue, MmaRate
from ..values.elements import operand
from . import kernels

STEPS: Final = 1024
"""Of a kernel that is timed by its own clock: what begins and ends it is a thousandth then."""

FEW_STEPS: Final = 256
"""Of a kernel whose steps are long."""

LINE_WORDS: Final = 32
"""Between two words that a chase reads: it meets no line twice."""

L2_WORDS: Final = 1 << 20
"""Of what is read from L2: 4 MB, which it holds."""

FAR_WORDS: Final = 1 << 24
"""In which words are read from memory: 64 MB, as operands have, of which L2 holds nothing."""

MEMORY_WORDS: Final = 1 << 28
"""Of what is read from memory to measure its bandwidth: 1 GB."""

SHARED_WORDS: Final = 1024

READERS: Final = 512
"""Threads of a CTA that reads, two of them to an SM."""

SHARED_READERS: Final = 1024

BOX_ROWS: Final = (8, 16, 32, 64, 128, 256)
"""Of the boxes, of 128 bytes a row, that are copied by TMA."""

VECTORS: Final = (1, 2, 4, 8, 16)
"""Of 16 bytes that each of 128 threads copies by cp.async."""

WARPGROUP_COLUMNS: Final = (64, 128, 256)

_COPIERS: Final = 128


@dataclass(frozen=True, slots=True)
class Took:
    """The least of several runs: cycles of the slowest CTA, microseconds of the kernel."""

    cycles: float
    us: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run comes to: ``number``, in ``unit``. ``how`` it is found may name its ``us``."""

    key: str
    how: str
    number: Callable[[Took], float]
    unit: str = "cycles"
    digits: int | None = 2

    def value(self, took: Took) -> MeasuredValue:
        """What it is where the run ``took`` that."""
        found = self.number(took)
        value = found if self.digits is None else round(found, self.digits)
        return MeasuredValue(value, self.unit, self.how.format(us=took.us))


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """A kernel to run, and the ``answers`` of what it takes. ``make``: its function.

    Its arguments: what it reads, if anything (``chased`` words that say where the next one is, or
    ``words``, or ``rows`` of halves); a time for each of ``ctas``; elements and type of ``sink``,
    where it leaves anything. ``cold``: the L2 cache is overwritten before each run.
    """

    make: partial[Any]
    answers: tuple[Answer, ...]
    chased: int = 0
    words: int = 0
    rows: int = 0
    sink: tuple[int, str] | None = None
    ctas: int = 1
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, and the kernels that answer it. ``name``: what is shown meanwhile."""

    name: str
    runs: tuple[ProbeRun, ...]

    def values(self, took: Sequence[Took]) -> dict[str, MeasuredValue]:
        """What the runs come to, of what they took, in their order."""
        return {
            one.key: one.value(time) for run, time in zip(self.runs, took) for one in run.answers
        }


def probes(machine: Machine) -> Iterator[Probe]:
    """Everything that can be measured on a GPU such as ``machine``."""
    yield _latency("memory latency", "global_latency", FAR_WORDS, cold=True)
    yield _latency("L2 latency", "l2_latency", L2_WORDS, cold=False)
    yield _shared_latency()
    yield _bandwidth(machine, "L2 bandwidth", L2_WORDS * 4, cold=False)
    yield _bandwidth(machine, "memory bandwidth", MEMORY_WORDS, cold=True)
    yield _shared_bandwidth("shared memory", matrices=False)
    if machine.capability >= 75:  # PTX ISA, ldmatrix
        yield _shared_bandwidth("ldmatrix", matrices=True)
    yield _barrier()
    yield _fused()
    yield from (_mma(rate) for rate in machine.mmas)
    if machine.has_cp_async:
        yield _cp_async()
    if machine.has_tma:
        yield _mbarrier()
        yield _tma()
    if machine.wgmmas:
        yield _wgmma()
    yield _clock(machine)


def _each(key: str, how: str, steps: int = STEPS) -> Answer:
    """The cycles of a step."""
    return Answer(key, how, lambda took: took.cycles / steps)


def _rate(key: str, how: str, amount: float, unit: str, digits: int) -> Answer:
    """So much a cycle and SM."""
    return Answer(key, how, lambda took: amount / took.cycles, f"{unit} a cycle and SM", digits)


def _latency(name: str, key: str, words: int, *, cold: bool) -> Probe:
    how = f"a thread that reads {STEPS} words, each where the one before says"
    make = partial(kernels.chase, STEPS, words)
    answer = _each(key, how)
    run = ProbeRun(make, (answer,), chased=words, sink=(1, "int32"), cold=cold)
    return Probe(name, (run,))


def _shared_latency() -> Probe:
    make = partial(kernels.chase_shared, STEPS, SHARED_WORDS)
    answer = _each("shared_latency", "as memory's, in shared memory")
    run = ProbeRun(make, (answer,), chased=SHARED_WORDS, sink=(1, "int32"))
    return Probe("shared memory latency", (run,))


def _bandwidth(machine: Machine, name: str, words: int, *, cold: bool) -> Probe:
    """All SMs read all of it, once from memory, several times from L2."""
    ctas, chunks = 2 * machine.sms, words // (READERS * 4)
    steps = chunks // ctas if cold else FEW_STEPS
    moved = ctas * READERS * 16 * steps
    if cold:
        how = f"{moved >> 20} MB read once by all SMs"
        rate = Answer(
            "dram_bytes_per_second", how, lambda took: moved / took.us * 1e6, "bytes a second", None
        )
    else:
        how = f"{words >> 18} MB read {moved // (4 * words)} times by all SMs"
        rate = _rate("l2_bytes_per_cycle", how, moved / machine.sms, "bytes", 2)
    make = partial(kernels.read, ctas, READERS, steps, chunks, ctas if cold else ctas + 1)
    sink = (ctas * READERS, "int32")
    return Probe(name, (ProbeRun(make, (rate,), words=words, sink=sink, ctas=ctas, cold=cold),))


def _shared_bandwidth(name: str, *, matrices: bool) -> Probe:
    key = "ldmatrix_bytes_per_cycle" if matrices else "smem_bytes_per_cycle"
    how = f"{SHARED_READERS // 32} warps, 16 bytes a lane"
    rate = _rate(key, how, SHARED_READERS * 16 * STEPS, "bytes", 2)
    make = partial(kernels.read_shared, SHARED_READERS, STEPS, matrices=matrices)
    return Probe(name, (ProbeRun(make, (rate,), sink=(SHARED_READERS, "int32")),))


def _barrier() -> Probe:
    def run(threads: int, *names: str) -> ProbeRun:
        answers = (_each(name, f"a CTA of {threads} threads") for name in names)
        return ProbeRun(partial(kernels.synchronise, threads, STEPS), tuple(answers))

    usual = run(256, "barrier_256", "barrier_cycles")
    return Probe("barrier", (run(128, "barrier_128"), usual, run(512, "barrier_512")))


def _mbarrier() -> Probe:
    answer = _each("mbarrier_cycles", "8 warps arrive, all of 256 threads wait")
    return Probe("mbarrier", (ProbeRun(partial(kernels.hand_over, 256, STEPS), (answer,)),))


def _fused() -> Probe:
    chain = _each("fp32_latency", "one chain of multiply-adds")
    how = "32 warps of 4 chains"
    rate = _rate("fp32_per_cycle", how, 1024 * 4 * STEPS, "multiply-adds", 1)
    runs = (
        ProbeRun(partial(kernels.add_up, 32, 1, STEPS), (chain,), sink=(32, "float32")),
        ProbeRun(partial(kernels.add_up, 1024, 4, STEPS), (rate,), sink=(1024, "float32")),
    )
    return Probe("multiply-adds", runs)


def _mma(rate: MmaRate) -> Probe:
    """One warp with one accumulator for the latency, 16 with 4 each for the rate."""
    warps, chains = 16, 4
    shape, dtype = rate.shape, rate.dtype
    result = operand(dtype).sums[0]
    of_shape = "m{}n{}k{}".format(*shape)
    name = f"mma_{dtype}_{of_shape}"
    ops = 2 * shape[0] * shape[1] * shape[2] * warps * chains * FEW_STEPS
    chain = _each(f"{name}_latency", "a chain of one warp")
    many = _rate(f"{name}_rate", f"{warps} warps of {chains} chains", ops, "operations", 1)
    multiply = partial(kernels.multiply, dtype, shape, 1)
    runs = (
        ProbeRun(partial(multiply, 1, 1, STEPS), (chain,), sink=(32, result)),
        ProbeRun(partial(multiply, warps, chains, FEW_STEPS), (many,), sink=(warps * 32, result)),
    )
    return Probe(f"mma.sync {of_shape} of {dtype}", runs)


def _cp_async() -> Probe:
    how = f"{_COPIERS} threads copy from L2 and wait"
    runs = (
        ProbeRun(
            partial(kernels.copy_asynchronously, _COPIERS, count, FEW_STEPS, L2_WORDS),
            (_each(f"cp_async_{count * _COPIERS * 16}", how, FEW_STEPS),),
            words=L2_WORDS,
        )
        for count in VECTORS
    )
    return Probe("cp.async latency", tuple(runs))


def _tma() -> Probe:
    size = L2_WORDS * 2 // kernels.BOX_COLUMNS
    how = "a box of {} rows of 128 bytes from L2, waited for"
    runs = (
        ProbeRun(
            partial(kernels.copy_boxes, rows, FEW_STEPS, size),
            (_each(f"tma_{rows * 128}", how.format(rows), FEW_STEPS),),
            rows=size,
        )
        for rows in BOX_ROWS
    )
    return Probe("TMA latency", tuple(runs))


def _wgmma() -> Probe:
    """Each alone for completion; batches of two warpgroups for the rate."""
    batch = 8
    multiply = kernels.multiply_by_warpgroup
    alone = (
        ProbeRun(
            partial(multiply, n, 1, 1, 1, FEW_STEPS),
            (_each(f"wgmma_m64n{n}k16_latency", "issued and waited for", FEW_STEPS),),
            sink=(128, "float32"),
        )
        for n in WARPGROUP_COLUMNS
    )
    ops = 2 * 64 * 256 * 16 * 2 * batch * FEW_STEPS
    how = f"2 warpgroups, {batch} instructions at a time"
    rate = _rate("wgmma_m64n256k16_rate", how, ops, "operations", 1)
    make = partial(multiply, 256, 1, 2, batch, FEW_STEPS)
    return Probe("wgmma", (*alone, ProbeRun(make, (rate,), sink=(256, "float32"))))


def _clock(machine: Machine) -> Probe:
    """Of SMs whose tensor cores, or FMA pipes, are all busy for a while."""
    steps, sms = 20_000, machine.sms
    make, sink, ctas = partial(kernels.add_up, 1024, 4, steps), 1024, 1
    if machine.wgmmas:
        make = partial(kernels.multiply_by_warpgroup, 256, sms, 2, 8, steps)
        sink, ctas = sms * 256, sms
    elif machine.mmas:
        rate = machine.mmas[0]
        make = partial(kernels.multiply, rate.dtype, rate.shape, sms, 16, 4, steps)
        sink, ctas = sms * 512, sms
    ghz = Answer(
        "clock_ghz",
        "{us:.0f} us of arithmetic",
        lambda took: took.cycles / took.us / 1e3,
        "GHz",
        4,
    )
    return Probe("clock", (ProbeRun(make, (ghz,), sink=(sink, "float32"), ctas=ctas),))
