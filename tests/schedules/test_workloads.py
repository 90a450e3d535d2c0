from __future__ import annotations

import numpy as np
import pytest
from tvm import s_tir

from pipeliner.errors import WorkloadError
from pipeliner.schedules.workloads import DTYPES, LAYOUTS, Gemm
from pipeliner.schedules.workloads.base.dtypes import exact, random_array
from tests.refusals import refused


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("m", [5, None])
def test_functions_are_well_formed(layout, batch, m):
    func = Gemm(m, 4, 3, batch=batch, layout=layout).function()
    assert s_tir.analysis.verify_well_formed(func)
    assert [str(param.name) for param in func.params] == ["A", "B", "C"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_follows_the_layout(layout):
    gemm = Gemm(2, 3, 4, dtype="float32", layout=layout)
    a, b = gemm.inputs(seed=1)
    left = a if layout[0] == "N" else a.T
    right = b if layout[1] == "N" else b.T
    np.testing.assert_allclose(gemm.reference(a, b), left @ right, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "storage", "accumulator", "out"),
    [
        ("fp32", "float32", "float32", "float32"),
        ("tf32", "float32", "float32", "float32"),
        ("fp16", "float16", "float32", "float16"),
        ("bf16", "bfloat16", "float32", "bfloat16"),
        ("int8", "int8", "int32", "int32"),
        ("uint8", "uint8", "int32", "int32"),
    ],
)
def test_defaults_of_each_type(dtype, storage, accumulator, out):
    gemm = Gemm(1, 1, 1, dtype=dtype)
    assert (gemm.storage, gemm.accumulator, gemm.out) == (storage, accumulator, out)


def test_random_integers_are_of_their_type_and_have_its_sign():
    rng = np.random.default_rng(0)
    for dtype, low, high in (("int8", -8, 7), ("uint8", 0, 15)):
        array = random_array(rng, (1000,), dtype)
        assert array.dtype == dtype
        assert (array.min(), array.max()) == (low, high)
    assert exact(np.array([200], np.uint8)).dtype == np.int64


def test_names_tell_workloads_apart():
    workloads = [
        Gemm(8, 8, 8, dtype=dtype, layout=layout) for dtype in DTYPES for layout in LAYOUTS
    ]
    workloads += [
        Gemm(None, 8, 8),
        Gemm(8, 8, 8, batch=2),
        Gemm(8, 8, 8, out="float32"),
        Gemm(8, 8, 8, accumulator="float16"),
    ]
    assert len({gemm.name for gemm in workloads}) == len(workloads)
    assert all(gemm.name.isidentifier() for gemm in workloads)


@pytest.mark.parametrize(
    ("arguments", "code", "args"),
    [
        ({"dtype": "float13"}, "workload.dtype", {"choices": DTYPES, "value": "float13"}),
        ({"layout": "NM"}, "workload.layout", {"choices": LAYOUTS, "value": "NM"}),
        ({"n": 0}, "workload.extent", {"name": "n", "least": 1, "value": "0"}),
        ({"k": None}, "workload.extent", {"name": "k", "least": 1, "value": "None"}),
        ({"batch": -1}, "workload.extent", {"name": "batch", "least": 1, "value": "-1"}),
        ({"m": 1 << 31}, "workload.large_extent", {"name": "m", "value": 1 << 31}),
        ({"weights": "int4"}, "gemm.weights", {"dtype": "float16", "weights": "int4"}),
        (
            {"accumulator": "int32"},
            "workload.accumulator",
            {"choices": ("float32", "float16"), "value": "int32"},
        ),
        (
            {"dtype": "int8", "out": "float16"},
            "workload.out",
            {"choices": ("int32", "int8"), "value": "float16"},
        ),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(arguments, code, args):
    with refused(code, WorkloadError, **args):
        Gemm(**{"m": 1, "n": 1, "k": 1, **arguments})


def test_an_open_m_must_be_given_for_numbers():
    gemm = Gemm(None, 4, 4)
    assert gemm.flops(3) == 2 * 3 * 4 * 4
    with refused("gemm.symbolic_m", WorkloadError):
        gemm.inputs()
