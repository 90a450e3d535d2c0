"""TVM compiles other CUDA than it prints: edited, or with comments and the name of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import tvm_ffi

from ..errors import ToolError

POSTPROC: Final = "tvm_callback_cuda_postproc"
"""TVM's hook: what it returns is compiled in place of the CUDA that was printed."""


@contextmanager
def in_place_of_cuda(source: str) -> Iterator[None]:
    """TVM compiles ``source`` whatever CUDA it prints; ToolError: someone else has its hook."""
    if tvm_ffi.get_global_func(POSTPROC, allow_missing=True) is not None:
        raise ToolError("nvcc.postproc", function=POSTPROC)
    tvm_ffi.register_global_func(POSTPROC, lambda code, target: source)
    try:
        yield
    finally:
        tvm_ffi.registry.remove_global_func(POSTPROC)
