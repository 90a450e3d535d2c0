"""Run passes on a function so that TVM's pass instruments see them: timed, printed and traced.

steps.rewrite(expand, plan)   =>   TVM pass "pipeliner.Expand", which makes expand(func, plan)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import tvm
import tvm_ffi
from tvm import tirx

from .. import errors
from .ir.named_pass import Pass

_P = ParamSpec("_P")
_T = TypeVar("_T")


def function_pass(step: Pass[..., Any], rewrite: Callable[[Any], Any] | None = None) -> Any:
    """Return ``step`` as TVM's pass ``pipeliner.<name>`` on every function of a module.

    ``rewrite``: calls ``step`` with what else it needs; left out where a function is all.
    """

    @tirx.transform.prim_func_pass(opt_level=0, name=step.tvm_name)
    def run(func: Any, mod: Any, ctx: Any) -> Any:
        return step.rewrite(func) if rewrite is None else rewrite(func)

    return run


def module_pass(step: Pass[[], Any]) -> Any:
    """Return ``step``, which rewrites a module, as TVM's pass ``pipeliner.<name>``."""

    @tvm.transform.module_pass(opt_level=0, name=step.tvm_name)
    def run(mod: Any, ctx: Any) -> Any:
        return step.rewrite(mod)

    return run


class Steps:
    """Runs passes one after the other on a function; ``func`` is the function so far."""

    def __init__(self, func: Any) -> None:
        self.func = func

    def run(self, step: Pass[_P, tuple[Any, _T]], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Replace the function by what ``step`` makes of it; return what else it found."""
        found: list[_T] = []

        def rewrite(func: Any) -> Any:
            done, result = step.rewrite(func, *args, **kwargs)
            found.append(result)
            return done

        self._replace(step, rewrite)
        return found[0]

    def rewrite(self, step: Pass[_P, Any], /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Replace the function by what ``step`` makes of it."""
        self._replace(step, lambda func: step.rewrite(func, *args, **kwargs))

    def _replace(self, step: Pass[..., Any], rewrite: Callable[[Any], Any]) -> None:
        mod = function_pass(step, rewrite)(tvm.IRModule({"main": self.func}))
        self.func = mod["main"]


def _register_errors() -> None:
    """Let our errors pass through TVM's C++ with their types instead of as RuntimeError."""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            tvm_ffi.register_error(f"pipeliner.{name}", kind)


_register_errors()
