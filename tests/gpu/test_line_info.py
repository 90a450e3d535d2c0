"""Machine code with the lines of the annotated CUDA runs like any other, and has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeliner
from pipeliner.schedules import Gemm

pytestmark = pytest.mark.gpu


def test_a_kernel_with_line_info_computes_the_same_bits(tmp_path: Path) -> None:
    spec = Gemm(m=256, n=128, k=192)
    kernel = pipeliner.build(spec)
    lined = kernel.with_line_info(tmp_path / "k.cu")
    assert lined.sass == kernel.sass
    results = []
    for one in (kernel, lined):
        arrays = [*spec.inputs(), np.zeros((256, 128), "float16")]
        one(*arrays)
        results.append(arrays[-1])
    assert np.any(results[0])
    np.testing.assert_array_equal(*results)


def test_its_library_names_the_file(tmp_path: Path) -> None:
    lined = pipeliner.build(Gemm(m=256, n=128, k=192)).with_line_info(tmp_path / "lines_of_k.cu")
    lined.export(tmp_path / "k.so")
    assert b"lines_of_k.cu" in (tmp_path / "k.so").read_bytes()
