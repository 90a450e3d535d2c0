"""Edit and recompile: a kernel whose CUDA a person has changed."""

from __future__ import annotations

import re
from typing import Final

from ..errors import WorkloadError
from .compiled import Kernel

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


def _signatures(source: str) -> list[str]:
    """Every kernel's return type, bounds, name and parameters, in one line each."""
    return [" ".join(text.split()) for text in _KERNEL.findall(source)]
