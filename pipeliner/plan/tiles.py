"""How tiles move and what computes on them: copies, matmuls, stores, elementwise kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..diagnostics import Why
from ..values.elements import ELEMENT_TYPES
from ..values.facts import PIXEL_VIEWS, TmaView

Mechanism = Literal["tma", "cp_async", "register", "direct"]
StoreMechanism = Literal["direct", "tma", "coalesced", "cluster"]
OperandSource = Literal["shared", "registers", "computed"]
Accumulate = Literal["fast", "promoted"]
Reduction = Literal["workspace", "atomic"]
Cache = Literal["L1", "L2"]
Eviction = Literal["evict_normal", "evict_first"]


ADDABLE: Final = tuple(one.name for one in ELEMENT_TYPES if one.added_by_tma)
"""What the tensor memory accelerator adds to in memory, of the types that accumulators are stored
as (PTX ISA, cp.reduce.async.bulk.tensor and the table of types of cp.reduce.async.bulk)."""


SCALAR: Final = "scalar"
"""The instruction of a matmul whose tile no register tile holds: a nest like any other."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How one tile copy from global memory moves: mechanism, bytes moved at once, layout.

    ``chunks``: ops that it is split into, ``X.0``, ``X.1``, ..., for the schedule to spread over a
    step. ``cache``: the nearest cache that a cp.async of 16 bytes leaves what it reads in; narrower
    ones always go through L1. ``multicast``: CTAs of a cluster of which each copies a part for all
    of them. ``ranks``: bits in which their ranks differ, if they are not all of the cluster.
    ``eviction``: priority in L2 of what it read. ``view``: how the tensor memory accelerator sees
    the source: the ``tensor`` itself, pixels ``flattened`` into a matrix, a ``window`` of an image
    in tiled mode, or ``im2col`` mode.
    """

    op: str
    src: str
    dst: str
    tile: tuple[int, ...]
    mechanism: Mechanism
    vector_bytes: int
    layout: str
    reason: Why = ""
    chunks: int = 1
    cache: Cache = "L2"
    multicast: int = 1
    eviction: Eviction = "evict_normal"
    view: TmaView = "tensor"
    ranks: int = 0

    @property
    def way(self) -> str:
        """The mechanism, and the accelerator's mode where that is not the usual one."""
        shown = self.view in PIXEL_VIEWS
        return f"{self.mechanism} ({self.view})" if shown else self.mechanism


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """How one unbound matmul tile maps to threads.

    ``instruction``: ``scalar``, ``simt`` or the PTX shape and types, as ``mma.m16n8k16.f16.f32`` or
    ``wgmma.m64n256k16.f16.f32``. ``warps``: warps along (M, N); for wgmma four along M are a
    warpgroup. ``warp_tile``: rows and columns of C that one warp owns. ``thread_tile``: rows and
    columns a SIMT thread owns ((0, 0) for others). ``k_step``: K depth of one fragment step;
    ``steps``: how many make up the tile. ``in_flight``: steps of the loop whose wgmma groups may
    still be in flight when the next one's start. ``swap_ab``: the instruction computes the
    transposed tile, so that its M (and the four warps of a warpgroup) runs along N. ``operand``:
    where wgmma reads its first operand (A; with ``swap_ab`` B), ``computed``: from the registers
    that it is computed in, by mma.sync too; the second always lies in shared memory.
    ``transposed``: K lies outermost there in the first operand, which is transposed on the way into
    registers. ``promoted``: products that tensor cores add up by themselves before threads add that
    sum to the accumulator; 0: all.
    """

    op: str
    m: int
    n: int
    k: int
    dtype: str
    accumulator: str
    instruction: str
    warps: tuple[int, int]
    warp_tile: tuple[int, int]
    thread_tile: tuple[int, int]
    k_step: int
    steps: int
    reason: Why = ""
    in_flight: int = 0
    swap_ab: bool = False
    operand: OperandSource = "shared"
    promoted: int = 0
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class StorePlan:
    """How the tile of an accumulator reaches global memory.

    ``direct``: from registers. ``tma``: by way of shared memory, from where boxes are written.
    ``coalesced``: likewise, from where neighbouring threads write neighbouring elements of a row.
    ``cluster``: to the CTAs of a cluster, one for each of ``parts`` of K, of which each puts the
    parts of ``box`` together.
    ``box``: rows and columns of one, in layout ``layout``; ``slots``: boxes of a warpgroup that
    shared memory holds at once, ``bytes`` for all warpgroups. ``partial_sums``: how many of them
    CTAs add to each output, in the order in which they come (split-K); 0: it is stored.
    """

    op: str
    acc: str
    dst: str
    mechanism: StoreMechanism
    box: tuple[int, int] = (0, 0)
    slots: int = 0
    bytes: int = 0
    layout: str = ""
    reason: Why = ""
    partial_sums: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class ElementwisePlan:
    """How an elementwise kernel's outputs are shared out over threads.

    ``ctas``: its grid as text, an integer or ``symbolic``. ``elements``: outputs of a CTA;
    ``vector``: of a thread at once.
    """

    op: str
    ctas: str
    elements: int
    threads: int
    vector: int
    reason: Why = ""
