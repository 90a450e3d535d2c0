"""Follow the wgmmas of a consumer through a step: which are in flight, and when they are done.

    S = A B                       in flight: S
    m = max of S                  waits for S: wait_group 0
    O += P V                      in flight: O
    S = A B          next step    in flight: O, S
    m = max of S                  waits for S, and so for O before it: wait_group 0

Groups complete in the order in which they are committed (PTX ISA, wgmma.wait_group), so one wait is
for a group and all before it, by how many were committed behind it. Whatever touches registers that
a wgmma reads or writes waits for it; the slots that it reads are released behind that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from ...plan import CONSUMER
from ...values.op import Op
from ...values.origin import STEADY, Origin
from ..ir.calls import WGMMA_COMMIT, WGMMA_FENCE, called, is_wgmma
from ..ir.nodes import Buffer, Call, Stmt, collect, has, seq, with_origin


@dataclass(frozen=True)
class WgmmaGroup:
    """The wgmmas of one op, committed as ``count`` groups.

    ``registers``: what they read and write. ``pairs``: the mbarrier pairs of the slots that they
    are the last of a step to read. ``before``: they are of the step before.
    """

    op: Op
    count: int
    registers: frozenset[Buffer]
    pairs: tuple[int, ...]
    before: bool = False


@dataclass
class WgmmasInFlight:
    """The groups in flight, the oldest first."""

    groups: list[WgmmaGroup] = field(default_factory=list)

    def carried(self) -> WgmmasInFlight:
        """Return what is in flight when the next step starts."""
        return WgmmasInFlight([replace(group, before=True) for group in self.groups])

    def done_for(self, registers: Collection[Buffer]) -> list[WgmmaGroup]:
        """Return the groups to wait for before ``registers`` are touched, no longer in flight."""
        wanted = [n for n, group in enumerate(self.groups) if group.registers & set(registers)]
        return self._done(wanted[-1] + 1) if wanted else []

    def done_before(self) -> list[WgmmaGroup]:
        """Return those of the step before, no longer in flight."""
        return self._done(sum(group.before for group in self.groups))

    def all_done(self) -> list[WgmmaGroup]:
        """Return all groups, no longer in flight."""
        return self._done(len(self.groups))

    @property
    def count(self) -> int:
        """How many groups are in flight: what a wait for those before them leaves."""
        return sum(group.count for group in self.groups)

    def _done(self, most: int) -> list[WgmmaGroup]:
        found, self.groups = self.groups[:most], self.groups[most:]
        return found


def wgmma_wait(groups: int, op: Op) -> Stmt:
    """Return a wait for the wgmmas of ``op``, except the last ``groups``."""
    origin = Origin(op=op.wait(), kind="wait", block=op.statement, phase=STEADY, role=CONSUMER)
    return with_origin(origin, tirx.Evaluate(T.ptx.wgmma.wait_group.sync.aligned(groups)))


def without_fence(stmt: Stmt) -> Stmt:
    """Return wgmmas without their fence, which wgmmas before them have made unnecessary.

    Nothing but wgmma has accessed an accumulator since that fence (PTX ISA, wgmma.fence).
    """

    def kept(parts: Any) -> Stmt:
        return seq(*[part for part in parts.seq if not _is_fence(part)])

    return tvm_ffi.structural_map(stmt, [(tirx.SeqStmt, kept)], order="post")


def parted_behind_first(stmt: Stmt, between: Sequence[Stmt]) -> Stmt | None:
    """Return the wgmmas of a step with ``between`` behind the first of each accumulator, or None.

        fence; wgmma, wgmma; commit   =>   fence; wgmma; commit; between; wgmma; commit

    ``between`` waits for the step before and releases its slots. A warpgroup issues a wgmma once
    another is nearly done, so that behind the last of a step it would release slots a step too
    late: two slots would load and multiply in turns (H200, 464x10264x13912 by 256x192x128: 350 us,
    212 so; three slots, 1031x8696x4160 by 192x208x64: 118 and 112). None if there is one wgmma for
    each accumulator, or they are not in one group, or a condition may leave them out: the release
    belongs behind the whole statement then, or the slots of a step left out are never released.
    """
    if has(stmt, tirx.IfThenElse):
        return None
    found: list[Stmt] = []

    def parted(parts: Any) -> Stmt:
        statements = list(parts.seq)
        calls = [n for n, part in enumerate(statements) if _is_wgmma(part)]
        commits = [n for n, part in enumerate(statements) if _is_call(part, WGMMA_COMMIT)]
        if not calls or len(commits) != 1:
            return parts
        first = _accumulators(statements, calls)
        if len(calls) <= first or calls != list(range(calls[0], calls[-1] + 1)):
            return parts
        at = calls[first]
        commit = statements[commits[0]]
        made = seq(*statements[:at], commit, *between, *statements[at:])
        found.append(made)
        return made

    made = tvm_ffi.structural_map(stmt, [(tirx.SeqStmt, parted)], order="post")
    return made if len(found) == 1 else None


def _accumulators(statements: Sequence[Any], calls: Sequence[int]) -> int:
    """Count the leading wgmmas with accumulators of their own."""
    seen: list[Any] = []
    for n in calls:
        own = statements[n].value.args[0]
        if any(tvm_ffi.structural_equal(own, other) for other in seen):
            break
        seen.append(own)
    return len(seen)


def _is_wgmma(stmt: Any) -> bool:
    return isinstance(stmt, tirx.Evaluate) and is_wgmma(stmt.value)


def _is_call(stmt: Any, name: str) -> bool:
    return isinstance(stmt, tirx.Evaluate) and called(stmt.value) == name


def _is_fence(stmt: Stmt) -> bool:
    return isinstance(stmt, tirx.Evaluate) and called(stmt.value) == WGMMA_FENCE


def groups_of(stmt: Stmt) -> int:
    """Count the groups of wgmma that ``stmt`` commits whatever its conditions are.

    A wait leaves that many in flight; to leave one that was not committed leaves an older one.
    """
    return 0 if has(stmt, tirx.IfThenElse) else len(collect(stmt, Call, _commits))


def _commits(call: Call) -> bool:
    return called(call) == WGMMA_COMMIT
