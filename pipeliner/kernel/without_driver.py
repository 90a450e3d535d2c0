"""Libraries with machine code, made where nvcc is and no GPU driver.

TVM compiles CUDA where its CUDA runtime loads, which wants ``libcuda.so.1``, and else keeps the
source for a machine that has one. It calls the driver for nothing that a compiler does. So a
process of its own gets a library of that name with the functions that the runtime wants, none of
which finds a GPU; it is made for the occasion and goes when this process ends.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from .. import knobs
from ..diagnostics import Reason
from ..errors import ToolError
from ..toolchain import nvcc
from ..workers import Worker
from .postproc import POSTPROC

DRIVER: Final = "libcuda.so.1"
PATIENCE: Final = 3600.0
"""Seconds that nvcc may take, of which large kernels take minutes."""

_RUNTIME: Final = "libtvm_runtime_cuda.so"
_NO_DEVICE: Final = 100
"""CUDA_ERROR_NO_DEVICE (CUDA driver API)."""

_WANTED: Final = re.compile(rb"\bcu[A-Z]\w+")


def export(
    mod: Any,
    target: Any,
    pipeline: str,
    config: Mapping[str, Any],
    cuda: str,
    path: Path,
    *,
    line_info: bool = False,
) -> None:
    """Write the library of ``mod`` with ``cuda``, as nvcc compiles it, for its device functions.

    ``line_info``: with the lines of ``cuda``, for profilers.

    ToolError: nvcc, its host compiler or the linker fails.
    """
    import tvm

    arguments = tvm.ir.save_json(mod), tvm.ir.save_json(target), pipeline, dict(config), cuda
    _compiler().call(*arguments, str(path.resolve()), line_info, seconds=PATIENCE)


@cache
def _compiler() -> Worker:
    """The process that compiles, kept for further kernels."""
    with_driver = {"LD_LIBRARY_PATH": knobs.library_path(_libraries())}
    return Worker(_Compiler, {**with_driver, **knobs.UNPROVED})  # whoever asks for a library proves


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where the driver's stand-in is, until this process ends."""
    return tempfile.TemporaryDirectory(prefix="pipeliner-")


def _libraries() -> list[Path]:
    """Folders with the driver's stand-in and the toolkit's libraries."""
    folder = Path(_folder().name)
    wanted = sorted({name.decode() for name in _WANTED.findall(_runtime().read_bytes())})
    functions = [f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in wanted]
    nvcc.shared_library("\n".join(functions), folder / DRIVER)
    root = nvcc.find_nvcc().resolve().parent.parent
    return [folder, *(root / name for name in ("lib64", "lib") if (root / name).is_dir())]


def _runtime() -> Path:
    """TVM's CUDA runtime; ToolError: this TVM was built without."""
    import tvm

    path = Path(tvm.__file__).parent / "lib" / _RUNTIME
    if not path.is_file():
        raise ToolError("nvcc.no_runtime", library=_RUNTIME)
    return path


class _Compiler:
    """In the worker: a module in, a library out."""

    def __init__(self) -> None:
        if not nvcc.tvm_compiles():
            raise ToolError("nvcc.runtime", library=_RUNTIME)

    def __call__(
        self,
        mod: str,
        target: str,
        pipeline: str,
        config: dict[str, Any],
        cuda: str,
        path: str,
        line_info: bool,
    ) -> None:
        import tvm
        import tvm_ffi

        from ..passes import lower  # which registers the pipeline

        assert lower.PIPELINE
        chosen = tvm.ir.load_json(target)
        tvm_ffi.register_global_func(POSTPROC, lambda code, target: cuda, override=True)
        with nvcc.for_tvm(line_info=line_info), chosen, tvm.transform.PassContext(config=config):
            built = tvm.compile(tvm.ir.load_json(mod), chosen, tir_pipeline=pipeline)
        try:
            built.export_library(path)
        except RuntimeError as err:
            raise ToolError(Reason.text(linker_says(str(err)))) from err


def linker_says(text: str) -> str:
    """The first line of what TVM reports of a linker, without its own words around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    around = ("Compilation error", "Command line")
    return next((line for line in lines if not line.startswith(around)), lines[-1])
