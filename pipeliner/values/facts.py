"""What ``recognise`` found in one kernel, as plain values without IR.

The cost model chooses from these; the passes that rewrite keep the IR beside them. Extents that are
not compile-time constants are None. Bytes and elements are per CTA and per iteration of the loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from ..diagnostics import Why

TmaView: TypeAlias = Literal["tensor", "flattened", "window", "im2col"]
"""How the tensor memory accelerator sees the source of a copy."""

PIXEL_VIEWS: Final = ("window", "im2col")
"""Of those, the ones of pixels that a convolution's outputs see, a box of the image or not."""

ADDS: Final = "pipeliner.adds"
"""Annotation of a block that adds to an element as other CTAs do, each in one indivisible
operation: how many there are."""

DISTINCT: Final = "pipeliner.distinct"
"""Attribute of a block no two of whose iterations store to one element: a user's promise."""


@dataclass(frozen=True, slots=True)
class CopyInfo:
    """A statement that moves a box of ``src`` into ``dst`` and does nothing else.

    ``shape``: extents of the box, as stored in ``dst``. ``src_dims``: for each dimension of the
    source, the box dimension that follows it, or None for a fixed coordinate. ``src_strides``:
    elements between neighbours along each source dimension (None: symbolic). ``aligned``: the
    largest power of two, in elements, that provably divides the source offset of each row start of
    the box when moving along the source's contiguous dimension (1: nothing known). ``masked``:
    reads outside the source are replaced by zero. ``bound``: the user distributed it over threads.
    ``no_cp_async``, ``no_register``: why that mechanism cannot make it as it is distributed, or
    empty. ``no_producer``: why no producer warp can make it, or empty. ``no_tma``: why its box is
    none for the tensor memory accelerator, beyond what the other fields tell, or empty. ``view``:
    what its rows are to the accelerator: of the tensor as ``src_dims`` says, ``flattened`` with all
    outer dimensions taken as one, or the pixels that a convolution's outputs see, as a tiled-mode
    ``window`` or by ``im2col``. ``note``: what the schedule says of it. ``multicast``: sizes of
    clusters in which CTAs copy the same box in the same step, each with the bits of the ranks in
    which these differ: all of a cluster, or those of a row or column of it. ``src_bytes``: of
    what is read of ``src`` by all CTAs in all iterations, once; 0 where that is not known.
    ``around``: of a copy before the loops, the tile loop in each iteration of which it is made
    anew; empty: made once.
    """

    op: str
    src: str
    dst: str
    dst_scope: str
    dtype: str
    shape: tuple[int, ...]
    src_dims: tuple[int | None, ...]
    src_strides: tuple[int | None, ...]
    aligned: int
    masked: bool
    bound: bool
    no_cp_async: Why = ""
    no_register: Why = ""
    no_producer: Why = ""
    no_tma: Why = ""
    view: TmaView = "tensor"
    note: Why = ""
    multicast: tuple[tuple[int, int], ...] = ()
    src_bytes: int = 0
    around: str = ""

    @property
    def elements(self) -> int:
        """Elements that one iteration moves."""
        return math.prod(self.shape)

    def shared_in(self, cluster: object) -> int:
        """Bits in which ranks of CTAs of a cluster differ that copy the same box; 0: none do."""
        return dict(self.multicast).get(cluster, 0) if isinstance(cluster, int) else 0


@dataclass(frozen=True, slots=True)
class MatmulInfo:
    """An unbound tile ``acc[m, n] += a[m, k] * b[k, n]``.

    ``a_k_major``: the contiguous dimension of operand A's tile is K (else M); ``b_k_major``: that
    of B's tile is K (else N). ``k_last``: elements of K that are not padding in the last iteration
    of the loop, all of the tile's (or 0) where that is not known. ``instruction``, ``warps``,
    ``thread_tile``: hints annotated by the schedule (``auto`` and None: free). ``a`` and ``b`` name
    the tiles' buffers; ``stationary``: those of them that hold the tiles of other iterations too.
    ``computed``: those that are computed in registers. ``by_rows``: something is computed of whole
    rows of the accumulator, or from one value for each row.
    """

    op: str
    acc: str
    a: str
    b: str
    m: int
    n: int
    k: int
    a_dtype: str
    b_dtype: str
    acc_dtype: str
    a_k_major: bool
    b_k_major: bool
    instruction: str = "auto"
    warps: tuple[int, int] | None = None
    thread_tile: tuple[int, int] | None = None
    stationary: tuple[str, ...] = ()
    k_last: int = 0
    computed: tuple[str, ...] = ()
    by_rows: bool = False

    def transposed(self) -> MatmulInfo:
        """The same tile as ``acc^T[n, m] += b^T[n, k] * a^T[k, m]``."""
        return replace(
            self,
            a=self.b,
            b=self.a,
            m=self.n,
            n=self.m,
            a_dtype=self.b_dtype,
            b_dtype=self.a_dtype,
            a_k_major=self.b_k_major,
            b_k_major=self.a_k_major,
            warps=None if self.warps is None else self.warps[::-1],
            thread_tile=None if self.thread_tile is None else self.thread_tile[::-1],
        )


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A nest that stores, for each element of accumulator tile ``acc``, one of ``dst``.

    ``dtype``: of ``dst``; ``dst_strides``: elements between neighbours along its dimensions (None:
    symbolic). ``by_rows``: neighbours along a row of the tile are neighbours in ``dst``.
    ``no_tma``: why the tile is no box of ``dst``, or empty. ``viewed``: it is one of dimensions put
    together. ``partial_sums``: as how many parts of each sum it is added to what is there; 0: it is
    stored. ``parts``: how many CTAs along blockIdx.z have a part of each element, which the next
    kernel puts together, an elementwise one; 0: none do, or no cluster can. ``no_parts``: why, of a
    function that was read; empty of a closed form. ``flops`` and ``transcendentals``: operations,
    and functions of the special function units, that compute an element of ``dst`` from sums.
    """

    op: str
    acc: str
    dst: str
    dtype: str
    dst_strides: tuple[int | None, ...]
    by_rows: bool = True
    no_tma: Why = ""
    viewed: bool = False
    partial_sums: int = 0
    parts: int = 0
    no_parts: Why = field(default="", compare=False)
    flops: int = 0
    transcendentals: int = 0


@dataclass(frozen=True, slots=True)
class StatementInfo:
    """Any other statement of the body: what it costs.

    ``bound``: it uses thread variables. ``loads``: it reads global memory that the loop leaves
    alone, so that a later iteration's may be read ahead. ``reads``: the shared memory that it
    reads.
    """

    op: str
    kind: str
    global_bytes: int = 0
    shared_bytes: int = 0
    flops: int = 0
    transcendentals: int = 0
    tensor_flops: int = 0
    bound: bool = True
    loads: bool = True
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ElementwiseInfo:
    """An elementwise kernel: one unbound nest over outputs, each computed from its own operands.

    ``ctas``: its grid (None: symbolic). Of one CTA are the ``elements`` that it stores and the
    ``global_bytes`` that it moves; ``vector``: elements that a thread may make at once. ``note``:
    what the schedule says of it.
    """

    op: str
    ctas: int | None
    elements: int
    vector: int
    global_bytes: int
    note: Why = ""


@dataclass(frozen=True, slots=True)
class LoopInfo:
    """A candidate loop: its ops in program order.

    ``trip``: iterations when constant, ``mean_trip``: as a mean over the CTAs, where another
    number follows from the index of each, ``most_trip``: of the one that has most. ``rings``:
    buffers of the body that may be versioned, with scope and bytes of one version. ``depth``: what
    the schedule's annotation asks for.
    ``outer``: how often the loop is entered per CTA at most (persistent tiles), when known.
    ``by_tile``: all that a CTA does is one loop over tiles, each of which runs this loop once.
    ``overwritten``: why its copies may not read the last tile once more, empty where they may.
    """

    name: str
    trip: int | None
    trip_text: str
    ops: tuple[CopyInfo | MatmulInfo | StatementInfo, ...]
    rings: tuple[tuple[str, str, int], ...]
    depth: int | None = None
    annotated: bool = False
    outer: int | None = 1
    by_tile: bool = False
    overwritten: Why = ""
    mean_trip: float | None = None
    most_trip: int | None = None


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One function. ``threads``: of a CTA, 0 when nothing is bound to threadIdx (a tile function).

    ``grid``: of the kernel that holds the loops. ``elementwise``: kernels of a tile function beside
    it. ``before``: tile copies that each CTA makes once, before its loops. ``kernels``: all that it
    launches. ``ends_elementwise``: of several the last is such. ``independent``: of a tile function
    without copies and matmuls how many threads may make a nest together. ``alone``: why one makes
    all of a kernel. ``cooperative``: all its CTAs are asked for at once, as they wait for each
    other.
    """

    name: str
    grid: tuple[int | None, ...]
    threads: int
    loops: tuple[LoopInfo, ...]
    declined: tuple[tuple[str, Why], ...] = ()
    registers_hint: int = 0
    accumulators: tuple[tuple[str, str, int], ...] = ()
    elementwise: tuple[ElementwiseInfo, ...] = ()
    stores: tuple[StoreInfo, ...] = ()
    before: tuple[CopyInfo, ...] = ()
    kernels: int = 1
    ends_elementwise: bool = False
    independent: int = 0
    alone: Why = ""
    cooperative: bool = False

    @property
    def unmapped(self) -> bool:
        """Whether it neither binds threads nor holds anything that is mapped to some."""
        ops = [op for loop in self.loops for op in loop.ops]
        tiles = any(isinstance(op, MatmulInfo) for op in ops)
        tiles |= any(isinstance(op, CopyInfo) and not op.bound for op in ops)
        return not self.threads and not tiles and self.independent <= 1
