"""Call a loaded kernel on torch tensors with little time on the host.

Everything that shape and type determine is made once: descriptions of the arguments (DLPack's
DLTensor), to which a call adds the addresses. So a tensor needs no view of the shape that the
kernel knows it by: rows in several axes, a transposed matrix, channels_last images.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from tvm_ffi import core

from ..values.elements import element
from .libraries import LoadedKernel
from .problems import TorchCall, in_memory
from .workspaces import Workspace

ALIGNMENT: Final = 16
"""Bytes: of the widest access, and of what TMA reads. What torch allocates is more aligned."""

CUDA: Final = 2
"""DLPack's device type."""

_CODES: Final = {"float": 2, "bfloat": 4, "int": 0, "uint": 1}
"""DLPack's kinds of types."""


class _DLTensor(ctypes.Structure):
    """DLPack's description of an array."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Described(threading.local):
    """Descriptions of one kernel's arguments; each thread has its own, since calls write them."""

    def __init__(self, arguments: Sequence[tuple[Sequence[int], str]], kind: int, device: int):
        self.kept = []
        self.tensors = []
        for shape, dtype in arguments:
            extents = (ctypes.c_int64 * len(shape))(*shape)
            steps = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
            strides = (ctypes.c_int64 * len(shape))(*steps)
            self.kept += [extents, strides]
            places = (ctypes.addressof(extents), ctypes.addressof(strides))
            bits = 8 * element(dtype).nbytes
            code = _CODES[dtype.rstrip("0123456789")]
            self.tensors.append(
                _DLTensor(None, kind, device, len(shape), code, bits, 1, *places, 0)
            )
        self.pointers = [ctypes.c_void_p(ctypes.addressof(one)) for one in self.tensors]


def launcher(
    kernel: LoadedKernel, problem: TorchCall, device: int, kind: int = CUDA
) -> Callable[..., Any]:
    """The kernel as ``launch(*operands)``, which returns the output, newly allocated.

    It runs on torch's current stream. None is returned, and nothing done, where an operand does
    not begin at a multiple of ``ALIGNMENT`` bytes.
    """
    spec = problem.spec
    types = [spec.storage] * 2 + [spec.out] * (len(in_memory(problem)) - 2)
    arguments = [*zip(in_memory(problem), types)]
    arguments += [(one.shape, one.dtype) for one in kernel.workspaces]
    described = _Described(arguments, kind, device)
    run, workspaces = kernel.run, kernel.workspaces
    count = len(arguments) - len(workspaces) - 1
    shape, strides = problem.out, _strides(problem)
    dtype = getattr(torch, spec.out)
    place = torch.device("cuda", device) if kind == CUDA else torch.device("cpu")
    several = kind == CUDA and torch.cuda.device_count() > 1
    empty_strided = torch.empty_strided
    stream_of = torch._C._cuda_getCurrentRawStream if kind == CUDA else None
    set_stream = core._env_set_current_stream

    def launch(*operands: Any) -> Any:
        tensors = described.tensors
        bits = 0
        for at in range(count):
            address = operands[at].data_ptr()
            bits |= address
            tensors[at].data = address
        if bits & (ALIGNMENT - 1):
            return None
        out = empty_strided(shape, strides, dtype=dtype, device=place)
        tensors[count].data = out.data_ptr()
        if workspaces:
            scratch = [_scratch(one, place) for one in workspaces]
            for at, one in enumerate(scratch, count + 1):
                tensors[at].data = one.data_ptr()
        if stream_of is None:
            run(*described.pointers)
            return out
        stream = stream_of(device)
        before = set_stream(CUDA, device, stream)
        try:
            run(*described.pointers)
        finally:
            if before != stream:
                set_stream(CUDA, device, before)
        return out

    if not several:
        return launch

    current = torch._C._cuda_getDevice

    def launch_there(*operands: Any) -> Any:
        if current() == device:
            return launch(*operands)
        with torch.cuda.device(device):
            return launch(*operands)

    return launch_there


def _scratch(workspace: Workspace, place: Any) -> Any:
    """Memory that is free again, for later work of this stream, once the call returns."""
    return torch.empty(workspace.shape, dtype=getattr(torch, workspace.dtype), device=place)


def _strides(problem: TorchCall) -> tuple[int, ...]:
    """Strides of the output."""
    shape = problem.out
    order = problem.axes or tuple(range(len(shape)))
    steps = {
        axis: math.prod(shape[after] for after in order[at + 1 :]) for at, axis in enumerate(order)
    }
    return tuple(steps[axis] for axis in range(len(shape)))
