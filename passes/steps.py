"""Run steps on a function so that TVM's pass instruments see them: timed, printed and traced.

steps.rewrite("Expand", lambda func: expand(func, plan))   =>   TVM pass "pipeliner.Expand"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tvm
import tvm_ffi
from tvm import tirx

from .. import errors

_T = TypeVar("_T")


def function_pass(name: str, rewrite: Callable[[Any], Any]) -> Any:
    """Return ``rewrite`` as the pass ``pipeliner.<name>`` on every function of a module."""

    @tirx.transform.prim_func_pass(opt_level=0, name=f"pipeliner.{name}")
    def run(func: Any, mod: Any, ctx: Any) -> Any:
        return rewrite(func)

    return run


class Steps:
    """Runs steps one after the other on a function; ``func`` is the function so far."""

    def __init__(self, func: Any) -> None:
        self.func = func

    def run(self, name: str, step: Callable[[Any], tuple[Any, _T]]) -> _T:
        """Replace the function by what ``step`` makes of it; return what else it found."""
        found: list[_T] = []

        def rewrite(func: Any) -> Any:
            done, result = step(func)
            found.append(result)
            return done

        mod = function_pass(name, rewrite)(tvm.IRModule({"main": self.func}))
        self.func = mod["main"]
        return found[0]

    def rewrite(self, name: str, step: Callable[[Any], Any]) -> None:
        """Replace the function by what ``step`` makes of it."""
        self.run(name, lambda func: (step(func), None))


def _register_errors() -> None:
    """Let our errors pass through TVM's C++ with their types instead of as RuntimeError."""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            tvm_ffi.register_error(f"pipeliner.{name}", kind)


_register_errors()
