"""``emulate``: run a lowered module on numpy arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, tirx

from ..errors import EmulatorError
from ..plan import PLAN_ATTR, KernelPlan, SmemPlan
from .blame import Blame, Lines
from .buffers import Memory
from .compiler import CompiledKernel, compile_kernel
from .copies import TIMINGS
from .host import Launch, bind_arguments, run_host
from .lower import is_device_function
from .machine import Cta, HazardLog, Strand
from .memory import GlobalView
from .report import CtaStats, Emulation

Arguments = Sequence[Any] | Mapping[str, Any]
Block = tuple[int, int, int]
_DYNAMIC_TAG = "tirx.use_dyn_shared_memory"
_KNOWN_TAGS = {
    *(f"{axis}.{d}" for axis in ("blockIdx", "threadIdx") for d in "xyz"), _DYNAMIC_TAG,
}  # fmt: skip


def emulate(
    mod: Any,
    args: Arguments,
    *,
    entry: str | None = None,
    timing: str = "late",
    seed: int = 0,
    blocks: Iterable[Block] | None = None,
    lines: Lines | None = None,
) -> Emulation:
    """Run one call of a lowered function, CTA by CTA, and judge it.

    Parameters
    ----------
    mod
        IRModule from ``lower_for_emulation`` (a host function and its device kernels), or an
        object that has one as ``lowered``.
    args
        Arguments of the host PrimFunc, in its order or by parameter name.  Arrays have the dtype
        of their buffer (bfloat16: ``ml_dtypes.bfloat16``, or uint16 with its bits).
    entry
        Name of the host function, if the module has several.
    timing
        When an asynchronous copy lands: ``"late"``, as late as the waits allow; ``"early"``, at
        issue; ``"random"``, in between.
    seed
        Of the random timing: the same seed gives the same run.
    blocks
        blockIdx (x, y, z) of the CTAs to run; all by default.
    lines
        The CUDA of a statement, asked for the statements of hazards alone: device function and
        number of the statement in it, as ``CudaLines.find`` takes them.

    Returns
    -------
    Outputs, hazards and counts.  Arguments are not modified.

    Raises
    ------
    EmulatorError
        For an operation that the emulator does not know, or arguments that do not fit.
    """
    if timing not in TIMINGS:
        raise EmulatorError(f"expected timing to be one of {TIMINGS}, got {timing!r}")
    if isinstance(mod, tirx.PrimFunc):
        raise EmulatorError("expected a lowered IRModule: use lower_for_emulation(func, target)")
    host, kernels = _split(getattr(mod, "lowered", mod), entry)
    env = bind_arguments(host, args)
    launches = run_host(host, kernels, env)
    if not launches:
        raise EmulatorError("cannot emulate: the host function launches no kernel")
    compiled: dict[str, CompiledKernel] = {}
    hazards, stats = HazardLog(), []
    rng = np.random.default_rng(seed)
    chosen = None if blocks is None else [tuple(map(int, b)) for b in blocks]
    for launch in launches:
        if launch.kernel not in compiled:
            compiled[launch.kernel] = compile_kernel(kernels[launch.kernel])
        stats += _run_kernel(compiled[launch.kernel], launch, hazards, timing, rng, chosen)
    outputs = {p.name: env[p] for p in host.params if isinstance(env[p], np.ndarray)}
    smem = _smem(host)
    blames = {name: Blame(kernel, smem, lines) for name, kernel in compiled.items()}
    explained = tuple(blames[h.kernel].explain(h) for h in hazards.found.values())
    return Emulation(outputs, explained, tuple(stats))


def _smem(host: Any) -> SmemPlan:
    """The arena as it was planned, where it was."""
    text = (host.attrs or {}).get(PLAN_ATTR)
    return SmemPlan() if text is None else KernelPlan.from_json(str(text)).smem


def _split(mod: Any, entry: str | None) -> tuple[Any, dict[str, Any]]:
    """The host function and the kernels by name."""
    if not isinstance(mod, ir.IRModule):
        raise EmulatorError(f"expected an IRModule, got {type(mod).__name__}")
    functions = {gv.name_hint: f for gv, f in mod.functions.items()}
    kernels = {name: f for name, f in functions.items() if is_device_function(f)}
    hosts = {name: f for name, f in functions.items() if name not in kernels}
    if entry is None and len(hosts) == 1:
        entry = next(iter(hosts))
    if entry not in hosts:
        raise EmulatorError(f"expected entry to be one of {sorted(hosts)}, got {entry!r}")
    return hosts[entry], kernels


def _run_kernel(
    kernel: CompiledKernel,
    launch: Launch,
    hazards: HazardLog,
    timing: str,
    rng: np.random.Generator,
    chosen: Sequence[tuple[int, ...]] | None,
) -> list[CtaStats]:
    unknown = sorted(set(launch.dims) - _KNOWN_TAGS)
    if unknown:
        raise EmulatorError(f"cannot emulate {kernel.name!r}: unknown launch dimensions {unknown}")
    grid = _dims(launch, "blockIdx")
    threads = _dims(launch, "threadIdx")
    dynamic = launch.extent(_DYNAMIC_TAG) if _DYNAMIC_TAG in launch.dims else 0
    args = [GlobalView(str(i), a) if isinstance(a, np.ndarray) else a
            for i, a in enumerate(launch.args)]  # fmt: skip
    for value, name in zip(args, kernel.params, strict=True):
        if isinstance(value, GlobalView):
            value.name = name.removesuffix("_ptr")
    order = itertools.product(range(grid[2]), range(grid[1]), range(grid[0]))
    stats = []
    for z, y, x in order:
        block = (x, y, z)
        if chosen is not None and block not in chosen:
            continue
        cta = Cta(
            kernel=kernel.name, block=block, threads=threads[0] * threads[1] * threads[2],
            window_bytes=kernel.arena + dynamic, granule=kernel.granule, sites=kernel.sites,
            hazards=hazards, buffer_at=lambda offset: _buffer_at(kernel.shared, offset),
            timing=timing, rng=rng,
        )  # fmt: skip
        with np.errstate(all="ignore"):
            cta.run(kernel.entry(Strand(cta, threads), args, block, dynamic))
        stats.append(CtaStats(kernel.name, block, dict(cta.counts)))
    return stats


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
