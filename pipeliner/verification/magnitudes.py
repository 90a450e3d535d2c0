"""How far rounding may take each element of an output, from the statements that make it.

The kernel is run once more on absolute values, every difference a sum: what an element then holds
is the sum of the magnitudes of all that was added up for it, which its rounding errors are relative
to. A sum of n terms errs by at most n roundoffs of that, and by some sqrt(n) where errors are not
all alike (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.s_tir import SBlockRealize
from tvm.tirx.buffer import is_buffer_var

from ..diagnostics import Reason, Value
from ..emulator.base.mathfn import canonical
from ..emulator.lower import is_device_function
from ..errors import EmulatorError
from ..passes.ir.kernels import thread_tag
from ..passes.ir.nodes import const_int, substitute, variables, walk
from .accuracy import ROUNDOFF, TF32_TRUNCATION, cut_error, least_spacing
from .tolerance import AbsoluteBounds, Equal, Tolerance, Within

LAMBDA: Final = 8.0
"""Roundoffs times sqrt(n) that a sum of n terms may err by: one of 10^12 errs by more."""

LEAST: Final = 4.0
"""Roundoffs that any element may err by."""

IDENTITY: Final = 1e37
"""Constants beyond this only start a maximum or minimum."""

_FLOATS: Final = tuple(ROUNDOFF)

_SMOOTH: Final[Mapping[str, tuple[float, float]]] = {
    "tanh": (1.0, 0.0),
    "erf": (2 / math.sqrt(math.pi), 0.0),
    "sin": (1.0, 0.0),
    "cos": (1.0, 1.0),
    "sigmoid": (0.25, 0.5),
}
"""Functions by the largest slope and the value at 0."""

_PASSED_ON: Final = ("if_then_else", "fma", "fabs", "likely", "shuffle", "fmax", "fmin")
"""Parts of the names of calls whose magnitude is what their operands' makes it."""


class _UnboundedError(Exception):
    """The magnitude of a value does not bound its error, for the reason given."""

    def __init__(self, code: str, **args: Value) -> None:
        self.reason = Reason(code, **args)
        super().__init__(str(self.reason))


def magnitude_rule(
    lowered: Any,
    source: Any,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, Any],
    run: Callable[[Any, Sequence[Any]], Mapping[str, Any]],
    instructions: Sequence[str] = (),
) -> Tolerance:
    """A bound for each element of ``wanted``, or relative to it where no bound is known.

    ``source``: the function that ``lowered`` came from, as far as it is known. ``run``: emulates a
    module on arrays. ``instructions``: that multiply.
    """
    return _rule(lambda: _absolute(lowered), source, arrays, wanted, run, instructions)


def source_rule(
    source: Any,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, Any],
    run: Callable[[Any, Sequence[Any]], Mapping[str, Any]],
    instructions: Sequence[str] = (),
) -> Tolerance:
    """As ``magnitude_rule``, where ``run`` takes a PrimFunc such as ``source``."""

    def absolute() -> Any:
        _check(source.body)
        return source.with_body(tvm_ffi.structural_map(source.body, _CHANGES, order="post"))

    return _rule(absolute, source, arrays, wanted, run, instructions)


def _rule(
    make: Callable[[], Any],
    source: Any,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, Any],
    run: Callable[[Any, Sequence[Any]], Mapping[str, Any]],
    instructions: Sequence[str],
) -> Tolerance:
    terms = terms_of(source, arrays)
    unit = roundoff(source)
    try:
        absolute = make()
        inputs = [abs(a) if _is_float(a) else a for a in arrays.values()]
        made = run(absolute, inputs)
        bounds = {
            name: _bound(made[name], want, terms, unit, instructions)
            for name, want in wanted.items()
            if _is_float(made[name])
        }
    except (_UnboundedError, EmulatorError) as err:
        return _relative(wanted, terms, unit, err.reason)
    said = Reason("bound.rounding", factor=factor(terms), roundoff=unit, terms=terms)
    return AbsoluteBounds(said, bounds, Equal())


def factor(terms: int) -> float:
    """Roundoffs, relative to its magnitude, that a sum of so many terms may err by."""
    return max(LEAST, min(terms + 2.0, LAMBDA * math.sqrt(terms)))


def roundoff(source: Any) -> float:
    """The largest of the arithmetic in ``source``, but for what a result is rounded to at last."""
    found = {ROUNDOFF["float32"]}
    params = set(source.params)

    def note(expr: Any) -> None:
        dtype = _element(expr)
        if dtype in ROUNDOFF:
            found.add(ROUNDOFF[dtype])

    def store(stmt: Any) -> None:
        value = stmt.value
        if stmt.buffer in params and type(value) is prim.Cast:
            value = value.value
        walk(value, (prim.Add, prim.Sub, prim.Mul, prim.Div), note)

        def narrow(cast: Any) -> None:
            wider = ROUNDOFF.get(_element(cast.value), 1.0)
            if wider < ROUNDOFF.get(_element(cast), 0.0):
                note(cast)

        walk(value, prim.Cast, narrow)

    walk(source.body, tirx.BufferStore, store)
    doubles = [_element(param) == "float64" for param in params if is_buffer_var(param)]
    return ROUNDOFF["float64"] if doubles and all(doubles) else max(found)


def terms_of(source: Any, arrays: Mapping[str, Any]) -> int:
    """The most values that any element is added up from: iterations that store the same element."""
    known = dict[Any, Any]()
    for param, array in zip(source.params, arrays.values()):
        if is_buffer_var(param):
            for extent, size in zip(param.shape, np.shape(array)):
                if isinstance(extent, ir.Var):
                    known[extent] = tirx.const(size, str(extent.ty.dtype))
        else:
            known[param] = tirx.const(int(array), "int32")
    longest = max((max(np.shape(a), default=1) for a in arrays.values()), default=1)
    return max(1, _Counter(known, longest).count(source.body, ()))


class _Counter:
    """Adds up, over the statements of a function, how often each stores the same element."""

    def __init__(self, known: dict[Any, Any], unknown: int) -> None:
        self._known = known
        self._unknown = unknown

    def count(self, stmt: Any, loops: tuple[tuple[Any, int], ...]) -> int:
        """The largest of what the statements of ``stmt`` add to one element."""
        kind = type(stmt)
        if kind is tirx.SeqStmt:
            return max((self.count(part, loops) for part in stmt.seq), default=1)
        if kind is tirx.For and thread_tag(stmt) is None:
            extent = const_int(substitute(stmt.extent, self._known))
            each = (stmt.loop_var, self._unknown if extent is None else extent)
            return self.count(stmt.body, (*loops, each))
        if kind is SBlockRealize:
            for axis, value in zip(stmt.block.iter_vars, stmt.iter_values):
                self._known[axis.var] = substitute(value, self._known)
            return self.count(stmt.block.body, loops)
        if kind is tirx.IfThenElse:
            other = 1 if stmt.else_case is None else self.count(stmt.else_case, loops)
            return max(other, self.count(stmt.then_case, loops))
        if kind is tirx.BufferStore:
            used = variables([substitute(index, self._known) for index in stmt.indices])
            return math.prod(extent for var, extent in loops if var not in used)
        if kind is tirx.Evaluate:
            return math.prod(extent for _, extent in loops)
        body = getattr(stmt, "body", None)
        return 1 if body is None else self.count(body, loops)


def _bound(made: Any, want: Any, terms: int, unit: float, instructions: Sequence[str]) -> Any:
    """The allowed error of each element, from the magnitudes ``made``."""
    magnitude, value = made.astype(np.float64), abs(want.astype(np.float64))
    if not np.isfinite(magnitude).all():
        raise _UnboundedError("bound.overflow")
    of_sum, of_value = factor(terms) * unit, 2 * ROUNDOFF.get(str(made.dtype), 2.0**-3)
    if any("tf32" in name for name in instructions):
        of_sum += 2 * TF32_TRUNCATION
    if any("e4m3" in name or "e5m2" in name for name in instructions):
        cut = cut_error(terms, terms)
        of_value, of_sum = of_value + cut[0], of_sum + cut[1]
    return of_sum * magnitude + of_value * value + least_spacing(str(made.dtype))


def _relative(wanted: Mapping[str, Any], terms: int, unit: float, why: Reason) -> Tolerance:
    """Relative to each element, and absolute by the median of all: no outlier widens it."""
    units = [ROUNDOFF.get(str(want.dtype), 0.0) for want in wanted.values()]
    rtol = factor(terms) * max([unit, *units])
    sizes = [abs(want.astype(np.float64)).ravel() for want in wanted.values() if _is_float(want)]
    every = np.concatenate(sizes) if sizes else np.zeros(1)
    finite = every[np.isfinite(every)]
    atol = rtol * float(np.median(finite)) if finite.size else 0.0
    return Within(rtol, atol, Reason("bound.unknown", why=why))


def _absolute(mod: Any) -> Any:
    """A lowered module that adds up magnitudes; _UnboundedError: errors do not follow them."""
    functions = dict(mod.functions.items())
    for var, func in functions.items():
        if is_device_function(func):
            _check(func.body)
            body = tvm_ffi.structural_map(func.body, _CHANGES, order="post")
            functions[var] = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return tvm.IRModule(functions, attrs=mod.attrs)


def _check(body: Any) -> None:
    found: list[Any] = []
    kinds = (prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ, prim.NE, prim.Div, ir.Call)
    walk(body, kinds, found.append)
    for expr in found:
        if type(expr) is ir.Call:
            _check_call(expr)
        elif type(expr) is not prim.Div:
            if _element(expr.a) in _FLOATS:
                raise _UnboundedError("bound.compared", expression=str(expr))
        elif _element(expr) in _FLOATS and type(expr.b) is not prim.FloatImm:
            raise _UnboundedError("bound.divided")


def _check_call(call: Any) -> None:
    if _element(call) not in _FLOATS:
        return
    name = _name(call)
    known = _canonical(name) in _SMOOTH or any(part in name for part in _PASSED_ON)
    if not known and not ("atomic" in name.lower() and "add" in name.lower()):
        raise _UnboundedError("bound.called", function=name)


def _sum(expr: Any) -> Any:
    return prim.Add(expr.a, expr.b) if _element(expr) in _FLOATS else expr


def _constant(expr: Any) -> Any:
    value = abs(float(expr.value))
    return tirx.const(0.0 if value > IDENTITY else value, str(expr.ty.dtype))


def _cast(expr: Any) -> Any:
    from_integer = _element(expr) in _FLOATS and _element(expr.value) not in _FLOATS
    return tirx.abs(expr) if from_integer and "float" not in _element(expr.value) else expr


def _call(call: Any) -> Any:
    found = _SMOOTH.get(_canonical(_name(call)))
    if found is None or _element(call) not in _FLOATS:
        return call
    slope, start = found
    dtype = str(call.ty.dtype)
    return call.args[-1] * tirx.const(slope, dtype) + tirx.const(start, dtype)


_CHANGES: Final = [
    (prim.Sub, _sum),
    (prim.FloatImm, _constant),
    (prim.Cast, _cast),
    (ir.Call, _call),
]


def _name(call: Any) -> str:
    name = str(getattr(call.op, "name", call.op))
    if name.endswith(("call_extern", "call_pure_extern")):
        return str(getattr(call.args[0], "value", call.args[0]))
    return name


def _canonical(name: str) -> str:
    short = name.rpartition(".")[2]
    return canonical(short) or short


def _element(expr: Any) -> str:
    """The type of an element of ``expr``, '' where it has none."""
    dtype = getattr(getattr(expr, "ty", None), "dtype", None)
    return "" if dtype is None else str(dtype).partition("x")[0]


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind not in "iub"
