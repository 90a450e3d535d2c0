"""What this machine has, what each missing thing disables, and how to get it."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal

from . import versions
from .errors import ToolError
from .machine import MACHINES
from .toolchain import nvcc

Status = Literal["ok", "missing", "refused"]

PYTHON: Final = (3, 10)
_PROBE: Final = 'extern "C" __global__ void probe() {}\n'
_PROBE_ARCH: Final = "sm_80"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for.

    ``refused``: found, and cannot be used. ``disables``: what does not work without it. ``remedy``:
    how to get it. Both are empty where nothing is wrong. ``required``: nothing works without it.
    """

    name: str
    status: Status
    detail: str
    disables: str = ""
    remedy: str = ""
    required: bool = False


def examine() -> list[Finding]:
    """Everything that pipeliner can make use of, in the order in which it is needed."""
    probes: tuple[Callable[[], Finding | None], ...] = (
        _python,
        _tvm,
        _networkx,
        _rich,
        _shtab,
        _nvcc,
        _earlier,
        _ptxas,
        _disassembler,
        _driver,
        _gpu,
        _torch,
    )
    return [found for probe in probes if (found := probe()) is not None]


def healthy(findings: list[Finding]) -> bool:
    """Whether kernels can be planned, lowered and emulated."""
    return all(found.status == "ok" for found in findings if found.required)


def _python() -> Finding:
    detail = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < PYTHON:
        wanted = ".".join(map(str, PYTHON))
        return Finding("python", "refused", detail, "everything", f"Python {wanted} or newer", True)
    return Finding("python", "ok", detail, required=True)


def _tvm() -> Finding:
    tvm, ffi = versions.installed("tvm"), versions.installed("tvm_ffi")
    detail = f"apache-tvm {tvm or 'missing'}, apache-tvm-ffi {ffi or 'missing'}"
    reason = versions.refusal(tvm, ffi)
    if reason is None:
        return Finding("TVM", "ok", detail, required=True)
    status: Status = "missing" if tvm is None or ffi is None else "refused"
    return Finding("TVM", status, str(reason.why), "everything", versions.REMEDY, True)


def _networkx() -> Finding:
    return _package("networkx", "everything", "pip install networkx", required=True)


def _rich() -> Finding:
    return _package("rich", "coloured tables", "pip install 'tvm-pipeliner[cli]'")


def _shtab() -> Finding:
    return _package("shtab", "completion in shells", "pip install 'tvm-pipeliner[cli]'")


def _torch() -> Finding:
    disables = (
        "bench, tune, experiment, record, calibrate (it times, checks results, and has cuBLAS and "
        "cuDNN)"
    )
    return _package("torch", disables, "pip install torch")


def _package(name: str, disables: str, remedy: str, required: bool = False) -> Finding:
    if find_spec(name) is None:
        return Finding(name, "missing", "not installed", disables, remedy, required)
    return Finding(name, "ok", "installed", required=required)


def _nvcc() -> Finding:
    disables = "PTX, SASS, resource reports, running kernels (planning and emulation still work)"
    try:
        path = nvcc.find_nvcc()
        detail = f"{nvcc.version(path)} ({path})"
    except ToolError as err:
        return Finding("nvcc", "missing", str(err).split(";")[0], disables, nvcc.GET_NVCC)
    try:
        nvcc.compile_cuda(_PROBE, _PROBE_ARCH, "cubin")
    except ToolError as err:
        remedy = "a C++ compiler that this nvcc supports, such as g++"
        return Finding("nvcc", "refused", f"{detail}: {err}", disables, remedy)
    return Finding("nvcc", "ok", detail)


def _earlier() -> Finding | None:
    """The GPUs that plans are made for and nvcc no longer compiles for; None: there are none."""
    try:
        path = nvcc.find_nvcc()
        known = nvcc.architectures(path)
    except ToolError:
        return None
    gone = [machine for machine in MACHINES if known and machine.capability < min(known)]
    if not gone:
        return None
    detail = f"{', '.join(machine.arch for machine in gone)}: not by this nvcc"
    disables = f"compiling for {', '.join(machine.name for machine in gone)}"
    return Finding("earlier GPUs", "missing", detail, disables, nvcc.GET_EARLIER_NVCC)


def _ptxas() -> Finding:
    path = nvcc.find_tool("ptxas")
    if path is None:
        return Finding("ptxas", "missing", "not found", "compiling CUDA", nvcc.GET_NVCC)
    return Finding("ptxas", "ok", str(path))


def _disassembler() -> Finding:
    path = nvcc.find_tool("nvdisasm") or nvcc.find_tool("cuobjdump")
    if path is None:
        remedy = "pip install nvidia-cuda-nvdisasm"
        return Finding("nvdisasm", "missing", "not found, nor cuobjdump", "SASS", remedy)
    return Finding(path.name, "ok", str(path))


def _driver() -> Finding:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Finding("libcuda", "missing", "not found", _NO_GPU, "NVIDIA's driver, and its GPU")
    return Finding("libcuda", "ok", "libcuda.so.1")


def _gpu() -> Finding:
    if versions.refusal(versions.installed("tvm"), versions.installed("tvm_ffi")) is not None:
        return Finding("GPU", "missing", "not looked for: needs TVM", _NO_GPU, versions.REMEDY)
    from .targets import gpu, gpu_arch

    device = gpu()
    if device is None:
        return Finding("GPU", "missing", "none is visible", _NO_GPU, _GET_GPU)
    return Finding("GPU", "ok", f"{device.device_name} ({gpu_arch()})")


_GET_GPU: Final = (
    "run this on a machine with an NVIDIA GPU; where there is one, nvidia-smi has to list it and "
    "CUDA_VISIBLE_DEVICES must not hide it"
)
_NO_GPU: Final = "running and timing kernels (emulation still works)"
