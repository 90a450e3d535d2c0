"""From a call to a kernel: one look into a dictionary, but for the first call of its kind.

The key is all that decides: shapes, strides, types and devices of the operands, and what the op is
given beside them. At first sight the call becomes a workload, its kernel is loaded or built, and
runs. What is refused is remembered as left to PyTorch; what only this call has (an address, a
capture under way) is not.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from ..diagnostics import Reason
from ..errors import PipelinerError, WorkloadError
from ..schedules.workloads import Spec
from ..targets import target_of_gpu
from ..values.failure import why
from .launching import ALIGNMENT, launcher
from .libraries import LoadedKernel, loaded
from .problems import Strided, TorchCall
from .said import left

_LEFT: Final = object()
"""In place of a kernel: calls of this kind are PyTorch's."""

_ENTRIES: Final[dict[Any, Any]] = {}
"""What runs a call, by its key. Kernels stay loaded: a CUDA graph may hold one."""

_KERNELS: Final[dict[tuple[Spec, int], LoadedKernel]] = {}

_LOCK: Final = threading.RLock()


def run(op: str, key: Any, operands: Sequence[Any], problem: Callable[[], TorchCall]) -> Any:
    """The result of ``op`` by a kernel; None: it is left to PyTorch, which has been said.

    ``problem``: what the call is as a workload, asked at first sight.
    """
    entry = _ENTRIES.get(key)
    if entry is None:
        return _first(op, key, operands, problem)
    if entry is _LEFT:
        return None
    out = entry(*operands)
    if out is None:
        left(op, Reason("torch.alignment", nbytes=ALIGNMENT))
    return out


def kernels() -> dict[Spec, str]:
    """The workloads whose kernels are loaded, and where each is from: ``disk`` or ``built``."""
    return {spec: kernel.source for (spec, _), kernel in _KERNELS.items()}


def forget() -> None:
    """Forget what was left to PyTorch, so that it is tried again; kernels stay."""
    with _LOCK:
        for key in [key for key, entry in _ENTRIES.items() if entry is _LEFT]:
            del _ENTRIES[key]


def strided(tensor: Any) -> Strided:
    """``tensor`` without its data."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Strided(tuple(tensor.shape), tuple(tensor.stride()), dtype)


def _first(op: str, key: Any, operands: Sequence[Any], problem: Callable[[], TorchCall]) -> Any:
    with _LOCK:
        entry = _ENTRIES.get(key)
        if entry is not None:  # another thread was first
            return run(op, key, operands, problem)
        try:
            device = _device(operands)
            found = problem()
            here = _not_now(found.spec, device, operands)
            if here is not None:
                left(op, here)
                return None
            entry = launcher(_kernel(found.spec, device), found, device)
            out = entry(*operands)
        except PipelinerError as err:
            left(op, err.reason)
        except Exception as err:  # a bug, or a tool that fails: the caller's work goes on
            left(op, Reason("torch.failed", why=why(err)))
        else:
            _ENTRIES[key] = entry
            return out
        _ENTRIES[key] = _LEFT
        return None


def _device(operands: Sequence[Any]) -> int:
    """The number of the GPU that all operands are on."""
    found = {str(one.device) for one in operands}
    if len(found) > 1:
        raise WorkloadError("torch.devices")
    if not operands[0].is_cuda:
        raise WorkloadError("torch.device", device=found.pop())
    return int(operands[0].get_device())


def _not_now(spec: Spec, device: int, operands: Sequence[Any]) -> Reason | None:
    """Why this call cannot be the first of its kind; None: it can."""
    if any(one.data_ptr() % ALIGNMENT for one in operands):
        return Reason("torch.alignment", nbytes=ALIGNMENT)
    if (spec, device) not in _KERNELS and torch.cuda.is_current_stream_capturing():
        return Reason("torch.capturing")
    return None


def _kernel(spec: Spec, device: int) -> LoadedKernel:
    kernel = _KERNELS.get((spec, device))
    if kernel is None:
        kernel = _KERNELS[spec, device] = loaded(spec, _target(device))
    return kernel


@functools.cache
def _target(device: int) -> Any:
    return target_of_gpu(device)
