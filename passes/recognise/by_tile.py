"""Say whether each tile of a persistent kernel runs a loop exactly once."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ..ir.kernels import bodies, thread_tag
from ..ir.nodes import SBlockRealize, Stmt, const_int


def runs_by_tile(body: Stmt, loop: Any) -> bool:
    """Whether all that a CTA does in ``body`` is one loop over tiles that each run ``loop`` once.

    A group would lose count of the token if a tile did not run the loop. What stands beside the
    loop over tiles would be done by each group.
    """
    tiles = _only(body)
    return tiles is not None and not tiles.same_as(loop) and runs_once(tiles.body, loop)


def _only(stmt: Stmt) -> Any | None:
    """Return the serial loop that is all of ``stmt``, if there is one."""
    if isinstance(stmt, tirx.For) and thread_tag(stmt) is None:
        return stmt
    inner = [] if _is_guarded(stmt) else bodies(stmt)
    return _only(inner[0]) if len(inner) == 1 else None


def runs_once(stmt: Stmt, loop: Any) -> bool:
    """Whether ``stmt`` runs ``loop`` exactly once in any case."""
    if stmt.same_as(loop):
        return True
    if isinstance(stmt, tirx.For) or _is_guarded(stmt):
        return False
    return any(runs_once(part, loop) for part in bodies(stmt))


def _is_guarded(stmt: Stmt) -> bool:
    if isinstance(stmt, SBlockRealize):
        return const_int(stmt.predicate) != 1
    return isinstance(stmt, tirx.IfThenElse)
