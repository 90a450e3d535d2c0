"""Who computes a problem: this library at the chosen depth and at depth 1, and its peers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import PipelinerError, WorkloadError
from ..kernel.chosen_tile import chosen_tile
from ..kernel.compiled import Kernel
from ..measuring import Builder, BuiltCandidate, Inputs, MadeAtItsTurn, Recipe, Runner
from ..measuring.compiling import CandidateKernel
from ..measuring.lab import Make
from ..plan.request import Request
from ..records.candidate import Candidate
from ..records.functions import AnyWorkload
from ..records.record import OURS
from ..schedules import (
    Attention,
    AttentionTile,
    BackToBackGemm,
    DepthwiseTile,
    GatedGemm,
    Gemm,
    GroupedGemm,
    GroupTile,
    NaiveTile,
    PackedGemm,
    RowTile,
    ScaledGemm,
)
from ..schedules.tiles import Tile
from ..schedules.workloads import LOOPS, Spec
from .attention import SDPA_BACKENDS, sdpa
from .libraries import (
    INT4_DTYPE,
    compiled_by_torch,
    grouped_by_torch,
    packed_by_torch,
    triton,
    unpacked,
)
from .peers import NESTED, STAGES, blockwise, cublas, require_stock, stock_mma, stock_simt
from .results import (
    BEST,
    CUBLAS,
    CUDNN,
    EVERY_ALGORITHM,
    EVERY_ENGINE,
    OURS_PLAIN,
    SDPA,
    STOCK_PREFIX,
    TORCH,
    TORCH_GROUPED,
    TORCH_PACKED,
    TRITON,
)
from .vendor.convolutions import cudnn, every_engine
from .vendor.every import every_algorithm
from .vendor.products import as_gemm

PEERS: Final = {
    "cublas": CUBLAS,
    "cudnn": CUDNN,
    "tvm": STOCK_PREFIX,
    "torch": TORCH,
    "sdpa": SDPA,
    "triton": TRITON,
    "best": BEST,
}
"""What a person calls a peer, and how the names of its contenders start."""

_CALLS: Final[dict[str, Callable[[Any], Runner]]] = {
    CUBLAS: lambda spec: unpacked(spec) if isinstance(spec, PackedGemm) else cublas(spec),
    CUDNN: lambda spec: sdpa(spec, "cuDNN") if isinstance(spec, Attention) else cudnn(spec),
    TRITON: triton,
    TORCH: compiled_by_torch,
    TORCH_GROUPED: grouped_by_torch,
    TORCH_PACKED: packed_by_torch,
}

USUAL_PEERS: Final = ("cublas", "cudnn", "tvm", "torch", "sdpa")

BEST_PEERS: Final = ("cublas", "torch", "sdpa")
"""What stands beside every algorithm and engine: calls of torch, which may know another kernel."""

LIBRARY_SLACK: Final = 100.0
"""How much more than rounding allows a vendor's library may be off and still be a peer.

They may add up the parts of a long sum in the type of the output: with N parts that each round at
2**-11 or 2**-8 of their size, up to some 60 times what summing in float32 would give. The error is
printed; of our kernels, and of TVM's, nothing above 1 is taken.
"""


@dataclass(frozen=True)
class OwnKernel(Recipe):
    """This library's kernel; ``asked=None``: with the tile that the model chooses."""

    spec: Spec
    target: Any
    request: Request
    asked: Tile | None = None

    @functools.cached_property
    def tile(self) -> Tile:
        """The tile, chosen where it is first asked for: in the process that compiles."""
        return self.asked or chosen_tile(self.spec, self.target, self.request).tile

    def of(self) -> Candidate:
        return Candidate(self.tile, self.request)

    def kernel(self) -> tuple[Kernel, str]:
        """Scheduled, pipelined, compiled."""
        kernel, _ = CandidateKernel(self.spec, self.of(), self.target).kernel()
        return kernel, f"{_tile_title(self.tile)}, {describe(kernel)}"


@dataclass(frozen=True)
class StockKernel(Recipe):
    """TVM's stock pipeline with ``stages`` slots on a product in layout NN."""

    gemm: Gemm
    target: Any
    stages: int

    def kernel(self) -> tuple[Kernel, str]:
        """Scheduled as TVM does, compiled by TVM's own pipeline."""
        make = stock_mma if self.gemm.dtype == "float16" else stock_simt
        kernel = make(self.gemm, self.target, self.stages)
        return kernel, describe(kernel)


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute a problem.

    ``make``: a recipe, compiled ahead, or what returns the call and in a few words what it is.
    ``out``, ``arrange`` and ``slack``: as of a ``BuiltCandidate``. ``candidate``: of what is ours
    and no recipe.
    """

    name: str
    make: Recipe | Callable[[], tuple[Runner, str]]
    out: str
    arrange: Callable[[Inputs], Inputs] = tuple
    slack: float = 1.0
    candidate: Candidate | None = None

    def made_by(self, builder: Builder, spec: Spec) -> Make:
        """What compiles its kernel of ``spec``, or a kernel that is made at its turn."""
        if isinstance(self.make, Recipe):
            return functools.partial(self._built, builder, self.make, spec)
        return MadeAtItsTurn(
            spec,
            candidate=self.candidate,
            name=self.name,
            out=self.out,
            arrange=self.arrange,
            slack=self.slack,
            make=self.make,
        )

    def _built(self, builder: Builder, recipe: Recipe, spec: Spec) -> BuiltCandidate:
        built = builder.build(recipe)
        candidate = built.candidate
        if built.failure:
            with contextlib.suppress(PipelinerError):  # there may be no tile either
                candidate = recipe.of()
        return dataclasses.replace(
            built,
            candidate=candidate,
            spec=spec,
            out=self.out,
            arrange=self.arrange,
            slack=self.slack,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload and who computes it; ``label``: its name, default the workload's own.

    ``beside``: it is timed in the rounds of the problem before it, for a ratio of the two. Where
    power limits both, what ran before makes 9 % of it: silu(A B1) * (A B2) of 8192 x 11008 x 4096
    had 0.914 and 0.948 of the rate of one product in rounds of its own, behind which SM clocks were
    1515 and 1965 MHz, 0.907 in the same rounds always behind it, and 0.994 in the same rounds
    shuffled (H200, 2026-11-30).
    """

    spec: Spec
    contenders: tuple[Contender, ...]
    label: str = ""
    beside: bool = False

    @property
    def name(self) -> str:
        """What results call it."""
        return self.label or self.spec.name


def contenders(
    spec: Spec,
    target: Any,
    request: Request,
    tile: Tile | None = None,
    *,
    plain: bool = True,
    peers: Sequence[str] = USUAL_PEERS,
    label: str = "",
    hot: bool = False,
    beside: bool = False,
) -> Problem:
    """Ours as requested, ours at depth 1 (``plain``), and those of ``peers`` that fit.

    cuBLAS has products, block-scaled ones too, and cuDNN convolutions; TVM's stock pipeline is
    tried at each depth. What is more than one call of a library is given to torch.compile.
    Attention is that of PyTorch, by each backend. ``best``: each library of the vendor's that has
    the workload, by all that it offers; ``hot``: also by what is fastest back to back.
    WorkloadError: a peer that nobody knows.
    """
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        raise WorkloadError("peer.unknown", choices=tuple(PEERS), value=unknown[0])
    ours = [Contender(OURS, OwnKernel(spec, target, request, tile), spec.out)]
    if plain:
        asked = Request(1, "auto", request.instruction, "auto", request.warps, request.thread_tile)
        ours.append(Contender(OURS_PLAIN, OwnKernel(spec, target, asked, tile), spec.out))
    theirs = _peers(spec, target, peers, request.accumulate != "promoted", hot)
    return Problem(spec, (*ours, *theirs), label, beside)


def _peers(
    spec: Spec, target: Any, peers: Sequence[str], fast: bool, hot: bool
) -> Iterator[Contender]:
    """Those of ``peers`` that have the workload; ``fast``: cuBLAS may add in fewer bits."""
    best = "best" in peers
    if best:
        yield from _every(spec, hot)
        peers = (*peers, *BEST_PEERS)
    if isinstance(spec, GatedGemm):
        if "torch" in peers:
            yield _library(TORCH, compiled_by_torch, spec)
        return
    if isinstance(spec, Gemm) and "cublas" in peers:
        yield _library(CUBLAS, functools.partial(cublas, fast=fast), spec)
    if isinstance(spec, LOOPS):
        yield from _beside_loops(spec, peers)
        return
    if "cudnn" in peers and not best and not isinstance(spec, Gemm):
        yield _library(CUDNN, cudnn, spec)
    if "tvm" in peers and isinstance(spec, Gemm):
        yield from _stock(spec, target)
    if "triton" in peers:
        yield _library(TRITON, triton, spec)


def _beside_loops(spec: Spec, peers: Sequence[str]) -> Iterator[Contender]:
    """Of loops with more than one product, or with other arithmetic than one."""
    if isinstance(spec, GroupedGemm) and "torch" in peers:
        yield _library(TORCH_GROUPED, grouped_by_torch, spec)
    if isinstance(spec, PackedGemm):
        if "cublas" in peers:
            yield _library(CUBLAS, unpacked, spec)
        if "torch" in peers and spec.dtype == INT4_DTYPE:
            yield _library(TORCH_PACKED, packed_by_torch, spec)
    if isinstance(spec, BackToBackGemm) and "torch" in peers:
        yield _library(TORCH, compiled_by_torch, spec)
    if isinstance(spec, ScaledGemm) and "cublas" in peers:
        yield _library(CUBLAS, blockwise, spec)
    if isinstance(spec, Attention) and "sdpa" in peers:
        yield from _attention(spec)


def describe(kernel: Kernel) -> str:
    """Depth and registers of a kernel, in a few words."""
    used = kernel.resources
    loops = kernel.plan.loops if kernel.pipeline == "pipeliner" else ()
    depths = {ring.depth for loop in loops for ring in loop.rings if ring.scope != "local"}
    depth = f"depth {'/'.join(map(str, sorted(depths)))}, " if depths else ""
    wgmma = f", wgmma: {used.wgmma_warning}" if used.wgmma_warning else ""
    return (
        f"{depth}{used.registers} registers, {used.spills} B spilled, {used.shared} B shared{wgmma}"
    )


def _tile_title(tile: Tile) -> str:
    if isinstance(tile, DepthwiseTile):
        rows = f"{tile.rows} x " if tile.rows else ""
        return f"{rows}{tile.pixels} pixels of {tile.vector} channels a thread"
    if isinstance(tile, GroupTile):
        return f"{tile.rows} x {tile.pixels} pixels of {tile.channels} channels a CTA"
    if isinstance(tile, NaiveTile):
        return f"{tile.m}x{tile.n}"
    parts = f" in {tile.splits} parts" if tile.splits > 1 else ""
    if isinstance(tile, RowTile):
        return f"{tile.m}x{tile.n}{parts}"
    if isinstance(tile, AttentionTile):
        walked = f", {tile.persistent} CTAs" if tile.persistent else ""
        return f"{tile.m}x{tile.n}{parts}{', heads grouped' if tile.grouped else ''}{walked}"
    return f"{tile.m}x{tile.n}x{tile.k}{parts}"


def library(name: str, spec: AnyWorkload) -> tuple[Runner, str]:
    """A library's kernel, by the name that results have; what it does not have, it refuses."""
    return _CALLS[name](spec), ""


def _library(name: str, make: Callable[[Any], Runner], spec: Spec) -> Contender:
    return Contender(name, lambda: (make(spec), ""), spec.out, slack=LIBRARY_SLACK)


def _every(spec: Spec, hot: bool) -> Iterator[Contender]:
    """Every algorithm of cuBLASLt, every engine of cuDNN, where they have the workload."""
    if isinstance(spec, (GatedGemm, *LOOPS)):
        return
    if isinstance(spec, Gemm) or as_gemm(spec) is not None:
        yield _library(EVERY_ALGORITHM, functools.partial(every_algorithm, hot=hot), spec)
    if not isinstance(spec, Gemm):
        yield _library(EVERY_ENGINE, functools.partial(every_engine, hot=hot), spec)


def _attention(spec: Attention) -> Iterator[Contender]:
    for backend in SDPA_BACKENDS:
        yield _library(f"{SDPA}, {backend}", functools.partial(sdpa, backend=backend), spec)


def _stock(gemm: Gemm, target: Any) -> Iterator[Contender]:
    """TVM's schedules are for layout NN: they are given operands that lie that way."""
    straight = dataclasses.replace(gemm, layout="NN")
    try:
        require_stock(straight)
    except WorkloadError as err:
        reason = err

        def refuse() -> tuple[Runner, str]:
            raise reason

        yield Contender(STOCK_PREFIX, refuse, "float32")
        return

    def arrange(inputs: Inputs) -> Inputs:
        return tuple(
            tensor if letter == "N" else tensor.transpose(-1, -2).contiguous()
            for letter, tensor in zip(gemm.layout, inputs)
        )

    for stages in (*STAGES, *([NESTED] if gemm.dtype == "float16" else [])):
        name = f"{STOCK_PREFIX}, {stages or 'two levels, 4'} slots"
        yield Contender(name, StockKernel(straight, target, stages), "float32", arrange)
