"""What a function of a user's is compared with: itself, unpipelined."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.measuring import BuiltCandidate, GpuBench, MadeAtItsTurn, Trial, process
from pipeliner.records.functions import function_workload
from tests.refusals import the
from tests.tuning.functions import COLUMNS, ROWS, reversing

from .. import fake_torch

conditions, operands = (
    importlib.import_module(f"pipeliner.measuring.{name}") for name in ("conditions", "operands")
)

X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")


@pytest.fixture(autouse=True)
def _stand_in(torch, monkeypatch):
    """The emulator in the GPU's place."""

    def unpipelined(source, target, plan):
        kernel = pipeliner.build(source, "a100", depth=1)

        class Runs:
            plan = kernel.plan

            def __call__(self, *tensors):
                arrays = kernel.emulate(*(tensor.data for tensor in tensors)).outputs
                for tensor, name in zip(tensors, arrays):
                    tensor.data[...] = arrays[name]

        return Runs()

    monkeypatch.setattr(operands, "unpipelined", unpipelined)
    monkeypatch.setattr(conditions, "gpu_arch", lambda: "sm_80")


class Runs(BuiltCandidate):
    """A kernel of ``reversing`` on numpy, wrong by ``slack``'s namesake."""

    wrong = 0.0
    rows = ROWS

    def load(self):
        def run(x, y) -> None:
            fake_torch.Clock.now += 1.0
            y.data[: self.rows] = 2 * x.data[: self.rows, ::-1] * (1 + self.wrong)

        return run, ""


def measured(**changes):
    workload = function_workload(reversing(4))
    made = type("Made", (Runs,), changes)
    return process.Answers()(Trial(made(workload)))


def test_a_right_kernel_has_times():
    found = measured()
    assert not found.failure
    assert found.us == pytest.approx(1000)


@pytest.mark.parametrize("changes", [{"wrong": 1e-3}, {"rows": ROWS - 1}, {"wrong": np.nan}])
def test_what_does_otherwise_than_the_function_itself_is_wrong(changes):
    """Also where it leaves a row: that is random still, not what the function writes."""
    error = the("measure.wrong", [measured(**changes).failure])["error"]
    assert not error <= 1


def test_rounding_is_allowed():
    assert not measured(wrong=1e-7).failure


@T.prim_func(s_tir=True)
def adds(X: T.Buffer((64,), "float16"), Y: T.Buffer((64,), "float16")):
    T.func_attr({"global_symbol": "adds", "tirx.noalias": True})
    for t in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("adds"):
            Y[t] = Y[t] + X[t]


def test_what_is_read_and_written_begins_anew_each_time():
    bench = GpuBench(function_workload(adds))

    def run(x, y) -> None:
        fake_torch.Clock.now += 1.0
        y.data[...] += x.data

    entry = bench.ready(MadeAtItsTurn(make=lambda: (run, "")))
    assert entry.worst <= 1
    bench.race([entry], process.Rounds(5))
    bench.check(entry)
    assert entry.worst <= 1
    assert len(entry.times) == 5


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_arrays_go_there_and_back(dtype):
    array = X.astype(dtype)
    tensor = operands.to_torch(fake_torch, array)
    assert (operands.to_numpy(tensor, array) == array).all()
