"""cuDNN as torch has it, on a stand-in for torch: gradients, engines tried, what it has not."""

from __future__ import annotations

import numpy as np
import pytest

from pipeliner.bench.vendor import fastest
from pipeliner.bench.vendor.convolutions import cudnn, every_engine
from pipeliner.errors import WorkloadError
from pipeliner.measuring import rounds
from pipeliner.schedules import ConvInputGrad, ConvWeightGrad, conv2d
from tests.refusals import refused

from .. import fake_torch
from .makers import CONVS


@pytest.mark.parametrize("conv", CONVS, ids=lambda conv: conv.name)
@pytest.mark.parametrize("of", [ConvInputGrad, ConvWeightGrad])
def test_gradients_of_torch_are_called_right(torch, conv, of) -> None:
    spec = of(conv)
    inputs = [fake_torch.Tensor(array) for array in spec.inputs()]
    made = cudnn(spec)(*inputs, None)
    assert made.shape == spec.shapes()[-1]
    exact = spec.reference(*(tensor.data for tensor in inputs))
    np.testing.assert_allclose(made.data.astype("float64"), exact, rtol=2**-10, atol=1e-3)


def test_every_engine_is_tried_at_the_first_call(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool, bool]] = []
    convolve, flags = fake_torch.nn.functional.conv2d, fake_torch.backends.cudnn

    def noted(*args, **options):
        asked.append((flags.benchmark_limit, flags.deterministic, flags.allow_tf32))
        return convolve(*args, **options)

    monkeypatch.setattr(fake_torch.nn.functional, "conv2d", noted)
    named = ("sm90_fprop", "reorder")
    monkeypatch.setattr(fastest, "kernel_names", lambda torch, call: named)
    monkeypatch.setattr(rounds, "FLUSH_BYTES", 4)
    monkeypatch.setattr(fastest, "fastest", lambda calls, time: 2)
    conv = CONVS[0]
    x, w = (fake_torch.Tensor(array) for array in conv.inputs())
    run = every_engine(conv)
    exact = conv.reference(x.data, w.data)
    np.testing.assert_allclose(run(x, w, None).data, exact, rtol=2**-10, atol=1e-4)
    ways = [(0, False, False), (0, False, True), (0, True, False), (0, True, True)]
    assert asked == [*ways, ways[2]]
    assert (flags.benchmark_limit, flags.deterministic) == (10, False)
    assert run.chosen == "sm90_fprop + reorder, of 4"


def test_a_search_ends_when_its_time_is_up_and_says_so(
    torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastest, "kernel_names", lambda torch, call: ("sm90_fprop",))
    monkeypatch.setattr(rounds, "FLUSH_BYTES", 4)
    monkeypatch.setattr(fastest, "fastest", lambda calls, time: len(calls) - 1)
    clock = iter([0.0, fastest.SECONDS, fastest.SECONDS + 1])
    monkeypatch.setattr(fastest.time, "monotonic", lambda: next(clock))
    conv = CONVS[0]
    x, w = (fake_torch.Tensor(array) for array in conv.inputs())
    run = every_engine(conv)
    run(x, w, None)
    assert run.chosen == "sm90_fprop, of 2; cut after 8 s, 2 not tried"


def test_cudnn_chooses_its_algorithm_by_trying(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_torch.backends.cudnn, "benchmark", False)
    conv = CONVS[0]
    x, w = (fake_torch.Tensor(array) for array in conv.inputs())
    cudnn(conv)(x, w, None)
    assert fake_torch.backends.cudnn.benchmark is True


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (ConvWeightGrad(conv2d(1, 6, 6, 4, 8, 3, 3, dtype="int8")), "peer.types"),
        (conv2d(1, 6, 6, 4, 8, 3, 3, epilogue=("relu",)), "peer.forward"),
        (conv2d(1, 6, 6, 4, 8, 3, 3, pad=(0, 1, 0, 1)), "peer.padding"),
        (conv2d(1, 6, 6, 4, 8, 3, 3, dtype="int8"), "peer.types"),
        (conv2d(1, 6, 6, 4, 8, 3, 3, out="fp32"), "peer.types"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_torch_has_no_such_convolution(torch, spec, code: str) -> None:
    with refused(code, WorkloadError, peer="cuDNN"):
        cudnn(spec)
