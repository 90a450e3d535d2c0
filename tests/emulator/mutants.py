"""Break a lowered module: delete one of its calls, or change an argument of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call


def names(mod: Any, wanted: Callable[[str], bool]) -> list[str]:
    """Names of the calls that are statements of their own and wanted, in program order."""
    found: list[str] = []

    def visit(stmt: Any) -> None:
        if isinstance(stmt.value, Call) and wanted(_name(stmt.value)):
            found.append(_name(stmt.value))

    for func in mod.functions.values():
        tvm_ffi.structural_walk(func.body, [(tirx.Evaluate, visit)])
    return found


def without(mod: Any, wanted: Callable[[str], bool], number: int) -> Any:
    """The module with the ``number``-th of its wanted statements deleted."""
    return _rewritten(mod, wanted, number, lambda _call: tirx.Evaluate(0))


def with_argument(
    mod: Any,
    wanted: Callable[[str], bool],
    number: int,
    position: int,
    change: Callable[[Any], Any],
) -> Any:
    """The module with one argument of its ``number``-th wanted statement changed."""

    def replaced(call: Any) -> Any:
        args = list(call.args)
        args[position] = change(args[position])
        return tirx.Evaluate(tirx.call_intrin("", call.op.name, *args))

    return _rewritten(mod, wanted, number, replaced)


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", call.op))


def _rewritten(
    mod: Any, wanted: Callable[[str], bool], number: int, change: Callable[[Any], Any]
) -> Any:
    numbers = itertools.count()

    def visit(stmt: Any) -> Any:
        call = stmt.value
        if not isinstance(call, Call) or not wanted(_name(call)):
            return stmt
        return change(call) if next(numbers) == number else stmt

    return tvm.IRModule({gv: _with_body(f, visit) for gv, f in mod.functions.items()})


def _with_body(func: Any, visit: Callable[[Any], Any]) -> Any:
    body = tvm_ffi.structural_map(func.body, [(tirx.Evaluate, visit)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
