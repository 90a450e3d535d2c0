"""Give an origin to statements that touch shared memory and got none from a pipelined loop.

    S[tx] = A[tx]      =>      T.attr("", "pipeliner.origin", "block=load|places=S")
                               S[tx] = A[tx]

TVM's storage passes give every shared buffer of a kernel one name; a hazard still says by the
origin which of them it is about. CUDA is printed without the attribute.

Buffers of two loops may have one name until the arena gives them different ones; the origins in the
loops follow.

Does not handle: definitions of variables, because an attribute around one would end its scope.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tvm import tirx

from ...plan import SmemPlan
from ...values.origin import Origin, Place
from ..ir import nodes as ir
from ..ir.kernels import bodies, map_kernels, with_bodies
from ..ir.named_pass import named_pass


@named_pass("Label")
def label(func: Any, smem: SmemPlan | None = None) -> Any:
    """Return ``func`` with an origin on each such statement; the same object if there are none.

    ``smem``: the arena, with the names of its buffers.
    """
    names = {buffer.buffer for buffer in (smem or SmemPlan()).buffers}
    renamed = any(_base(name) in names for name in names)

    def kernel(stmt: Any) -> Any:
        return _labelled(_with_new_names(stmt) if renamed else stmt, Origin())

    return map_kernels(func, kernel)


def _with_new_names(stmt: Any) -> Any:
    """Return ``stmt`` with the buffers in its origins named as in their statements."""
    origin = ir.origin_of(stmt)
    if origin is None:
        return with_bodies(stmt, [_with_new_names(body) for body in bodies(stmt)])
    used = _shared(stmt)
    new = {_base(name): name for name in used if _base(name) not in used}
    places = tuple(replace(at, buffer=new.get(at.buffer, at.buffer)) for at in origin.places)
    if places == origin.places:
        return stmt
    return ir.with_origin(replace(origin, places=places), stmt.body)


def _base(name: str) -> str:
    """Return ``S`` for ``S_1``, the name of a second buffer ``S``; '' for other names."""
    match = re.fullmatch(r"(.+)_\d+", name)
    return match[1] if match else ""


def _labelled(stmt: Any, around: Origin) -> Any:
    """Return ``stmt``, in the op and the block of ``around``, with its inner statements marked."""
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ir.ORIGIN_ATTR:
        return stmt
    around = replace(around, op=ir.op_of(stmt) or around.op)
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
    """Return the names of the shared buffers in ``stmt``, each once."""
    found: dict[str, None] = {}

    def used(var: Any) -> None:
        if ir.is_buffer_var(var) and ir.is_shared(var):
            found[str(var.name)] = None

    ir.walk(stmt, ir.Var, used)
    return list(found)
