"""Collect what the mapping of one function to threads has decided so far.

    Scope(plan, threads, fragments={acc: ...}, layouts={A_shared: ...}, ...)

Every file that maps a piece of the function reads it and adds to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...diagnostics import Why
from ...plan import KernelPlan
from ..copy.clusters import Cluster
from ..copy.layouts import ColumnBlocks, Swizzle
from ..copy.tensor_maps import TensorMap
from ..fragments.fragment import Fragment
from ..ir.nodes import Buffer, Stmt
from ..ir.patterns import Matmul
from ..threads.spread import Threads
from .cluster_sums import ClusterSum


@dataclass
class Scope:
    """The state of mapping one function.

    ``stages``: buffers that the mapping adds to each CTA, ``parts``: those of them that warps put
    parts of a tile's columns into; ``workspaces``: to the function.
    ``notes``: what could not stay in registers, or not be shared out whole. ``ordered``: the
    statements that need a barrier before them, by global buffer. ``repeats``: what is mapped now
    stands in a loop, ``in_step``: in a step of a pipelined one. ``cluster_sum``: the parts of
    tiles that CTAs of a cluster put together.
    """

    plan: KernelPlan
    threads: Threads
    fragments: dict[Buffer, Fragment] = field(default_factory=dict)
    layouts: dict[Buffer, Swizzle | ColumnBlocks] = field(default_factory=dict)
    cluster: Cluster | None = None
    shared: list[str] = field(default_factory=list)
    maps: list[TensorMap] = field(default_factory=list)
    barriers: dict[str, Buffer] = field(default_factory=dict)
    matmuls: dict[str, tuple[tuple[Stmt, ...], tuple[Buffer, ...]]] = field(default_factory=dict)
    accumulators: dict[Buffer, Matmul] = field(default_factory=dict)
    stages: list[Buffer] = field(default_factory=list)
    parts: dict[Buffer, Buffer | None] = field(default_factory=dict)
    workspaces: list[Buffer] = field(default_factory=list)
    notes: list[Why] = field(default_factory=list)
    ordered: dict[Buffer, list[Any]] = field(default_factory=dict)
    repeats: bool = False
    in_step: bool = False
    cluster_sum: ClusterSum | None = None
