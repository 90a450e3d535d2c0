"""Edit and recompile: a kernel whose CUDA a person has changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import tvm_ffi

from ..errors import ToolError, WorkloadError
from .compiled import Kernel

POSTPROC: Final = "tvm_callback_cuda_postproc"
"""TVM's hook: what it returns is compiled in place of the CUDA that was printed."""

_KERNEL: Final = re.compile(r'^extern "C" __global__ ([^;{]*?)\s*\{', re.MULTILINE)


class EditedKernel(Kernel):
    """A kernel with the host code of ``original`` and the device code ``source``.

    WorkloadError: ``source`` has other kernels, or other parameters or launch bounds, than the host
    code launches. What is compiled is no longer what the plan says or the emulator runs.
    """

    def __init__(self, original: Kernel, source: str) -> None:
        super().__init__(
            original.module, original.target, original.pipeline, original.config, original.original
        )
        expected, found = _signatures(original.cuda), _signatures(source)
        for signature in expected:
            if signature not in found:
                if not found:
                    raise WorkloadError("kernel.no_signature", kernel=self.name, expected=signature)
                raise WorkloadError(
                    "kernel.signature", kernel=self.name, expected=signature, found=tuple(found)
                )
        self._source = source

    @cached_property
    def executable(self) -> Any:
        """TVM's executable, with the edited device code."""
        with _in_place_of_cuda(self._source):
            return super().executable


@contextmanager
def _in_place_of_cuda(source: str) -> Iterator[None]:
    """TVM compiles ``source`` whatever CUDA it prints; ToolError: someone else has its hook."""
    if tvm_ffi.get_global_func(POSTPROC, allow_missing=True) is not None:
        raise ToolError("nvcc.postproc", function=POSTPROC)
    tvm_ffi.register_global_func(POSTPROC, lambda code, target: source)
    try:
        yield
    finally:
        tvm_ffi.registry.remove_global_func(POSTPROC)


def _signatures(source: str) -> list[str]:
    """Every kernel's return type, bounds, name and parameters, in one line each."""
    return [" ".join(text.split()) for text in _KERNEL.findall(source)]
