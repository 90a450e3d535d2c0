"""Two products of one tensor of which the first gates the second, in a relax function.

    g = matmul(x, w1)                                  g, u = split(matmul(x, w), 2, -1)
    u = matmul(x, w2)              or of one product   y = multiply(silu(g), u)
    y = multiply(silu(g), u)                           w: a constant, cut in two here

become ``y = gated(x, w1, w2)``. ``multiply(g, sigmoid(g))`` is silu, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ..errors import WorkloadError
from ..schedules import GatedGemm
from .calls import Bound, Fused, bindings_of, bound_in, name_of
from .constants import array_of, constant
from .epilogues import ACTIVATIONS
from .workloads import matmul_of


@dataclass(frozen=True, eq=False)
class _Product:
    """The columns of ``call``, a product, that a value is: all, or the half ``at`` of two."""

    call: Any
    at: int | None = None


def gated_products(function: Any) -> Iterator[Fused]:
    """Each gated product bound in ``function``."""
    bound = bound_in(function)
    for binding in bindings_of(function):
        call = binding.value
        if name_of(call) != "relax.multiply":
            continue
        for gate, value in itertools.permutations(call.args):
            found = _gated(call, gate, value, bound)
            if found is not None:
                yield found
                break


def _gated(call: Any, gate: Any, value: Any, bound: Bound) -> Fused | None:
    activation, inner = _activated(gate, bound)
    if inner is None:
        return None
    first, second = _product(inner, bound), _product(value, bound)
    if first is None or second is None:
        return None
    weights = _weights(first, second, bound)
    if weights is None:
        return None
    try:
        one = matmul_of(first.call)
        if one != matmul_of(second.call):  # one of them is broadcast
            return None
        columns = one.n if first.at is None else one.n // 2
        spec = GatedGemm(
            one.m, columns, one.k, one.batch, one.dtype, one.layout, out=str(call.ty.dtype),
            activation=activation,
        )  # fmt: skip
    except WorkloadError:
        return None
    return Fused(spec, (first.call.args[0], *weights), call, (first.call, second.call))


def _activated(value: Any, bound: Bound) -> tuple[str, Any]:
    """The activation that ``value`` is, and of what; None: it is none."""
    call = bound(value)
    name = name_of(call)
    if name in ACTIVATIONS:
        return ACTIVATIONS[name], call.args[0]
    if name == "relax.multiply":
        for one, other in itertools.permutations(call.args):
            sigmoid = bound(other)
            if name_of(sigmoid) == "relax.sigmoid" and sigmoid.args[0].same_as(one):
                return "silu", one
    return "", None


def _product(value: Any, bound: Bound) -> _Product | None:
    found = bound(value)
    if isinstance(found, relax.TupleGetItem):
        split = bound(found.tuple_value)
        if name_of(split) != "relax.split" or len(split.ty.fields) != 2:
            return None
        inner = bound(split.args[0])
        if int(split.attrs.axis) % split.args[0].ty.ndim != split.args[0].ty.ndim - 1:
            return None
        halves = {int(field.shape.values[-1]) for field in split.ty.fields}
        ours = name_of(inner) == "relax.matmul" and len(halves) == 1
        return _Product(inner, int(found.index)) if ours else None
    return _Product(found) if name_of(found) == "relax.matmul" else None


def _weights(first: _Product, second: _Product, bound: Bound) -> tuple[Any, Any] | None:
    """Both matrices, if they multiply the same tensor; None: they do not."""
    if first.at is None and second.at is None:
        ones, others = first.call.args, second.call.args
        alike = ones[0].same_as(others[0]) and ones[1].ty.ndim == others[1].ty.ndim
        return (ones[1], others[1]) if alike and not first.call.same_as(second.call) else None
    if not first.call.same_as(second.call) or {first.at, second.at} != {0, 1}:
        return None
    array = array_of(bound(first.call.args[1]))
    if array is None:
        return None
    columns = array.shape[-1] // 2
    halves = [constant(array[..., :columns]), constant(array[..., columns:])]
    return (halves[0], halves[1]) if first.at == 0 else (halves[1], halves[0])
