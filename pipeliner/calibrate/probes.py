"""What is measured, with which kernels, and what their cycles and microseconds come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

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
class ProbeRun:
    """A kernel to run. ``make``: its function.

    Its arguments: what it reads, if anything (``chased`` words that say where the next one is, or
    ``words``, or ``rows`` of halves); a time for each of ``ctas``; elements and type of ``sink``,
    where it leaves anything. ``cold``: the L2 cache is overwritten before each run.
    """

    make: Callable[[], Any]
    chased: int = 0
    words: int = 0
    rows: int = 0
    sink: tuple[int, str] | None = None
    ctas: int = 1
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Took:
    """The least of several runs: cycles of the slowest CTA, microseconds of the kernel."""

    cycles: float
    us: float


Values: TypeAlias = "dict[str, MeasuredValue]"


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, the kernels that answer it, and the numbers that their times come to.

    ``name``: what is shown meanwhile. ``values``: of what the runs took, in their order.
    """

    name: str
    runs: tuple[ProbeRun, ...]
    values: Callable[[Sequence[Took]], Values]


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


def _cycles(value: float, how: str) -> MeasuredValue:
    return MeasuredValue(round(value, 2), "cycles", how)


def _latency(name: str, key: str, words: int, *, cold: bool) -> Probe:
    how = f"a thread that reads {STEPS} words, each where the one before says"
    run = ProbeRun(partial(kernels.chase, STEPS, words), chased=words, sink=(1, "int32"), cold=cold)
    return Probe(name, (run,), lambda took: {key: _cycles(took[0].cycles / STEPS, how)})


def _shared_latency() -> Probe:
    run = ProbeRun(
        partial(kernels.chase_shared, STEPS, SHARED_WORDS), chased=SHARED_WORDS, sink=(1, "int32")
    )
    how = "as memory's, in shared memory"
    return Probe(
        "shared memory latency",
        (run,),
        lambda took: {"shared_latency": _cycles(took[0].cycles / STEPS, how)},
    )


def _bandwidth(machine: Machine, name: str, words: int, *, cold: bool) -> Probe:
    """All SMs read all of it, once from memory, several times from L2."""
    ctas, chunks = 2 * machine.sms, words // (READERS * 4)
    steps = chunks // ctas if cold else FEW_STEPS
    stride = ctas if cold else ctas + 1
    run = ProbeRun(
        partial(kernels.read, ctas, READERS, steps, chunks, stride),
        words=words,
        sink=(ctas * READERS, "int32"),
        ctas=ctas,
        cold=cold,
    )
    moved = ctas * READERS * 16 * steps

    def values(took: Sequence[Took]) -> Values:
        if cold:
            rate = moved / took[0].us * 1e6
            how = f"{moved >> 20} MB read once by all SMs"
            return {"dram_bytes_per_second": MeasuredValue(rate, "bytes a second", how)}
        rate = moved / machine.sms / took[0].cycles
        how = f"{words >> 18} MB read {moved // (4 * words)} times by all SMs"
        return {"l2_bytes_per_cycle": MeasuredValue(round(rate, 2), "bytes a cycle and SM", how)}

    return Probe(name, (run,), values)


def _shared_bandwidth(name: str, *, matrices: bool) -> Probe:
    run = ProbeRun(
        partial(kernels.read_shared, SHARED_READERS, STEPS, matrices=matrices),
        sink=(SHARED_READERS, "int32"),
    )
    key = "ldmatrix_bytes_per_cycle" if matrices else "smem_bytes_per_cycle"
    how = f"{SHARED_READERS // 32} warps, 16 bytes a lane"

    def values(took: Sequence[Took]) -> Values:
        rate = SHARED_READERS * 16 * STEPS / took[0].cycles
        return {key: MeasuredValue(round(rate, 2), "bytes a cycle and SM", how)}

    return Probe(name, (run,), values)


def _barrier() -> Probe:
    sizes = (128, 256, 512)
    runs = tuple(ProbeRun(partial(kernels.synchronise, n, STEPS)) for n in sizes)

    def values(took: Sequence[Took]) -> Values:
        each = dict(zip(sizes, (one.cycles / STEPS for one in took)))
        named = {f"barrier_{n}": _cycles(each[n], f"a CTA of {n} threads") for n in sizes}
        return {**named, "barrier_cycles": _cycles(each[256], "a CTA of 256 threads")}

    return Probe("barrier", runs, values)


def _mbarrier() -> Probe:
    run = ProbeRun(partial(kernels.hand_over, 256, STEPS))
    how = "8 warps arrive, all of 256 threads wait"
    return Probe(
        "mbarrier",
        (run,),
        lambda took: {"mbarrier_cycles": _cycles(took[0].cycles / STEPS, how)},
    )


def _fused() -> Probe:
    runs = (
        ProbeRun(partial(kernels.add_up, 32, 1, STEPS), sink=(32, "float32")),
        ProbeRun(partial(kernels.add_up, 1024, 4, STEPS), sink=(1024, "float32")),
    )

    def values(took: Sequence[Took]) -> Values:
        rate = 1024 * 4 * STEPS / took[1].cycles
        return {
            "fp32_latency": _cycles(took[0].cycles / STEPS, "one chain of multiply-adds"),
            "fp32_per_cycle": MeasuredValue(
                round(rate, 1), "multiply-adds a cycle and SM", "32 warps of 4 chains"
            ),
        }

    return Probe("multiply-adds", runs, values)


def _mma(rate: MmaRate) -> Probe:
    """One warp with one accumulator for the latency, 16 with 4 each for the rate."""
    warps, chains = 16, 4
    shape, dtype = rate.shape, rate.dtype
    result = operand(dtype).sums[0]
    runs = (
        ProbeRun(partial(kernels.multiply, dtype, shape, 1, 1, 1, STEPS), sink=(32, result)),
        ProbeRun(
            partial(kernels.multiply, dtype, shape, 1, warps, chains, FEW_STEPS),
            sink=(warps * 32, result),
        ),
    )
    of_shape = "m{}n{}k{}".format(*shape)
    name = f"mma_{dtype}_{of_shape}"
    ops = 2 * shape[0] * shape[1] * shape[2] * warps * chains * FEW_STEPS

    def values(took: Sequence[Took]) -> Values:
        return {
            f"{name}_latency": _cycles(took[0].cycles / STEPS, "a chain of one warp"),
            f"{name}_rate": MeasuredValue(
                round(ops / took[1].cycles, 1),
                "operations a cycle and SM",
                f"{warps} warps of {chains} chains",
            ),
        }

    return Probe(f"mma.sync {of_shape} of {dtype}", runs, values)


def _cp_async() -> Probe:
    runs = tuple(
        ProbeRun(
            partial(kernels.copy_asynchronously, _COPIERS, count, FEW_STEPS, L2_WORDS),
            words=L2_WORDS,
        )
        for count in VECTORS
    )

    def values(took: Sequence[Took]) -> Values:
        sizes = [count * _COPIERS * 16 for count in VECTORS]
        how = f"{_COPIERS} threads copy from L2 and wait"
        return {
            f"cp_async_{size}": _cycles(one.cycles / FEW_STEPS, how)
            for size, one in zip(sizes, took)
        }

    return Probe("cp.async latency", runs, values)


def _tma() -> Probe:
    size = L2_WORDS * 2 // kernels.BOX_COLUMNS
    runs = tuple(
        ProbeRun(partial(kernels.copy_boxes, rows, FEW_STEPS, size), rows=size) for rows in BOX_ROWS
    )

    def values(took: Sequence[Took]) -> Values:
        how = "a box of {} rows of 128 bytes from L2, waited for"
        return {
            f"tma_{rows * 128}": _cycles(one.cycles / FEW_STEPS, how.format(rows))
            for rows, one in zip(BOX_ROWS, took)
        }

    return Probe("TMA latency", runs, values)


def _wgmma() -> Probe:
    """Each alone for completion; batches of two warpgroups for the rate."""
    batch = 8
    alone = tuple(
        ProbeRun(
            partial(kernels.multiply_by_warpgroup, n, 1, 1, 1, FEW_STEPS),
            sink=(128, "float32"),
        )
        for n in WARPGROUP_COLUMNS
    )
    both = ProbeRun(
        partial(kernels.multiply_by_warpgroup, 256, 1, 2, batch, FEW_STEPS), sink=(256, "float32")
    )

    def values(took: Sequence[Took]) -> Values:
        done = {
            f"wgmma_m64n{n}k16_latency": _cycles(one.cycles / FEW_STEPS, "issued and waited for")
            for n, one in zip(WARPGROUP_COLUMNS, took)
        }
        ops = 2 * 64 * 256 * 16 * 2 * batch * FEW_STEPS
        how = f"2 warpgroups, {batch} instructions at a time"
        rate = MeasuredValue(round(ops / took[-1].cycles, 1), "operations a cycle and SM", how)
        return {**done, "wgmma_m64n256k16_rate": rate}

    return Probe("wgmma", (*alone, both), values)


def _clock(machine: Machine) -> Probe:
    """Of SMs whose tensor cores, or FMA pipes, are all busy for a while."""
    steps = 20_000
    if machine.wgmmas:
        run = ProbeRun(
            partial(kernels.multiply_by_warpgroup, 256, machine.sms, 2, 8, steps),
            sink=(machine.sms * 256, "float32"),
            ctas=machine.sms,
        )
    elif machine.mmas:
        rate = machine.mmas[0]
        run = ProbeRun(
            partial(kernels.multiply, rate.dtype, rate.shape, machine.sms, 16, 4, steps),
            sink=(machine.sms * 512, "float32"),
            ctas=machine.sms,
        )
    else:
        run = ProbeRun(partial(kernels.add_up, 1024, 4, steps), sink=(1024, "float32"))

    def values(took: Sequence[Took]) -> Values:
        how = f"{took[0].us:.0f} us of arithmetic"
        return {"clock_ghz": MeasuredValue(round(took[0].cycles / took[0].us / 1e3, 4), "GHz", how)}

    return Probe("clock", (run,), values)
