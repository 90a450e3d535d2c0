"""A relax model on a GPU: our kernels mixed with TVM's, against torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from pipeliner import meta
from pipeliner.relax import Schedule
from tests.meta.models import CHANNELS, IMAGES, SIZE, model, weights

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def machine():
    target = meta.target()
    executable = tvm.compile(Schedule(target)(model(weights())), target, tir_pipeline="pipeliner")
    return relax.VirtualMachine(executable, tvm.cuda())


def run(machine, name, x):
    return machine[name](tvm.runtime.tensor(x, tvm.cuda())).numpy()


def test_the_convolution_and_what_follows(machine):
    import torch

    values = {name: torch.tensor(one).double() for name, one in weights().items()}
    x = np.random.default_rng(1).standard_normal((IMAGES, SIZE, SIZE, CHANNELS)).astype("float16")
    images, filters = torch.tensor(x).double(), values["filters"]
    y = torch.nn.functional.conv2d(
        images.permute(0, 3, 1, 2), filters.permute(0, 3, 1, 2), padding=1
    )
    y = y.permute(0, 2, 3, 1).relu().reshape(-1, filters.shape[0])
    y = torch.nn.functional.gelu(y @ values["up"]) @ values["down"]
    np.testing.assert_allclose(run(machine, "conv", x), y.sum(1).numpy(), rtol=0.02, atol=0.1)


@pytest.mark.parametrize("rows", [1, 7, 64, 200])
def test_any_number_of_rows(machine, rows):
    import torch

    values = {name: torch.tensor(one).double() for name, one in weights().items()}
    x = np.random.default_rng(rows).standard_normal((rows, CHANNELS)).astype("float16")
    y = torch.nn.functional.silu(torch.tensor(x).double() @ values["first"]) @ values["down"]
    np.testing.assert_allclose(run(machine, "mlp", x), y.numpy(), rtol=0.02, atol=0.02)
