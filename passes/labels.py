"""Origins for the statements that touch shared memory and got none from a pipelined loop.

    S[tx] = A[tx]      ->      T.attr("", "pipeliner.origin", "block=load|places=S")
                               S[tx] = A[tx]

TVM's storage passes give every shared buffer of a kernel one name; a hazard then still tells which
of them it is about. CUDA is printed without the attribute.

Definitions of variables are left alone: an attribute around one would end its scope.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx

from ..origin import Origin, Place
from . import ir
from .kernels import bodies, map_kernels, with_bodies


def label(func: Any) -> Any:
    """``func`` with an origin on each such statement; the same object when there is none."""
    return map_kernels(func, lambda kernel: _labelled(kernel, Origin()))


def _labelled(stmt: Any, around: Origin) -> Any:
    """``stmt``, in the op and the block of ``around``, with the statements inside it marked."""
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ir.ORIGIN_ATTR:
        return stmt
    around = replace(around, op=ir.op_name(stmt) or around.op)
    if isinstance(stmt, ir.SBlockRealize):
        around = replace(around, block=str(stmt.block.name_hint) or around.block)
    inner = bodies(stmt)
    # A vectorized loop becomes one access.
    if isinstance(stmt, tirx.BufferStore | tirx.Evaluate) or _is_vector(stmt):
        places = tuple(map(Place, _shared(stmt)))
        return ir.with_origin(replace(around, places=places), stmt) if places else stmt
    return with_bodies(stmt, [_labelled(body, around) for body in inner])


def _is_vector(stmt: Any) -> bool:
    return isinstance(stmt, tirx.For) and stmt.kind == ir.ForKind.VECTORIZED


def _shared(stmt: Any) -> list[str]:
    """Names of the shared buffers in ``stmt``, each once."""
    found: dict[str, None] = {}

    def used(var: Any) -> None:
        if ir.is_buffer_var(var) and ir.is_shared(var):
            found[str(var.name)] = None

    ir.walk(stmt, ir.Var, used)
    return list(found)
