"""cuBLASLt by ctypes on a library of numpy's, and the choice among its algorithms by made-up times."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import types
import weakref

import numpy as np
import pytest

from pipeliner.bench.vendor import every, fastest
from pipeliner.bench.vendor.cublaslt import MOST, CublasLt, HeuristicResult
from pipeliner.bench.vendor.fastest import Fastest, NamedCall
from pipeliner.bench.vendor.products import as_gemm, product_of
from pipeliner.errors import ToolError, WorkloadError
from pipeliner.measuring import rounds
from pipeliner.measuring.graphs import KernelNode, names_in
from pipeliner.schedules import ConvInputGrad, ConvWeightGrad, GatedGemm, Gemm, conv1d, conv2d
from pipeliner.schedules.workloads import numpy_dtype
from tests.refusals import refused

from .fake_cublaslt import OK, UNSUPPORTED, FakeCublasLt

POINT = conv2d(2, 3, 5, 8, 12, 1, 1)

PRODUCTS = [
    *(Gemm(24, 16, 40, layout=layout) for layout in ("NN", "NT", "TN", "TT")),
    Gemm(5, 16, 40, batch=3, layout="TN", dtype="bf16"),
    Gemm(24, 16, 40, dtype="int8"),
    Gemm(24, 16, 40, dtype="tf32"),
    Gemm(24, 16, 48, dtype="e4m3", out="bf16"),
    POINT,
    ConvInputGrad(POINT),
    ConvWeightGrad(POINT),
    conv1d(2, 9, 8, 12, 1, dtype="bf16"),
]


@pytest.mark.parametrize("spec", PRODUCTS, ids=lambda spec: spec.name)
def test_a_product_is_told_as_the_library_reads_it(spec) -> None:
    library = FakeCublasLt()
    plan = CublasLt(library).plan(product_of(spec), 1 << 20)
    assert library.limits == [1 << 20]
    assert library.fast == [int(spec.dtype.startswith("float8"))]
    inputs = [np.ascontiguousarray(array) for array in spec.inputs()]
    exact = spec.reference(*inputs)
    made = np.zeros(exact.shape, numpy_dtype(spec.out))
    pointers = (inputs[1].ctypes.data, inputs[0].ctypes.data, made.ctypes.data)
    plan.library.multiply(plan, plan.algorithms[1], pointers, (0, 0), 0)
    assert library.ran == [1]
    np.testing.assert_allclose(made.astype("float64"), exact, rtol=2**-7, atol=1e-4)
    plan.library.release(plan)
    assert library.freed == 5


def test_algorithms_are_named_and_those_that_are_not_supported_left_out() -> None:
    library = FakeCublasLt(states=(OK, UNSUPPORTED, OK))
    plan = CublasLt(library).plan(product_of(PRODUCTS[0]), 0)
    assert [one.name for one in plan.algorithms] == [
        "algorithm 66, tile 20, split-K 1",
        "algorithm 66, tile 22, split-K 1",
    ]
    many = CublasLt(FakeCublasLt(states=(OK,) * 100)).plan(product_of(PRODUCTS[0]), 0)
    assert len(many.algorithms) == MOST
    with refused("peer.cublaslt_status", ToolError, call="cublasLtMatmulAlgoGetHeuristic"):
        CublasLt(FakeCublasLt(states=())).plan(product_of(PRODUCTS[0]), 0)


def test_the_structures_are_as_long_as_c_has_them() -> None:
    assert ctypes.sizeof(HeuristicResult) == 64 + 8 + 4 + 4 + 16
    assert ctypes.sizeof(KernelNode) == 72
    assert KernelNode.kernel.offset == 56


@pytest.mark.parametrize(
    "spec",
    [
        Gemm(8, 8, 8, epilogue=("relu",)),
        Gemm(8, 8, 8, weights="int8"),
        Gemm(8, 8, 8, dtype="uint8"),
        Gemm(None, 8, 8),
        GatedGemm(8, 8, 8),
        conv2d(1, 6, 6, 8, 8, 3, 3, pad=1),
        dataclasses.replace(POINT, layout="NCHW"),
        conv2d(1, 6, 6, 8, 8, 1, 1, stride=2),
        conv2d(1, 6, 6, 8, 8, 1, 1, groups=2),
        conv2d(1, 6, 6, 8, 8, 1, 1, pad=1),
        conv2d(1, 6, 6, 8, 8, 1, 1, epilogue=("relu",)),
    ],
    ids=lambda spec: f"{spec.layout} {spec.title}",
)
def test_what_is_no_plain_product_is_refused(spec) -> None:
    with refused("peer.product", WorkloadError):
        product_of(spec)


def test_a_convolution_of_one_pixel_is_a_product() -> None:
    assert as_gemm(POINT) == Gemm(30, 12, 8, layout="NT")
    assert as_gemm(ConvInputGrad(POINT)) == Gemm(30, 8, 12, layout="NN")
    assert as_gemm(ConvWeightGrad(POINT)) == Gemm(12, 8, 30, layout="TN")


def test_the_fastest_is_found_by_times() -> None:
    """The first sample of each is dropped, and what is far behind is timed twice."""
    counts = [0] * 4
    told = ([9.0, 5.0], [1.0, 3.0], [9.0, 4.0], [9.0, 3.5])

    def time(calls) -> list[float]:
        found = []
        for call in calls:
            at = call()
            found.append(told[at][min(counts[at], 1)])
            counts[at] += 1
        return found

    ways = [lambda at=at: at for at in range(4)]
    assert fastest.fastest(ways, time) == 1
    assert counts == [2, 2 + fastest.SAMPLES, 2, 2 + fastest.SAMPLES]


@pytest.fixture
def timed(torch, monkeypatch: pytest.MonkeyPatch):
    """A call takes what it returns, in a graph so much less than 100."""
    monkeypatch.setattr(fastest, "timed", lambda torch, calls, before=None: [c() for c in calls])

    def captured(torch, call, count):
        return types.SimpleNamespace(replay=lambda: 100 - call())

    monkeypatch.setattr(fastest, "captured", captured)
    monkeypatch.setattr(fastest, "kernel_names", lambda torch, call: (f"kernel {call():g}",))


def test_another_way_may_be_the_fastest_back_to_back(timed) -> None:
    def refuse(*_: object) -> None:
        raise ToolError("peer.cublaslt_status", call="cublasLtMatmul", status=15)

    ways = [
        NamedCall("slow", lambda x: x + 2.0),
        NamedCall("fast", lambda x: x + 1.0),
        NamedCall("none", refuse),
    ]
    run = Fastest(ways, hot=True)
    assert (run(10.0), run(20.0)) == (11.0, 21.0)
    assert run.back_to_back(10.0) == 12.0
    assert run.chosen == "kernel 11, fast, of 2; hot kernel 12, slow"
    cold = Fastest(ways, hot=False)
    assert cold(10.0) == cold.back_to_back(10.0) == 11.0
    assert cold.chosen == "kernel 11, fast, of 2"
    with refused("peer.no_algorithm", ToolError, tried=1):
        Fastest([NamedCall("none", refuse)], hot=False)(1.0)


@pytest.mark.parametrize("wrong", [np.nan, 9.0])
def test_a_way_with_another_result_is_left_out(torch, monkeypatch, wrong: float) -> None:
    monkeypatch.setattr(rounds, "FLUSH_BYTES", 4)
    monkeypatch.setattr(fastest, "timed", lambda torch, calls, before: [1.0 for _ in calls])
    monkeypatch.setattr(fastest, "kernel_names", lambda torch, call: ())
    ways = [
        NamedCall("leaves NaN", lambda c: None),
        NamedCall("right", lambda c: c.fill_(5.0)),
        NamedCall("wrong", lambda c: c.fill_(wrong)),
    ]
    c = torch.Tensor(np.zeros(4, "float16"))
    run = Fastest(ways, hot=False, writes=True)
    run(c)
    assert (list(c.data), run.chosen) == ([5.0] * 4, "right, of 1; 2 wrong")
    with refused("peer.no_algorithm", ToolError, tried=1):
        Fastest(ways[:1], hot=False, writes=True)(c)


def test_every_algorithm_runs_on_tensors(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = Gemm(24, 16, 40)
    library = FakeCublasLt(states=(OK,) * 4, refuses=(0,))
    monkeypatch.setattr(rounds, "FLUSH_BYTES", 4)
    monkeypatch.setattr(every, "WORKSPACE", 16)
    monkeypatch.setattr(fastest, "timed", lambda torch, calls, before: [len([c()]) for c in calls])
    monkeypatch.setattr(fastest, "kernel_names", lambda torch, call: ())
    a, b = (torch.Tensor(np.ascontiguousarray(array)) for array in gemm.inputs())
    c = torch.Tensor(np.full((24, 16), np.nan, "float16"))
    run = every.every_algorithm(gemm, library=CublasLt(library))
    assert run(a, b, c) is c
    np.testing.assert_allclose(c.data, gemm.reference(a.data, b.data), rtol=2**-10, atol=1e-3)
    assert run.chosen == "algorithm 66, tile 21, split-K 1, of 3"
    assert library.ran[-1] == 1


def test_the_workspace_lasts_as_long_as_what_counts_in_it(torch, monkeypatch) -> None:
    """Freed, its memory is that of the next tensor: results were wrong, or never came."""
    lent: list[weakref.ref[np.ndarray]] = []
    empty = torch.empty

    def noted(shape: int, **options):
        tensor = empty(shape, **options)
        lent.append(weakref.ref(tensor.data))
        return tensor

    monkeypatch.setattr(torch, "empty", noted)
    run = every.every_algorithm(Gemm(24, 16, 40), library=CublasLt(FakeCublasLt(states=(OK,))))
    gc.collect()
    (space,) = lent
    assert space() is not None
    del run
    gc.collect()
    assert space() is None


KINDS = {1: 0, 2: 2, 3: 0, 4: 0}

C_NAMES = {
    "cuGraphGetNodes": "nodes",
    "cuGraphNodeGetType": "kind",
    "cuGraphKernelNodeGetParams_v2": "parameters",
    "cuFuncGetName": "of_function",
    "cuKernelGetName": "of_kernel",
}


class Driver:
    """Three nodes: a kernel of a function, a memset, a kernel that is loaded by its library."""

    def __init__(self, status: int = 0) -> None:
        self._status = status

    def __getattr__(self, name: str):
        return getattr(self, C_NAMES[name])

    def nodes(self, graph, nodes, count) -> int:
        assert graph.value == 77
        if nodes is not None:
            nodes[:] = list(KINDS)
        count._obj.value = len(KINDS)
        return self._status

    def kind(self, node, kind) -> int:
        kind._obj.value = KINDS[node.value]
        return 0

    def parameters(self, node, told) -> int:
        if node.value == 3:
            told._obj.kernel = 0x30
        else:
            told._obj.function = 0x10
        return 0

    def of_function(self, name, function) -> int:
        name._obj.value = b"nvjet" if function.value == 0x10 else b"wrong"
        return 0

    def of_kernel(self, name, kernel) -> int:
        name._obj.value = b"splitKreduce" if kernel.value == 0x30 else b"wrong"
        return 0


def test_kernels_of_a_graph_are_named_once() -> None:
    assert names_in(Driver(), 77) == ("nvjet", "splitKreduce")


def test_a_driver_that_does_not_tell_is_an_error() -> None:
    with refused("measure.driver", ToolError, status=999):
        names_in(Driver(999), 77)
