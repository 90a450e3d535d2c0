"""Pooling and means over images with channels innermost: a thread reduces for each output."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from pipeliner import meta
from pipeliner.kernel.compiled import compile_kernel
from pipeliner.relax import Schedule

TARGET = meta.target("h100")


def scheduled(shape, make):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(make(x))
        builder.emit_func_output(out)
    mod = Schedule(TARGET)(builder.get())
    (function,) = (one for one in mod.functions.values() if isinstance(one, tvm.tirx.PrimFunc))
    return function.with_attr("global_symbol", "reduced")


def mean(x):
    return relax.op.mean(x, [1, 2])


def pool(x):
    return relax.op.nn.max_pool2d(x, (2, 2), strides=(2, 2), layout="NHWC")


@pytest.mark.parametrize(
    ("shape", "make", "expected"),
    [
        ((4, 2, 3, 2048), mean, lambda x: x.mean((1, 2))),
        ((1, 8, 16, 256), pool, lambda x: x.reshape(1, 4, 2, 8, 2, 256).max((2, 4))),
    ],
    ids=["mean", "pool"],
)
def test_each_thread_has_an_output(shape, make, expected):
    function = scheduled(shape, make)
    kernel = compile_kernel(function, TARGET)
    assert "__launch_bounds__(128)" in kernel.cuda
    assert "shfl" not in kernel.cuda
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    found = kernel.emulate(x, np.zeros(expected(x).shape, "float32"))
    assert not found.hazards
    *_, out = found.outputs.values()
    np.testing.assert_allclose(out, expected(x), rtol=1e-5, atol=1e-6)


def test_few_outputs_are_left_to_tvm():
    cuda = compile_kernel(scheduled((1, 16, 16, 64), mean), TARGET).cuda
    assert "shfl" in cuda


def test_a_reduction_along_the_last_axis_is_left_to_tvm():
    function = scheduled((16384, 64), lambda x: relax.op.sum(x, 1))
    assert "__launch_bounds__(128)" not in compile_kernel(function, TARGET).cuda
