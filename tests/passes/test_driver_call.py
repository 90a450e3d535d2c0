"""The host's call of the driver: what a driver of our own is given, in process and exported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

DRIVER = """
#include <stdint.h>
#include <stdio.h>
int cuTensorMapEncodeIm2col(
    void *map, int dtype, unsigned rank, void *data, const uint64_t *shape, const uint64_t *pitch,
    const int *lower, const int *upper, unsigned channels, unsigned pixels, const unsigned *steps,
    int interleave, int swizzle, int promotion, int fill) {
  printf("%d %d %u %d", (int)((uintptr_t)map % 64), dtype, rank, *(int *)data);
  for (unsigned i = 0; i < rank; i++) printf(" %lu", shape[i]);
  for (unsigned i = 0; i + 1 < rank; i++) printf(" %lu", pitch[i]);
  for (unsigned i = 0; i + 2 < rank; i++) printf(" %d %d", lower[i], upper[i]);
  for (unsigned i = 0; i < rank; i++) printf(" %u", steps[i]);
  printf(" %u %u %d %d %d %d\\n", channels, pixels, interleave, swizzle, promotion, fill);
  fflush(stdout);
  return RESULT;
}
"""

BUILD = """
import sys
import tvm
from tvm import tirx
from tvm.script import tirx as T
from pipeliner.passes.copy.driver_call import encode_im2col
from pipeliner.passes.ir.nodes import Var, buffer, seq

data = buffer([16], "int32", "X", "global")


def encode(name):
    storage = T.tvm_stack_alloca("tensormap", 1)
    var = Var(name, storage.ty)
    return seq(tirx.Bind(var, storage), encode_im2col(
        var, "bfloat16", data.data, (1 << 32, 7, 6, 2), (128, 1 << 33, 5376),
        (-1, -3), (-2, 4), (1, 2, 3, 1), 64, 96, 3, 2,
    ))


func = tirx.PrimFunc([data], seq(encode("X_map"), encode("Z_map"))).with_attr("global_symbol", "main")
built = tvm.compile(tvm.IRModule({"main": func}), "llvm")
"""

RUN = """
import numpy as np
x = tvm.runtime.tensor(np.full(16, 42, "int32"))
call(x)
"""

GIVEN = "0 9 4 42 4294967296 7 6 2 128 8589934592 5376 -1 -2 -3 4 1 2 3 1 64 96 0 3 2 0"


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Folders with a libcuda.so.1 whose function returns that number."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folders = {}
    for result in (0, 1):
        folders[result] = folder = tmp_path_factory.mktemp(f"driver{result}")
        (folder / "driver.c").write_text(DRIVER)
        subprocess.run(
            [compiler, "-shared", "-fPIC", f"-DRESULT={result}", "-Wl,-soname,libcuda.so.1",
             "-o", folder / "libcuda.so.1", folder / "driver.c"],
            check=True,
        )  # fmt: skip
    return folders


def run(script: str, driver: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    known = os.environ.get("LD_LIBRARY_PATH", "")
    env = {**os.environ, "LD_LIBRARY_PATH": f"{driver}:{known}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], env=env, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_driver_is_given_every_number_in_process(drivers: dict[int, Path]) -> None:
    done = run(f"{BUILD}\ncall = built['main']\n{RUN}", drivers[0])
    assert done.stdout.splitlines() == [GIVEN] * 2, done.stderr


@pytest.mark.slow
@pytest.mark.deep("test_the_driver_is_given_every_number_in_process; on a GPU tests/gpu")
def test_an_exported_library_finds_the_driver_by_itself(
    drivers: dict[int, Path], tmp_path: Path
) -> None:
    library = str(tmp_path / "host.so")
    done = run(f"{BUILD}\nbuilt.export_library(sys.argv[1])", drivers[0], library)
    assert done.returncode == 0, done.stderr
    load = "import sys, tvm\ncall = tvm.runtime.load_module(sys.argv[1])['main']"
    done = run(f"{load}\n{RUN}", drivers[0], library)
    assert done.stdout.splitlines() == [GIVEN] * 2, done.stderr


@pytest.mark.slow
def test_what_the_driver_refuses_is_an_error(drivers: dict[int, Path]) -> None:
    done = run(f"{BUILD}\ncall = built['main']\n{RUN}", drivers[1])
    assert done.returncode != 0
    assert "RuntimeError: cannot encode tensor map 'X_map'" in done.stderr
