"""Libraries with machine code, made where no GPU driver is."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import pipeliner
from pipeliner import knobs
from pipeliner.errors import ToolError
from pipeliner.kernel import without_driver
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import Gemm
from pipeliner.toolchain import nvcc
from tests.refusals import refused

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(nvcc.tvm_compiles(), reason="TVM finds a driver here"),
]

SPEC = Gemm(m=128, n=128, k=128, dtype="float16")

MAGIC = b"\x50\xed\x55\xba"

LOAD = """
import sys, tvm
def compiled(*_):
    raise RuntimeError("it is compiled anew")
tvm.register_global_func("tvm_callback_cuda_compile", compiled, override=True)
module = tvm.runtime.load_module(sys.argv[1])
assert [part.kind for part in module.imports] == ["cuda"]
assert module.implements_function(sys.argv[2])
assert "pipeliner" not in sys.modules
"""


def architectures(library: bytes) -> list[int]:
    """The architectures of machine code in the fat binaries of a library, 1000 more for PTX."""
    found, at = [], library.find(MAGIC)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", library, at)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, own, length = struct.unpack_from("<HHIQ", library, entry)
            (number,) = struct.unpack_from("<I", library, entry + 28)
            found.append(number + 1000 * (kind == 1))
            entry += own + length
        at = library.find(MAGIC, end)
    return found


def built(target: str) -> Kernel:
    return pipeliner.build(SPEC, target, instruction="wgmma" if target == "h100" else "mma")


@pytest.mark.parametrize(
    ("target", "arch", "number"), [("a100", "sm_80", 80), ("h100", "sm_90a", 90)]
)
def test_the_library_holds_machine_code_for_the_target(
    target: str, arch: str, number: int, tmp_path: Path
) -> None:
    path = tmp_path / "k.so"
    kernel = built(target)
    assert kernel.export(path).startswith(f"machine code for {arch},")
    library = path.read_bytes()
    assert architectures(library) == [number]
    assert b"__global__" not in library
    search = knobs.library_path(without_driver._libraries())
    subprocess.run(
        [sys.executable, "-c", LOAD, str(path), kernel.name],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": search},
    )


@pytest.mark.deep("test_machine_code_has_the_lines_of_the_annotated_file")
def test_the_library_names_the_file_whose_lines_it_has(tmp_path: Path) -> None:
    built("a100").with_line_info(tmp_path / "lines_of_k.cu").export(tmp_path / "k.so")
    library = (tmp_path / "k.so").read_bytes()
    assert b"lines_of_k.cu" in library
    assert b"__global__" not in library


def test_source_is_left_to_who_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.so"
    kernel = built("a100")
    said = "CUDA source, which nvcc compiles for sm_80 where it is loaded"
    assert kernel.export(path, compiled=False) == said
    assert b"__global__" in path.read_bytes()
    monkeypatch.setattr(nvcc, "is_found", lambda: False)
    assert kernel.export(path) == said


def test_what_nvcc_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = built("a100")
    monkeypatch.setattr(Kernel, "cuda", "no C at all")
    with refused("kernel.export", ToolError):
        kernel.export(tmp_path / "k.so")


@pytest.mark.deep("tests/test_doctor.py::test_where_tvm_compiles_it_is_refused_in_the_same_words")
def test_a_gpu_that_nvcc_no_longer_compiles_for_is_refused_in_a_line(tmp_path: Path) -> None:
    if min(nvcc.architectures(nvcc.find_nvcc())) <= 61:
        pytest.skip("this nvcc compiles for sm_61")
    with refused("nvcc.arch", ToolError, arch="sm_61") as caught:
        built("gtx1080ti").export(tmp_path / "library.so")
    assert "\n" not in str(caught.value)
