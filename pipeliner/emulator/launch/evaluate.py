"""Evaluate scalar expressions of host functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import ir
from tvm.ir import prim

from ...errors import EmulatorError
from ..base.arith import floor_div, floor_mod, trunc_div, trunc_mod
from ..base.dtypes import is_int, split_lanes
from ..memory.global_memory import Region

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    prim.Add: lambda a, b: a + b,
    prim.Sub: lambda a, b: a - b,
    prim.Mul: lambda a, b: a * b,
    prim.Div: trunc_div,
    prim.Mod: trunc_mod,
    prim.FloorDiv: floor_div,
    prim.FloorMod: floor_mod,
    prim.Min: min,
    prim.Max: max,
    prim.LShift: lambda a, b: a << b,
    prim.RShift: lambda a, b: a >> b,
    prim.BitwiseAnd: lambda a, b: a & b,
    prim.BitwiseOr: lambda a, b: a | b,
    prim.BitwiseXor: lambda a, b: a ^ b,
    prim.EQ: lambda a, b: a == b,
    prim.NE: lambda a, b: a != b,
    prim.LT: lambda a, b: a < b,
    prim.LE: lambda a, b: a <= b,
    prim.GT: lambda a, b: a > b,
    prim.GE: lambda a, b: a >= b,
    prim.And: lambda a, b: a and b,
    prim.Or: lambda a, b: a or b,
}
"""Binary expressions of host code."""


_ADDRESS: Final = "pipeliner_address"
"""What our host code calls for the address of an argument, where TVM has a pointer."""


def evaluate(expr: Any, env: Mapping[Any, Any]) -> Any:
    """Value of a host-side scalar expression under ``env`` (Var -> value).

    EmulatorError: a variable without one, or an expression that hosts are not known to have.
    """
    if isinstance(expr, int | float):
        return expr
    if isinstance(expr, prim.IntImm | prim.FloatImm):
        return expr.value
    if isinstance(expr, ir.Var):
        if expr not in env:
            raise EmulatorError("emulator.host_variable", name=expr.name)
        return env[expr]
    binary = _BINARY.get(type(expr))
    if binary is not None:
        return binary(evaluate(expr.a, env), evaluate(expr.b, env))
    if isinstance(expr, prim.Cast):
        value = evaluate(expr.value, env)
        return int(value) if is_int(split_lanes(expr.ty)[0]) else float(value)
    if isinstance(expr, prim.Not):
        return not evaluate(expr.a, env)
    if isinstance(expr, prim.Let):
        return evaluate(expr.body, {**env, expr.var: evaluate(expr.value, env)})
    if isinstance(expr, prim.Select):
        taken = expr.true_value if evaluate(expr.condition, env) else expr.false_value
        return evaluate(taken, env)
    if isinstance(expr, ir.Call):
        return _evaluate_call(expr, env)
    raise EmulatorError("emulator.host_expression", kind=type(expr).__name__, expression=str(expr))


def _evaluate_call(call: Any, env: Mapping[Any, Any]) -> Any:
    name = getattr(call.op, "name", "")
    if name == "tirx.buffer_data":
        return evaluate(call.args[0], env)
    if name == "prim.if_then_else":
        return evaluate(call.args[1] if evaluate(call.args[0], env) else call.args[2], env)
    if name == "prim.likely":
        return evaluate(call.args[0], env)
    if name == "tirx.call_pure_extern" and str(call.args[0].value) == _ADDRESS:
        return _address(evaluate(call.args[1], env))
    if name == "tirx.tvm_stack_alloca" and str(call.args[0].value) == "tensormap":
        return None  # until it is encoded
    raise EmulatorError("emulator.host_call", name=name)


def _address(value: Any) -> int:
    if not isinstance(value, Region):
        raise EmulatorError("emulator.host_address", value=str(value))
    return value.address
