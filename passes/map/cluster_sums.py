"""Put the parts of a tile together in its cluster, by distributed shared memory.

    kernel 0, blockIdx.z < 4:                    clusters of 4, of rank z:
        P[z, m + i, n + j] = acc[i, j]   =>          st.shared::cluster P_parts[z, i % 16, j] of
    kernel 1:                                            rank i / 16, acc[i, j]
        C[r, c] = f(P[0, r, c], ..)                  cluster barrier
                                                     C[m + z * 16 + i, n + j] =
                                                         f(P_parts[0, i, j], ..)        # i < 16

Each CTA of a tile owns some rows of it. It gets the others' parts of those rows in its own shared
memory, straight from their registers, and computes the outputs. So parts are written and read once,
on the SMs, and there is no workspace and no second kernel. What is computed of the parts is the
second kernel's, in its order: every bit is the same.

Sources: PTX ISA, mapa, st (.shared::cluster), barrier.cluster; CUDA C++ Programming Guide,
distributed shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Range
from tvm.script import tirx as T

from ...errors import LoweringError
from ...mechanisms.stores import PART_PADDING, VECTOR_PARTS, is_in_cluster
from ...plan import KernelPlan, StorePlan
from ..copy.clusters import TAG
from ..fragments.fragment import Fragment
from ..fragments.nests import rewrite
from ..ir.indexing import at_lane
from ..ir.kernels import map_kernels, map_statement, with_block
from ..ir.nodes import (
    Buffer,
    Expr,
    ForKind,
    Stmt,
    StringImm,
    TensorLoad,
    Var,
    block,
    buffer,
    const_int,
    i32,
    seq,
    substitute,
    thread_loop,
)
from ..ir.patterns import Nest, nests_of
from ..recognise.parts import StoredParts, parts_stored_by
from ..sync.mbarriers import BEHIND_ROLES
from ..threads.lanes import store_lane, widest
from ..threads.spread import Threads, spread

_TYPES: Final = {"float32": "f32", "int32": "s32"}
"""PTX type of a part."""


@dataclass(frozen=True)
class ClusterSum:
    """A nest that stores parts, by ``plan``, and what is computed of them.

    ``parts``: as recognised. ``own``: a CTA's shared memory for the parts of the rows that it owns.
    ``corner``: the first row and column of the tile. ``virtual``: stands for that memory of all
    CTAs, the rows of a tile under one another.
    """

    nest: Nest
    plan: StorePlan
    parts: StoredParts
    own: Buffer
    virtual: Buffer
    corner: tuple[Expr, Expr]

    @staticmethod
    def of(func: Any, plan: KernelPlan) -> ClusterSum | None:
        """Return the sum of ``func`` that is made in a cluster; None if ``plan`` has none."""
        stores = [store for store in plan.stores if is_in_cluster(store)]
        if not stores:
            return None
        store = stores[0]
        nest = next(nest for nest in nests_of(func.body) if nest.name == store.op)
        found = parts_stored_by(nest, func.body)
        if not isinstance(found, StoredParts):
            raise LoweringError("store.cluster", store=store.op, why=found)
        rows, columns = store.box
        width, dtype = columns + PART_PADDING, str(found.buffer.dtype)
        name = f"{found.buffer.name}_shared"
        own = buffer([found.count, rows, width], dtype, name, "shared", VECTOR_PARTS * 4)
        virtual = buffer([found.count, found.count * rows, width], dtype, f"{name}_all", "shared")
        zeros: dict[Var, Expr] = dict.fromkeys(nest.vars, i32(0))
        row, column = (substitute(index, zeros) for index in list(nest.store.indices)[1:])
        return ClusterSum(nest, store, found, own, virtual, (row, column))

    def pushed(self, fragments: Sequence[Fragment], analyzer: Any) -> Stmt:
        """Return the stores of a thread's elements to the CTAs that own their rows."""
        part, row, column = self.nest.store.indices
        inside = [
            analyzer.simplify(index - first)
            for index, first in zip((row, column), self.corner, strict=True)
        ]
        store = tirx.BufferStore(self.virtual, self.nest.store.value, [part, *inside])
        made = rewrite(replace(self.nest, store=store), fragments, analyzer)
        remote = buffer([1], "uint32", "peer", "local")

        def stored(node: Any) -> Any:
            if isinstance(node, tirx.BufferStore):
                mine = node.buffer.same_as(self.virtual)
                return self._push([node], remote, analyzer) if mine else node
            vector = node.kind == ForKind.VECTORIZED and isinstance(node.body, tirx.BufferStore)
            if not vector or not node.body.buffer.same_as(self.virtual):
                return node
            lanes = range(const_int(node.extent) or 1)
            return self._push(
                [at_lane(node.body, node.loop_var, v) for v in lanes], remote, analyzer
            )

        kinds = [(tirx.For, stored), (tirx.BufferStore, stored)]
        return block("push", tvm_ffi.structural_map(made, kinds, order="pre"), [remote])

    def _push(self, stores: Sequence[Any], remote: Buffer, analyzer: Any) -> Stmt:
        """Return one store of neighbouring elements to the CTA that owns their row."""
        part, row, column = stores[0].indices
        rows = const_int(self.own.shape[1])
        owner = analyzer.simplify(tirx.floordiv(row, i32(rows or 1)))
        at = [part, analyzer.simplify(tirx.floormod(row, i32(rows or 1))), column]
        here = T.cuda.cvta_generic_to_shared(T.address_of(tirx.BufferLoad(self.own, at)))
        there = tirx.BufferLoad(remote, [i32(0)])
        kind = _TYPES[str(self.own.dtype)]
        vector = f".v{len(stores)}" if len(stores) > 1 else ""
        store = T.ptx[f"st.shared::cluster{vector}.{kind}"]
        return seq(
            tirx.Evaluate(T.ptx.mapa.shared__cluster.u32(there, here, tirx.Cast("uint32", owner))),
            tirx.Evaluate(store(there, *(one.value for one in stores))),
        )

    def summed(self, threads: Threads) -> Stmt:
        """Return what ``threads`` compute of the rows that their CTA owns."""
        parts, rank = self.parts, self.parts.around.loop_var
        rows, columns = self.plan.box
        total = [const_int(extent) or 0 for extent in list(parts.buffer.shape)[1:]]
        row, column = Var("r", "int32"), Var("c", "int32")
        at_row = self.corner[0] + (rank * rows + row)
        at_column = self.corner[1] + column

        def own(load: Any) -> Any:
            if not load.source.same_as(parts.buffer):
                return load
            return tirx.BufferLoad(self.own, [load.indices[0], row, column])

        store = tvm_ffi.structural_map(parts.store, [(TensorLoad, own)], order="pre")
        store = substitute(store, {parts.row: at_row, parts.column: at_column})
        analyzer = threads.analyzer
        analyzer.bind(rank, Range(0, parts.count))
        limits = [(at_row, total[0]), (at_column, total[1])]
        for var, extent in ((row, rows), (column, columns)):
            analyzer.bind(var, Range(0, extent))
        predicate = tuple(
            tirx.LT(index, i32(end)) for index, end in limits if not analyzer.can_prove(index < end)
        )
        name = f"{self.nest.name}.sum"
        nest = Nest(name, (row, column), (rows, columns), predicate, store)
        width = min(VECTOR_PARTS, widest(nest, store_lane(nest)))
        made = spread(nest, threads, width)
        return tirx.AttrStmt(StringImm(name), BEHIND_ROLES, StringImm(name), made)

    def in_clusters(self, kernel: Stmt) -> Stmt:
        """Return ``kernel`` with the CTAs of a tile in one cluster, along blockIdx.x."""
        count, part = self.parts.count, self.parts.around
        rank, cta = Var("clusterCtaIdx_x", "int32"), Var("blockIdx_x", "int32")
        inner = map_statement(kernel, "blockIdx.z", lambda loop: loop.body)

        def joined(loop: Any) -> Stmt:
            extent = (const_int(loop.extent) or 1) * count
            body = substitute(
                loop.body,
                {loop.loop_var: tirx.floordiv(cta, i32(count)), part.loop_var: rank},
            )
            return thread_loop(rank, count, TAG, thread_loop(cta, extent, "blockIdx.x", body))

        return map_statement(inner, "blockIdx.x", joined)

    def without_kernel(self, func: Any) -> Any:
        """Return ``func`` without the kernel that puts parts together, and without workspace."""
        gone = self.parts.kernel
        kept = map_kernels(
            func, lambda kernel: tirx.Evaluate(0) if kernel.same_as(gone) else kernel
        )
        root: Any = kept.body
        allocs = [one for one in root.block.alloc_buffers if not one.same_as(self.parts.buffer)]
        body = with_block(root, body=_without_nothing(root.block.body), allocs=allocs)
        return kept.with_body(body)


def _without_nothing(stmt: Any) -> Stmt:
    """Return a sequence without the statements that do nothing."""
    if not isinstance(stmt, tirx.SeqStmt):
        return stmt
    return seq(*[part for part in stmt.seq if not _is_nothing(part)])


def _is_nothing(stmt: Any) -> bool:
    return isinstance(stmt, tirx.Evaluate) and const_int(stmt.value) is not None
