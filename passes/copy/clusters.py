"""Find clusters: neighbouring CTAs that each copy a chunk of what several need (multicast).

    A_shared = tile of A that depends on r      each rank copies its own
    B_shared = tile of B that does not          each rank copies 1 / size of it, into every CTA

The CTAs ``q * size + r`` of a grid, ``r < size``, form a cluster. A tile that is the same for every
rank ``r`` is cut along its rows. A tile may be the same for some ranks alone: in a cluster of two
rows and two columns of tiles of C, ranks that differ in one bit share A, in the other B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range
from tvm.tirx import ForKind

from ...diagnostics import Reason
from ...errors import LoweringError
from ...mechanisms.tma import are_chunks
from ..ir.indexing import holding
from ..ir.kernels import thread_tag
from ..ir.linear import affine
from ..ir.nodes import (
    Expr,
    Stmt,
    Var,
    collect,
    const_int,
    i32,
    substitute,
    thread_loop,
    variables,
    walk,
)
from ..ir.patterns import Copy

TAG: Final = "clusterCtaIdx.x"
Sharing: TypeAlias = "tuple[tuple[int, int], ...]"
"""Sizes of clusters, each with the bits of the ranks in which CTAs that share a tile differ."""

_MANY: Final = 1 << 30

_PAIRS: Final = (tirx.And, tirx.Or)
_COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_CONDITIONS: Final = (*_PAIRS, *_COMPARISONS, tirx.Not)


@dataclass(frozen=True)
class Cluster:
    """A grid of clusters, each of ``size`` CTAs along ``grid``, the variable of blockIdx.x.

    ``clusters``: how many. ``rank``: of a CTA in its cluster. ``ranges``: of the serial loops of
    the kernel.
    """

    size: int
    clusters: int
    grid: Var
    rank: Var
    ranges: Mapping[Var, Range]

    def shares(self, value: Expr, bits: int) -> bool:
        """Whether ``value`` is the same for CTAs whose ranks differ in ``bits`` alone."""
        ranks = (rank for rank in range(self.size) if rank & bits)
        return all(self._is_same(value, rank, rank & ~bits) for rank in ranks)

    def agrees(self, value: Expr) -> bool:
        """Whether ``value``, monotone in blockIdx.x, is the same for all CTAs of a cluster."""
        return self._is_same(value, self.size - 1, 0)

    def _is_same(self, value: Expr, rank: int, as_: int) -> bool:
        """Whether ``value`` is the same for ``rank`` as for the rank ``as_`` of a cluster."""
        if variables(value) <= {self.grid}:
            first = np.arange(self.clusters) * self.size
            known, other = (holding(value, {self.grid: first + at}) for at in (as_, rank))
            if known is not None and other is not None:
                return bool(np.all(known == other))
            if isinstance(value, _CONDITIONS):
                return False
        analyzer, cluster = sym.Analyzer(), Var("cluster", "int32")
        analyzer.bind(cluster, Range(0, self.clusters))
        for var, extent in self.ranges.items():
            analyzer.bind(var, extent)
        whole: list[tuple[Expr, Var]] = []
        numbered = self._numbered(value, whole)
        for _, number in whole:
            analyzer.bind(number, Range(0, _MANY))
        first, other = (
            substitute(
                numbered,
                {
                    self.grid: cluster * self.size + r,
                    **{number: number * self.size + r for _, number in whole},
                },
            )
            for r in (as_, rank)
        )
        gap = const_int(analyzer.simplify(other - first))
        if gap is not None:
            return gap == 0
        same = tirx.EQ(first, other)
        return bool(analyzer.can_prove(same, sym.ProofStrength.SYMBOLIC_BOUND))

    def _numbered(self, value: Expr, whole: list[tuple[Expr, Var]]) -> Expr:
        """Return ``value`` with a variable in place of each sum such as ``i * 132 + blockIdx.x``.

        ``whole`` receives the sums and their variables. Without the rank such a sum is a multiple
        of ``size``. The prover divides a variable of that kind and takes its remainders, but not
        those of the sum.
        """
        loops = list(self.ranges)

        def visit(node: Any) -> Any:
            known = affine(node, [self.grid, *loops])
            if (
                known is None
                or known.coefficients.get(self.grid) != 1
                or const_int(known.base) != 0
            ):
                return node
            others = [c for var, c in known.coefficients.items() if not var.same_as(self.grid)]
            if any(c < 0 or c % self.size for c in others):
                return node
            for seen, number in whole:
                if tvm_ffi.structural_equal(seen, node):
                    return number
            whole.append((node, Var("number", "int32")))
            return whole[-1][1]

        return tvm_ffi.structural_map(value, [(tirx.Add, visit)], order="pre")


def find_cluster(body: Stmt, size: int) -> Cluster | None:
    """Return the clusters of ``size`` CTAs of a kernel; None for 1.

    Raises LoweringError if the grid along x is no multiple of ``size``.
    """
    if size == 1:
        return None
    loops = collect(body, tirx.For)
    found = [loop for loop in loops if thread_tag(loop) == "blockIdx.x"]
    extent = const_int(found[0].extent) if found else None
    if extent is None or extent % size:
        why = Reason("cluster.dynamic_grid")
        if extent is not None:
            why = Reason("cluster.grid", extent=extent)
        raise LoweringError("cluster.refused", ctas=size, why=why)
    bound = sym.Analyzer()
    bound.bind(found[0].loop_var, Range(0, extent))
    ranges = {}
    for loop in loops:
        most = const_int(loop.extent) or int(bound.const_int_bound(loop.extent).max_value)
        if thread_tag(loop) is None and 0 < most < _MANY:
            ranges[loop.loop_var] = Range(0, most)
    rank = Var("clusterCtaIdx_x", "int32")
    return Cluster(size, extent // size, found[0].loop_var, rank, ranges)


def in_clusters(body: Stmt, cluster: Cluster) -> Stmt:
    """Return ``body``, the blockIdx.x loop and all in it, launched in clusters."""
    return thread_loop(cluster.rank, cluster.size, TAG, body)


@dataclass(frozen=True)
class Sharers:
    """CTAs of ``cluster`` that share a tile: those whose ranks differ in ``bits`` alone."""

    cluster: Cluster
    bits: int

    @property
    def size(self) -> int:
        """How many they are."""
        return 1 << self.bits.bit_count()

    @property
    def rank(self) -> Expr:
        """Of a CTA among them: its bits, put together."""
        rank = self.cluster.rank
        if self.bits == self.cluster.size - 1:
            return rank
        places = [at for at in range(self.bits.bit_length()) if self.bits >> at & 1]
        bits = (
            tirx.bitwise_and(tirx.shift_right(rank, i32(at)), i32(1)) * (1 << to)
            for to, at in enumerate(places)
        )
        return sum(bits, i32(0))

    @property
    def mask(self) -> Expr:
        """The multicast mask: a bit for each of them."""
        ranks = [rank for rank in range(self.cluster.size) if not rank & ~self.bits]
        first = sum(1 << rank for rank in ranks)
        if self.bits == self.cluster.size - 1:
            return tirx.const(first, "uint16")
        others = tirx.bitwise_and(self.cluster.rank, i32(self.cluster.size - 1 - self.bits))
        return tirx.Cast("uint16", tirx.shift_left(i32(first), others))


def shared_by(
    body: Stmt, sizes: Sequence[int], copies: Mapping[str, Copy], *, asked: bool = False
) -> dict[str, Sharing]:
    """Return for each of ``copies`` the cluster ``sizes`` whose CTAs can share the copy.

    They copy chunks of the tile for each other. A size is left out if the CTAs of such a cluster
    need not make the same steps; if it is ``asked`` for, that raises LoweringError.
    """
    found: dict[str, Sharing] = dict.fromkeys(copies, ())
    for size in (size for size in sizes if size > 1):
        try:
            cluster = find_cluster(body, size)
        except LoweringError:  # the grid is none of such clusters, as their plan says, too
            continue
        assert cluster is not None
        groups = {name: sharers(copy, cluster) for name, copy in copies.items()}
        shared = {name: group.bits for name, group in groups.items() if group is not None}
        try:
            if shared:
                check_loops(body, cluster)
        except LoweringError:
            if asked:
                raise
            continue
        found.update((name, (*found[name], (size, bits))) for name, bits in shared.items())
    return found


def sharers(copy: Copy, cluster: Cluster) -> Sharers | None:
    """Return the most CTAs of which each can copy a chunk of the tile for all of them.

    A chunk is of rows of the first dimension. None: each CTA copies its own.
    """
    rows = copy.shape[0]
    if len(copy.shape) < 2:
        return None
    masks = [one for part in copy.mask for one in _decided(part, cluster)]
    decided = [_at_first(one, copy, cluster) for one in (*copy.src_indices, *masks)]
    for bits in sorted(range(1, cluster.size), key=lambda bits: (-bits.bit_count(), bits)):
        group = Sharers(cluster, bits)
        if not are_chunks(rows, group.size):
            continue
        if all(cluster.shares(one, bits) for one in decided):
            return group
    return None


def _at_first(value: Expr, copy: Copy, cluster: Cluster) -> Expr:
    """Return ``value`` at the first element of the tile, if others add the same in each CTA."""
    if not variables(value) & frozenset(copy.order):
        return value
    first = substitute(value, dict.fromkeys(copy.order, i32(0)))
    rest = sym.Analyzer().simplify(value - first)
    return value if cluster.grid in variables(rest) else first


def _decided(mask: Expr, cluster: Cluster) -> list[Expr]:
    """Return what decides where ``mask`` holds, as indices decide what is read.

    A tile beyond the end may have the indices of one that is not: it is never read.
    """
    if cluster.grid not in variables(mask):
        return []
    if isinstance(mask, _CONDITIONS) and variables(mask) <= {cluster.grid}:
        return [mask]
    if isinstance(mask, _PAIRS):
        return [*_decided(mask.a, cluster), *_decided(mask.b, cluster)]
    if isinstance(mask, tirx.Not):
        return _decided(mask.a, cluster)
    # What is no comparison is taken to differ between CTAs.
    return [mask.a - mask.b if isinstance(mask, _COMPARISONS) else cluster.grid]


def check_loops(body: Stmt, cluster: Cluster) -> None:
    """Raise LoweringError unless the CTAs of a cluster make the same steps.

    Otherwise they would wait for each other forever.
    """

    def visit(loop: Any) -> None:
        same = loop.kind != ForKind.SERIAL or const_int(loop.extent) is not None
        if not same and not cluster.agrees(loop.extent):
            name = str(loop.loop_var.name)
            why = Reason("cluster.trip", loop=name, trip=str(loop.extent))
            raise LoweringError("cluster.refused", ctas=cluster.size, why=why)

    walk(body, tirx.For, visit)
