"""The attention of ours that a call of ``relax.nn.attention`` is, and what it reads.

    x = reshape(x, (B, S, 3 * H, D))             Q, K and V: heads of one tensor, which is read
    q, k, v = split(permute_dims(x), 3, 1)   =>  where it lies: attention(x, x, x), with heads
    attention(permute_dims(q), ...)              0, H and 2 * H as the first ones

relax has tokens before heads. What splits heads and exchanges axes twice needs no copy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tvm import relax

from ..errors import WorkloadError
from ..schedules import Attention
from .calls import Bound, Fused, bindings_of, bound_in, extents_of, name_of, tensor_of

OPERATOR: Final = "relax.nn.attention"

TOP_LEFT: Final = "TopLeft"
"""TVM's name of the mask of which query i sees keys 0 to i."""

_EXCHANGED: Final = (0, 2, 1, 3)
"""The axes of a transposition of tokens and heads, which is its own inverse."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Heads:
    """The heads from ``first`` on of ``source``, which has tokens before heads."""

    source: Any
    first: int


def attention_of(call: Any, bound: Bound) -> tuple[Attention, tuple[Any, ...]]:
    """The attention that ``call`` is, and its operands; WorkloadError: it is none of ours.

    ``bound``: what a variable is bound to, or None.
    """
    attrs = call.attrs
    mask = attrs.causal_mask
    if len(call.args) > 3 or attrs.window_size is not None or mask not in (None, TOP_LEFT):
        raise WorkloadError("relax.mask", mask=str(mask))
    (batch, queries, heads, dim), (_, keys, groups, _), of_v = (
        [int(extent or 0) for extent in extents_of(tensor_of(arg))] for arg in call.args
    )
    if of_v != [batch, keys, groups, dim]:
        raise WorkloadError("relax.extents")
    found = [_heads(arg, bound) for arg in call.args]
    spec = Attention(
        batch,
        heads,
        queries,
        keys,
        dim,
        groups,
        mask == TOP_LEFT,
        str(call.args[0].ty.dtype),
        layout="BSHD",
        within=(_width(found[0]), _width(found[1]), _width(found[2])),
        scaled=None if attrs.scale is None else float(attrs.scale),
        first=(found[0].first, found[1].first, found[2].first),
    )
    return spec, tuple(one.source for one in found)


def attentions(function: Any) -> Iterator[Fused]:
    """Each attention bound in ``function`` that is a workload; the others are logged."""
    bound = bound_in(function)
    for binding in bindings_of(function):
        call = binding.value
        if name_of(call) != OPERATOR:
            continue
        try:
            spec, operands = attention_of(call, bound)
        except WorkloadError as err:
            _log.info("leave %s to TVM: %s", OPERATOR, err)
        else:
            yield Fused(spec, operands, call, (call,))


def _width(heads: Heads) -> int:
    """Heads of the tensor in memory."""
    return int(heads.source.ty.shape.values[2])


def _heads(value: Any, bound: Bound) -> Heads:
    """What ``value``, with tokens before heads, is a part of; itself where it is none."""
    exchanged = _exchanged(value, bound)
    part = bound(value if exchanged is None else exchanged)
    split = bound(part.tuple_value) if isinstance(part, relax.TupleGetItem) else None
    axis = 2 if exchanged is None else 1
    if split is None or name_of(split) != "relax.split" or int(split.attrs.axis) % 4 != axis:
        return Heads(value, 0)
    whole = split.args[0] if exchanged is None else _exchanged(split.args[0], bound)
    if whole is None:
        return Heads(value, 0)
    before = [split.ty.fields[at].shape.values[axis] for at in range(int(part.index))]
    return Heads(whole, sum(int(extent) for extent in before))


def _exchanged(value: Any, bound: Bound) -> Any | None:
    """What ``value`` is with tokens and heads exchanged; None: it is no such transposition."""
    call = bound(value)
    found = name_of(call) == "relax.permute_dims" and tuple(map(int, call.attrs.axes or ()))
    return call.args[0] if found == _EXCHANGED else None
