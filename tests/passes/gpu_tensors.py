"""Tensors that say they lie on a GPU, for host code that runs up to its launch without one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

from pipeliner.emulator.lower import is_device_function

_CUDA = 2
_CODES = {"i": 0, "u": 1, "f": 2}


class _Tensor(ctypes.Structure):
    """DLTensor of DLPack."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    """DLManagedTensor of DLPack."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class GpuTensor:
    """``array`` as if it lay in the first GPU's memory, at the address where it is."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensor = _Tensor(
            array.ctypes.data, _CUDA, 0, array.ndim, _CODES[array.dtype.kind],
            array.itemsize * 8, 1, shape, None, 0,
        )  # fmt: skip
        self._managed = _Managed(tensor, None, None)

    def __dlpack__(self, **_: Any) -> Any:
        """The capsule, whose memory is this object's."""
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        return make(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0


class Launched(Exception):
    """The host code has come to its launch, or to what only a GPU can do."""


def call(kernel: Any, *arrays: np.ndarray) -> None:
    """Run the compiled host code of ``kernel``; Launched: it found nothing wrong."""
    with _without_device():
        try:
            _host(kernel)[kernel.name](*[GpuTensor(array) for array in arrays])
        except (RuntimeError, AttributeError) as err:
            raise Launched(str(err)) from err


def _host(kernel: Any) -> Any:
    """The host code of ``kernel`` alone: its kernels cannot be looked up without a GPU."""
    lower, finalize, _ = tirx.get_tir_pipeline(kernel.pipeline)
    bound = kernel.target.with_host("llvm")
    with kernel.target:
        lowered = lower(tirx.transform.BindTarget(bound)(kernel.module))
        host = tirx.transform.Filter(lambda func: not is_device_function(func))(lowered)
        return tvm_ffi.get_global_func("target.build.llvm")(finalize()(host), bound.host)


@contextmanager
def _without_device() -> Iterator[None]:
    name = "__tvm_set_device"
    before = tvm_ffi.get_global_func(name)
    tvm_ffi.register_global_func(name, lambda *_: None, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(name, before, override=True)
