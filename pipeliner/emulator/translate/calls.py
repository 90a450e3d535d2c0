"""Translate calls: one function for each family of operations; an unknown one is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...errors import EmulatorError
from ..base import mathfn
from ..base.dtypes import is_int, split_lanes
from ..units.wgmma import WARPGROUP
from . import legacy_calls, ptx, ptx_hopper, ptx_memory, wmma_calls
from .expressions import Expressions
from .operation import ADDRESSES, is_trip_count, math_function, op_name, string
from .source import Val

Handler = Callable[[Expressions, Any], Val | None]
"""Translates one family of calls; None: the call is a statement."""

_HANDLERS: Final[dict[str, Handler]] = {**legacy_calls.HANDLERS, **wmma_calls.HANDLERS}
"""Handlers by the name of the operation; others register below."""

_CTA_SYNC_SCOPES: Final = ("shared", "shared.dyn")
"""Scopes whose storage sync is __syncthreads."""

_SHUFFLES: Final = {
    "tirx.cuda.__shfl_sync": "idx",
    "tirx.cuda.__shfl_up_sync": "up",
    "tirx.cuda.__shfl_down_sync": "down",
    "tirx.cuda.__shfl_xor_sync": "xor",
    "tirx.tvm_warp_shuffle": "idx",
    "tirx.tvm_warp_shuffle_up": "up",
    "tirx.tvm_warp_shuffle_down": "down",
    "tirx.tvm_warp_shuffle_xor": "xor",
}
"""Kind of shuffle by operation."""

_HOPPER_WAITS: Final = (
    "tirx.cuda.mbarrier_wait",
    "tirx.cuda.mbarrier_wait_acquire_cluster",
    "tirx.cuda.cluster_sync",
    "tirx.cuda.warpgroup_sync",
)
"""Calls of TVM at which threads wait for each other, on sm_90."""

_ATOMIC_ADD: Final = ("atomicAdd", "atomic_add")
"""Names by which external calls add atomically."""

_FENCES: Final = {
    "__threadfence": "gpu",
    "__threadfence_block": "cta",
    "__threadfence_system": "sys",
}
"""Scope by the name of a CUDA fence."""


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def translate(c: Expressions, call: Any) -> Val | None:
    """Emit the code of a call and return its value, None for a statement."""
    name = op_name(call)
    if name.startswith("tirx.ptx.") and name not in ADDRESSES:
        ptx.translate(c, call)
        return None
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(c, call)
    function = math_function(name)
    if function is not None:
        return math(c, function, call.args, call.ty)
    raise EmulatorError("emulator.operation", name=name, call=str(call))


def blocks(call: Any) -> bool:
    """Whether threads may wait for each other in this operation."""
    name = op_name(call)
    if name == "tirx.tvm_storage_sync":
        return str(call.args[0].value) in _CTA_SYNC_SCOPES
    return (
        name in ("tirx.cuda.cta_sync", "tirx.cuda.grid_sync")
        or name in _HOPPER_WAITS
        or ptx.blocks(name)
    )


def waits_by_warp(call: Any) -> bool:
    """Whether warps wait here one by one, so that lock step could make them wait for ever."""
    name = op_name(call)
    if name in ("tirx.tvm_storage_sync", "tirx.cuda.cta_sync", "tirx.cuda.grid_sync"):
        return False
    return blocks(call) or name in _HOPPER_WAITS


def uses_engines(call: Any) -> bool:
    """Whether the operation involves asynchronous engines: mbarriers, bulk copies, wgmma."""
    name = op_name(call)
    return name in _HOPPER_WAITS or ptx.uses_engines(name)


def math(c: Expressions, function: str, args: Any, ty: Any) -> Val:
    """Translate a math function, evaluated in float64 and rounded once."""
    dtype, lanes = split_lanes(ty)
    values = [c.expr(a) for a in args]
    if len(values) != mathfn.ARITY[function]:
        raise EmulatorError("emulator.math", function=function, count=len(values))
    listed = ", ".join(v.text for v in values)
    text = f"mathfn.call({function!r}, {c.dtype(dtype)}, {listed})"
    if is_int(dtype) and lanes == 1 and not any(v.varying for v in values):
        text = f"int({text})"
    return c.make(text, dtype, values, lanes)


# Values


@_handles("prim.if_then_else")
def _if_then_else(c: Expressions, call: Any) -> Val:
    return c.choose(call.args[0], call.args[1], call.args[2], call.ty)


@_handles("prim.likely", "tirx.tvm_thread_invariant")
def _same(c: Expressions, call: Any) -> Val:
    return c.expr(call.args[0])


@_handles("tirx.reinterpret")
def _reinterpret(c: Expressions, call: Any) -> Val:
    value = c.expr(call.args[0])
    dtype, lanes = split_lanes(call.ty)
    source = c.whole(value) if value.lanes > 1 else value.text
    types = f"{c.dtype(value.dtype)}, {c.dtype(dtype)}"
    text = f"arith.reinterpret({source}, {types}, {value.lanes})"
    if not value.varying and lanes == 1:
        text = f"{text}.reshape(())[()]"
        if is_int(dtype):
            text = f"int({text})"
    return c.make(text, dtype, [value], lanes)


@_handles("tirx.isnan", "tirx.isinf", "tirx.isfinite")
def _predicate(c: Expressions, call: Any) -> Val:
    value = c.expr(call.args[0])
    name = op_name(call).rpartition(".")[2]
    return c.make(f"mathfn.predicate({name!r}, {value.text})", "bool", [value], value.lanes)


@_handles("tirx.popcount", "tirx.ctpop")
def _popcount(c: Expressions, call: Any) -> Val:
    value = c.expr(call.args[0])
    counted = c.make(f"mathfn.popcount({value.text})", "int32", [value], value.lanes)
    return c.cast(counted, split_lanes(call.ty)[0])


@_handles("tirx.call_pure_extern", "tirx.call_extern")
def _extern(c: Expressions, call: Any) -> Val | None:
    name = string(call.args[0])
    if is_trip_count(call):
        return c.trip_count(int(call.args[1].value), call.args[2])
    if name in _FENCES:
        c.writer.emit(f"atomics.fence(s, {_FENCES[name]!r}, {c.mask})")
        return None
    if name in _ATOMIC_ADD:
        return _atomic(c, call.args[1], call.args[2])
    function = mathfn.canonical(name)
    if function is None:
        raise EmulatorError("emulator.external", name=name, call=str(call))
    return math(c, function, call.args[1:], call.ty)


@_handles("tirx.cuda.atomic_add", "tirx.atomic_add")
def _cuda_atomic(c: Expressions, call: Any) -> Val:
    return _atomic(c, call.args[0], call.args[1])


@_handles("tirx.cuda.atomic_cas")
def _cuda_swap(c: Expressions, call: Any) -> Val:
    target, compare, value = call.args
    return ptx_memory.update(c, target, "exch", c.expr(value), compare=c.expr(compare))


@_handles("tirx.cuda.thread_fence")
def _fence(c: Expressions, call: Any) -> None:
    c.writer.emit(f"atomics.fence(s, 'gpu', {c.mask})")


def _atomic(c: Expressions, target: Any, operand: Any) -> Val:
    return ptx_memory.update(c, target, "add", c.expr(operand))


@_handles(*_SHUFFLES)
def _shuffle(c: Expressions, call: Any) -> Val:
    value, operand = c.expr(call.args[1]), c.expr(call.args[2])
    width = c.expr(call.args[3])
    kind = _SHUFFLES[op_name(call)]
    text = f"warp.shuffle(s, {kind!r}, {value.text}, {operand.text}, {width.text}, {c.mask})"
    if not value.varying and value.integer:
        text = text.replace(value.text, f"{c.dtype(value.dtype)}.type({value.text})", 1)
    return Val(text, value.dtype, 1, True, c.writer.depth, False)


@_handles("tirx.cuda.__activemask", "tirx.tvm_warp_activemask")
def _active_mask(c: Expressions, call: Any) -> Val:
    text = f"warp.active_mask(s, {c.mask})"
    return Val(text, "uint32", 1, True, c.writer.depth, False)


# Synchronisation


@_handles("tirx.tvm_storage_sync")
def _storage_sync(c: Expressions, call: Any) -> None:
    scope = string(call.args[0])
    if scope in _CTA_SYNC_SCOPES:
        c.writer.emit(f"yield s.barrier({c.mask})")
    elif scope == "warp":
        c.writer.emit(f"s.sync_warp({c.mask})")
    else:
        raise EmulatorError("emulator.sync", scope=scope)


@_handles("tirx.cuda.cta_sync")
def _cta_sync(c: Expressions, call: Any) -> None:
    c.writer.emit(f"yield s.barrier({c.mask})")


@_handles("tirx.cuda.grid_sync")
def _grid_sync(c: Expressions, call: Any) -> None:
    c.writer.emit(f"yield s.barrier({c.mask})")
    c.writer.emit(f"yield from grid_barrier.sync(s, {c.mask})")


@_handles("tirx.cuda.nano_sleep")
def _sleep(c: Expressions, call: Any) -> None:
    c.writer.emit("yield")


@_handles("tirx.cuda.warp_sync")
def _warp_sync(c: Expressions, call: Any) -> None:
    c.writer.emit(f"s.sync_warp({c.mask})")


@_handles("tirx.cuda.mbarrier_wait", "tirx.cuda.mbarrier_wait_acquire_cluster")
def _mbarrier_wait(c: Expressions, call: Any) -> None:
    ptx_hopper.wait(c, call.args[0], call.args[1])


@_handles("tirx.cuda.cluster_sync")
def _cluster_sync(c: Expressions, call: Any) -> None:
    c.writer.emit(f"hopper.cluster_arrive(s, True, {c.mask})")
    c.writer.emit(f"yield from hopper.cluster_wait(s, {c.mask})")


@_handles("tirx.cuda.warpgroup_sync")
def _warpgroup_sync(c: Expressions, call: Any) -> None:
    number = c.expr(call.args[0])
    if number.varying:
        raise EmulatorError("emulator.named_barrier", varies="number")
    c.writer.emit(f"yield s.barrier({c.mask}, {number.text}, {WARPGROUP}, aligned=False)")


@_handles("tirx.cuda.elect_sync")
def _elect_sync(c: Expressions, call: Any) -> Val:
    text = f"hopper.elect(s, {c.mask})[1]"
    leads = Val(text, "bool", 1, True, c.writer.depth, False)
    return c.cast(leads, split_lanes(call.ty)[0])


@_handles("tirx.cuda.cvta_generic_to_shared")
def _shared_address(c: Expressions, call: Any) -> Val:
    return c.cast(c.bytes_of(c.pointer(call)), "uint32")


@_handles("tirx.cuda.wgmma_encode_matrix_descriptor")
def _matrix_descriptor(c: Expressions, call: Any) -> None:
    _, at = ptx_hopper.address(c, call.args[1], 16)
    fields = ", ".join(c.expr(arg).text for arg in call.args[2:5])
    name = c.writer.fresh("desc")
    c.writer.emit(f"{name} = matrix.matrix_descriptor(s, {at}, {fields})")
    ref, index = c.element(c.pointer(call.args[0]), "uint64")
    c.store_at(ref, index, 1, Val(name, "uint64", 1, True, c.writer.depth, False))
