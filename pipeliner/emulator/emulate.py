"""``emulate``: run a lowered module on numpy arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import numpy as np
from tvm import ir, tirx

from ..diagnostics import Reason
from ..errors import EmulatorError
from ..plan import PLAN_ATTR, KernelPlan, SmemPlan
from .base.report import CtaStats, Emulation
from .base.requests import Program
from .blame import Blame, Lines, with_arena
from .engine.machine import Cluster, Cta, HazardLog, Stopped
from .engine.residents import Resident, room_for, run_together
from .engine.scheduler import LOCKSTEP, ORDERS, Scheduler
from .engine.thread_group import ThreadGroup
from .launch.arguments import bind_arguments
from .launch.global_uses import watch
from .launch.host import Launch, kernel_names, run_host
from .lower import is_device_function
from .memory.global_memory import Region
from .memory.grid import Grid, GridBarrier
from .memory.spaces import GlobalView
from .translate.buffers import Memory
from .translate.compiler import CompiledKernel, compile_kernel
from .units.cp_async import TIMINGS
from .units.fragments import WARP

Arguments = Sequence[Any] | Mapping[str, Any]
"""Arguments in order or by name."""

Array = np.ndarray[Any, Any]
Block = tuple[int, int, int]
Blocks = Iterable[Block] | Mapping[int, Iterable[Block]]
"""CTAs of every kernel, or of each by its number among those of the host function, from 0."""

Programs = dict[str, CompiledKernel]
"""Compiled kernels by name."""

_DYNAMIC_TAG = "tirx.use_dyn_shared_memory"
"""Launch dimension that is the bytes of dynamic shared memory."""

_KNOWN_TAGS = {
    *(f"{axis}.{d}" for axis in ("blockIdx", "clusterCtaIdx", "threadIdx") for d in "xyz"),
    _DYNAMIC_TAG,
}
"""Launch dimensions that are emulated."""


class EmulateOptions(TypedDict, total=False):
    """The options of ``emulate`` that a kernel's own ``emulate`` takes, too."""

    entry: str | None
    timing: str
    order: str
    seed: int
    blocks: Blocks | None
    in_step: Mapping[int, Iterable[Block]] | None
    variant: int
    only_first: bool
    progress: Callable[[int, int], None] | None


def emulate(
    mod: Any,
    args: Arguments,
    *,
    entry: str | None = None,
    timing: str = "late",
    order: str = "lockstep",
    seed: int = 0,
    blocks: Blocks | None = None,
    in_step: Mapping[int, Iterable[Block]] | None = None,
    lines: Lines | None = None,
    programs: Programs | None = None,
    variant: int = 0,
    only_first: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Emulation:
    """Run one call of a lowered function, cluster by cluster, and judge it.

    Parameters
    ----------
    mod
        IRModule from ``lower_for_emulation`` (a host function and its device kernels), or an
        object that has one as ``lowered``.
    args
        Arguments of the host PrimFunc, in its order or by parameter name.  Arrays have the dtype
        of their buffer (bfloat16: ``ml_dtypes.bfloat16``, or uint16 with its bits). Those too large
        for memory are made by ``sparse``.
    entry
        Name of the host function, if the module has several.
    timing
        When an asynchronous copy lands: ``"late"``, as late as the waits allow; ``"early"``, at
        issue; ``"random"``, in between.
    order
        How warps interleave: ``"lockstep"``, in step as far as they can, the fastest;
        ``"round-robin"``, in turn at every access to shared memory and every synchronisation;
        ``"reversed"``, the last warp runs ahead as far as it can; ``"random"``, any at each such
        step.  The judgement is by happens-before and does not depend on it.
    seed
        Of the random timing and order: the same seed gives the same run.
    blocks
        blockIdx (x, y, z) of the CTAs to run, with the others of their clusters; all by default.
        A mapping has those of each kernel by its number, from 0, and all of those not in it: what a
        later kernel reads, CTAs of earlier ones have to write.
    in_step
        Those whose warps go in lock step whatever ``order`` is, by the number of their kernel: all
        of their cluster has to be among them.
    lines
        The CUDA of a statement, asked for the statements of hazards alone: device function and
        number of the statement in it, as ``CudaLines.find`` takes them.
    programs
        What its kernels were compiled to: filled by the first run, used by the next ones. For runs
        of the same ``mod`` only.
    variant
        Which of the variants runs that ``programs`` were compiled with; 0: the kernels themselves.
    only_first
        Stop at the first hazard: it is the only one reported, the outputs are unfinished and the
        counts of its kernel are missing.
    progress
        Called with how many CTAs of a kernel have run, and how many will.

    Returns
    -------
    Outputs, hazards and counts.  Arguments are not modified.

    Raises
    ------
    EmulatorError
        For an operation that the emulator does not know, or arguments that do not fit.
    """
    if timing not in TIMINGS:
        raise EmulatorError("request.choice", option="timing", choices=TIMINGS, value=timing)
    if order not in ORDERS:
        raise EmulatorError("request.choice", option="order", choices=ORDERS, value=order)
    if isinstance(mod, tirx.PrimFunc):
        raise EmulatorError("emulator.not_lowered")
    host, kernels = _split(getattr(mod, "lowered", mod), entry)
    env, outputs = bind_arguments(host, args)
    launches = run_host(host, kernels, env)
    if not launches:
        raise EmulatorError("emulator.no_kernel")
    compiled: dict[str, CompiledKernel] = {}
    programs = {} if programs is None else programs
    smem = _smem(host)
    hazards, stats = HazardLog(only_first=only_first), []
    mode = _Mode(timing, order, np.random.default_rng(seed), variant, progress)
    chosen = _chosen(blocks, kernel_names(host))
    calm = _chosen(in_step or {}, kernel_names(host))
    with suppress(Stopped):
        for launch in launches:
            name = launch.kernel
            if name not in programs:
                programs[name] = compile_kernel(kernels[name])
            if name not in compiled:
                compiled[name] = with_arena(programs[name], smem)
            some, step = chosen.get(name), calm.get(name, set())
            stats += _run_kernel(compiled[name], launch, hazards, mode, some, kernels[name], step)
    blames = {name: Blame(kernel, lines) for name, kernel in compiled.items()}
    explained = tuple(blames[h.kernel].explain(h) for h in hazards.found.values())
    return Emulation(outputs, explained, tuple(stats))


def _chosen(blocks: Blocks | None, names: Sequence[str]) -> dict[str, set[Block]]:
    """The CTAs to run of each kernel of which not all are run; EmulatorError: no such kernel."""
    if blocks is None:
        return {}
    if not isinstance(blocks, Mapping):
        every = {_block(b) for b in blocks}
        return dict.fromkeys(names, every)
    if not set(blocks) <= set(range(len(names))):
        given = tuple(sorted(blocks))
        raise EmulatorError("emulator.kernel_numbers", count=len(names), given=given)
    return {names[number]: {_block(b) for b in some} for number, some in blocks.items()}


def _smem(host: Any) -> SmemPlan:
    """The arena as it was planned, where it was."""
    text = (host.attrs or {}).get(PLAN_ATTR)
    return SmemPlan() if text is None else KernelPlan.from_json(str(text)).smem


def _split(mod: Any, entry: str | None) -> tuple[Any, dict[str, Any]]:
    """The host function and the kernels by name."""
    if not isinstance(mod, ir.IRModule):
        raise EmulatorError("emulator.not_module", kind=type(mod).__name__)
    functions = {gv.name_hint: f for gv, f in mod.functions.items()}
    kernels = {name: f for name, f in functions.items() if is_device_function(f)}
    hosts = {name: f for name, f in functions.items() if name not in kernels}
    if entry is None and len(hosts) == 1:
        entry = next(iter(hosts))
    if entry not in hosts:
        raise EmulatorError(
            "request.choice", option="entry", choices=tuple(sorted(hosts)), value=str(entry)
        )
    return hosts[entry], kernels


@dataclass(frozen=True)
class _Mode:
    """What the hardware leaves open, and how it is chosen."""

    timing: str
    order: str
    rng: np.random.Generator
    variant: int
    progress: Callable[[int, int], None] | None = None


def _run_kernel(
    kernel: CompiledKernel,
    launch: Launch,
    hazards: HazardLog,
    mode: _Mode,
    chosen: set[Block] | None,
    func: Any,
    calm: set[Block],
) -> list[CtaStats]:
    unknown = sorted(set(launch.dims) - _KNOWN_TAGS)
    if unknown:
        raise EmulatorError("emulator.launch_tags", kernel=kernel.name, tags=tuple(unknown))
    dims = _dims(launch, "threadIdx")
    threads = dims[0] * dims[1] * dims[2]
    dynamic = launch.extent(_DYNAMIC_TAG) if _DYNAMIC_TAG in launch.dims else 0
    args = [
        GlobalView(name.removesuffix("_ptr"), a) if isinstance(a, Region) else a
        for name, a in zip(kernel.params, launch.args, strict=True)
    ]
    grid = Grid()
    mixed = watch(args, kernel.uses, grid)
    clusters = list(_clusters(kernel, launch, threads, chosen))
    count = sum(map(len, clusters))
    grid.barrier = GridBarrier(count * threads, cooperative=launch.cooperative)

    def started() -> Iterator[Resident]:
        for members in clusters:
            cluster = Cluster(
                size=len(members),
                threads=threads,
                proxies=kernel.proxies,
                timing=mode.timing,
                rng=mode.rng,
                grid=grid,
                mixed=mixed,
                blocks=[block for _, block in members],
            )
            order = mode.order
            if all(block in calm for _, block in members):
                order = LOCKSTEP
            entry = kernel.code.in_step if order == LOCKSTEP else kernel.code.interleaved
            programs: list[tuple[Cta, Array, Program]] = []
            for place, block in members:
                cta = Cta(
                    cluster,
                    kernel=kernel.name,
                    block=block,
                    place=place,
                    window_bytes=kernel.arena + dynamic,
                    granule=kernel.granule,
                    sites=kernel.sites,
                    hazards=hazards,
                    dependent=launch.dependent,
                    buffer_at=lambda offset: _buffer_at(kernel.shared, offset),
                )
                whole = order == LOCKSTEP and not kernel.by_warp
                for group in _thread_groups(cta, dims, whole=whole):
                    program = entry(group, args, block, dynamic, mode.variant)
                    programs.append((cta, group.tids, program))
            yield Resident(cluster, Scheduler(cluster, order, mode.rng, programs))

    total = math.prod(_dims(launch, "blockIdx"))
    others = Reason("hazard.ctas_run", ran=count, total=total) if count < total else None
    stats: dict[int, list[CtaStats]] = {}
    done = 0
    working: Cta | None = None  # one that has run a statement
    with np.errstate(all="ignore"):
        for cluster in run_together(
            started(),
            partial(room_for, func.attrs.get("target"), func, threads, kernel.arena + dynamic),
            others,
        ):
            done += len(cluster.ctas)
            working = cluster.ctas[-1] if len(cluster.log) > 1 else working
            stats[cluster.index] = [
                CtaStats(kernel.name, cta.block, dict(cta.counts)) for cta in cluster.ctas
            ]
            if mode.progress is not None:
                mode.progress(done, count)
    if launch.dependent and not grid.waited and working is not None:
        detail = Reason("hazard.preceding_unwaited")
        working.add_hazard("never-waited", len(working.log) - 1, detail=detail)
    return [one for index in sorted(stats) for one in stats[index]]


def _clusters(
    kernel: CompiledKernel, launch: Launch, threads: int, chosen: set[Block] | None
) -> Iterator[list[tuple[Block, Block]]]:
    """(place in the cluster, blockIdx) of the CTAs of each cluster to run, by rank."""
    grid, shape = _dims(launch, "blockIdx"), _dims(launch, "clusterCtaIdx")
    if any(g % c for g, c in zip(grid, shape, strict=True)):
        raise EmulatorError(
            "emulator.clusters_of_grid", kernel=kernel.name, grid=grid, cluster=shape
        )
    if shape != (1, 1, 1) and threads % WARP:
        raise EmulatorError("emulator.cluster_threads", threads=threads)
    for first in _positions(grid, shape) if chosen is None else _around(chosen, grid, shape):
        yield [
            (place, (first[0] + place[0], first[1] + place[1], first[2] + place[2]))
            for place in _positions(shape, (1, 1, 1))
        ]


def _positions(extent: Block, step: Block) -> Iterator[Block]:
    """Positions of a grid, x fastest."""
    ranges = (range(0, e, s) for e, s in zip(reversed(extent), reversed(step), strict=True))
    for z, y, x in itertools.product(*ranges):
        yield x, y, z


def _around(chosen: set[Block], grid: Block, shape: Block) -> list[Block]:
    """The first CTAs of the clusters that the chosen ones of the grid belong to, x fastest."""
    inside = [b for b in chosen if all(0 <= at < size for at, size in zip(b, grid, strict=True))]
    firsts = {tuple(at - at % size for at, size in zip(b, shape, strict=True)) for b in inside}
    return [_block(first) for first in sorted(firsts, key=lambda b: b[::-1])]


def _thread_groups(cta: Cta, dims: Block, *, whole: bool) -> list[ThreadGroup]:
    """Return the CTA as one thread group, or one for each warp."""
    size = cta.threads if whole else WARP
    return [
        ThreadGroup(cta, dims, first, min(size, cta.threads - first))
        for first in range(0, cta.threads, size)
    ]


def _block(block: Sequence[int]) -> Block:
    x, y, z = map(int, block)
    return x, y, z


def _dims(launch: Launch, axis: str) -> Block:
    return (launch.extent(f"{axis}.x"), launch.extent(f"{axis}.y"), launch.extent(f"{axis}.z"))


def _buffer_at(shared: Sequence[Memory], offset: int) -> str:
    """Name of the allocation that holds a byte of the shared window."""
    for memory in shared:
        if offset >= memory.base and (
            memory.nbytes is None or offset < memory.base + memory.nbytes
        ):
            return memory.name
    return "shared"
