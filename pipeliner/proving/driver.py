"""Prove what TVM's driver compiles: where it runs nvcc, beside that.

TVM calls a function of its own for each CUDA text (``tvm_callback_cuda_compile``). In its place
stands one that does the same, and proves meanwhile what was announced to it as the next text. What
nobody announced, such as another pipeline's kernels, is compiled as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import tvm
import tvm_ffi

from ..toolchain.nvcc import tvm_compiles
from .beside import Beside, beside, is_possible

_COMPILE: Final = "tvm_callback_cuda_compile"


@dataclass
class _Announced:
    """The lowered module of the next text, once TVM asks for that; ``found``: what came of it."""

    lowered: Callable[[], Any]
    found: Beside | None = None


_next: ContextVar[_Announced | None] = ContextVar("next", default=None)
_is_ours: ContextVar[bool] = ContextVar("is_ours", default=False)
"""Whether a kernel of ours is compiled, which says itself whether it is proved."""


@dataclass
class Proving:
    """Whether a kernel is proved when it is compiled; ``found``: what came of that, None before."""

    is_wanted: bool = False
    found: Beside | None = None

    @contextmanager
    def by_us(self, lowered: Callable[[], Any]) -> Iterator[None]:
        """Prove the kernel while the body of ``with`` compiles it; LoweringError: it is refuted."""
        if not self._is_due:
            yield
            return
        with beside(lowered()) as found:
            yield
        self.found = found

    @contextmanager
    def by_tvm(self, lowered: Callable[[], Any]) -> Iterator[None]:
        """Do so where TVM compiles it in the body of ``with``; ``lowered``: known by then."""
        announced = _announce(lowered) if self._is_due else None
        before = _is_ours.set(True)
        try:
            yield
        finally:
            _is_ours.reset(before)
            _next.set(None)
        if announced is not None:
            self.found = announced.found

    @property
    def _is_due(self) -> bool:
        return self.is_wanted and self.found is None and is_possible()


class Compilation:
    """What one compilation by TVM's driver has lowered so far, and whether it comes to an end.

    The driver finalises host functions and then device functions. Whoever lowers without compiling
    does not finalise the first.
    """

    def __init__(self) -> None:
        self._functions: dict[Any, Any] = {}
        self._is_driver = False

    def parted(self, mod: Any) -> None:
        """Note host and device functions as they are where arguments are still arrays."""
        self._functions = dict(mod.functions.items())

    def host_is_final(self) -> None:
        """Note that the driver has begun to finalise."""
        self._is_driver = True

    def kernels_are_final(self, mod: Any) -> Any:
        """Return kernels as CUDA is printed of them, and announce them to be proved."""
        names = {str(var.name_hint): var for var in self._functions}
        for var, func in mod.functions.items():
            self._functions[names.get(str(var.name_hint), var)] = func
        if self._is_driver and self._functions and not _is_ours.get() and is_possible():
            _announce(lambda: tvm.IRModule(self._functions))
        return mod


def _announce(lowered: Callable[[], Any]) -> _Announced | None:
    """Say what TVM compiles next in this thread; None: it compiles nothing."""
    if not tvm_compiles():
        return None
    _stand_in()
    announced = _Announced(lowered)
    _next.set(announced)
    return announced


@cache
def _stand_in() -> None:
    """Put our function in the place of TVM's, which it calls."""
    compiled = tvm_ffi.get_global_func(_COMPILE)

    def compile_cuda(*arguments: Any) -> Any:
        announced = _next.get()
        if announced is None:
            return compiled(*arguments)
        _next.set(None)
        with beside(announced.lowered()) as found:
            code = compiled(*arguments)
        announced.found = found
        return code

    tvm_ffi.register_global_func(_COMPILE, compile_cuda, override=True)
