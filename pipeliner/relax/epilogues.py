"""What follows a product or convolution in a relax function and can be its epilogue.

    lv  = conv2d(x, w)          a chain: each value is read by the next call alone
    lv1 = add(lv, b)            bias: one value for each channel
    lv2 = add(lv1, y)           residual: a tensor of the output's shape
    lv3 = relu(lv2)         =>  one workload with epilogue (bias, residual, relu), where lv3 was

The longest start of a chain that is a workload comes first, the product alone last. A conversion
is part of a chain where everything that the steps read is of the type that it leads to.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import relax

from ..errors import WorkloadError
from ..schedules.workloads.base.epilogue import BIAS, RESIDUAL, SCALE
from .calls import Fused, bindings_of, name_of
from .workloads import WORKLOADS, Workload

ACTIVATIONS: Final = {"relax.nn.relu": "relu", "relax.nn.gelu": "gelu", "relax.nn.silu": "silu"}
"""Steps of an epilogue, by the operator's name."""

_log = logging.getLogger(__name__)

_Step: TypeAlias = "tuple[tuple[str, ...], tuple[Any, ...]]"
"""Steps of an epilogue and what they read; both empty: a conversion, or other axes of rows."""


def chains(function: Any, claimed: Collection[Any] = ()) -> Iterator[list[Fused]]:
    """For each product and convolution bound in ``function``: what it can be, longest first.

    ``claimed``: calls that something else takes the place of.
    """
    bindings = bindings_of(function)
    readers = _Readers(function, bindings)
    taken: set[Any] = set(claimed)
    for binding in bindings:
        call = binding.value
        if name_of(call) not in WORKLOADS or call in taken:
            continue
        try:
            spec = WORKLOADS[name_of(call)](call)
        except WorkloadError as err:
            _log.info("leave %s to TVM: %s", name_of(call), err)
            continue
        found = list(_starts(spec, binding, readers, taken))
        taken.update(one.last for one in found)
        yield found[::-1]


class _Readers:
    """Which bindings read a variable."""

    def __init__(self, function: Any, bindings: list[Any]) -> None:
        self._reads: Counter[Any] = Counter()
        self._by: dict[Any, Any] = {}
        for binding in bindings:
            for var in _variables(binding.value):
                self._reads[var] += 1
                self._by[var] = binding
        for var in _variables(function.body.body):
            self._reads[var] += 1

    def only(self, var: Any) -> Any | None:
        """The binding that alone reads ``var``, once; None: there are more, or it is returned."""
        return self._by.get(var) if self._reads[var] == 1 else None


def _variables(expr: Any) -> list[Any]:
    """Every place in ``expr`` where a variable is read."""
    if isinstance(expr, relax.Call | relax.Tuple):
        parts = expr.args if isinstance(expr, relax.Call) else expr.fields
        return [var for part in parts for var in _variables(part)]
    found: list[Any] = []
    relax.analysis.post_order_visit(
        expr, lambda node: found.append(node) if isinstance(node, relax.Var) else None
    )
    return found


def _starts(spec: Workload, binding: Any, readers: _Readers, taken: set[Any]) -> Iterator[Fused]:
    """Each start of the chain from ``binding`` that is a workload, shortest first."""
    head = binding.value
    steps: tuple[str, ...] = ()
    extras: tuple[Any, ...] = ()
    while True:
        last = binding.value
        out = str(last.ty.dtype)
        if all(str(extra.ty.dtype) == out for extra in extras):
            try:
                found = replace(spec, out=out, epilogue=steps)
            except WorkloadError:
                return
            yield Fused(found, (*head.args, *extras), last, (head,))
        follower = readers.only(binding.var)
        if follower is None or follower.value in taken:
            return
        step = _step(follower.value, binding.var)
        if step is None:
            return
        steps, extras, binding = (*steps, *step[0]), (*extras, *step[1]), follower


def _step(call: Any, value: Any) -> _Step | None:
    """What ``call`` does to ``value``, as a step of an epilogue; None: it is none."""
    if not isinstance(call, relax.Call):
        return None
    name = name_of(call)
    if name in ACTIVATIONS:
        return (ACTIVATIONS[name],), ()
    if name == "relax.astype" or (name == "relax.reshape" and _keeps_channels(value.ty, call.ty)):
        return (), ()
    if name not in ("relax.add", "relax.multiply"):
        return None
    left, right = call.args
    other = right if left.same_as(value) else left
    if not isinstance(other.ty, relax.TensorType):
        return None
    if not tvm_ffi.structural_equal(value.ty, call.ty):  # the other one is larger
        return None
    if _is_by_channel(other.ty, call.ty):
        return (BIAS if name == "relax.add" else SCALE,), (other,)
    if name == "relax.add" and tvm_ffi.structural_equal(other.ty, call.ty):
        return (RESIDUAL,), (other,)
    return None


def _keeps_channels(before: Any, after: Any) -> bool:
    """Whether a reshape leaves the last axis as it is, and all extents are known."""
    known = [
        [getattr(extent, "value", None) for extent in one.shape.values] for one in (before, after)
    ]
    return None not in (*known[0], *known[1]) and known[0][-1:] == known[1][-1:] != []


def _is_by_channel(values: Any, out: Any) -> bool:
    """Whether ``values`` has one element for each channel, the last axis of ``out``."""
    if values.shape is None or values.ndim == 0:
        return False
    extents = [getattr(extent, "value", None) for extent in values.shape.values]
    channels = getattr(out.shape.values[-1], "value", None)
    if None in extents or channels is None:
        return False
    known = [int(extent) for extent in extents if extent is not None]
    return known[-1] == int(channels) == math.prod(known)
