"""The peers: TVM's kernels in the emulator, the libraries' runners on a stand-in for torch."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import re
import sys
import types

import numpy as np
import pytest

from pipeliner import bench
from pipeliner.bench import peers
from pipeliner.bench.libraries import triton
from pipeliner.bench.results import EVERY_ALGORITHM, EVERY_ENGINE, TORCH
from pipeliner.bench.vendor.convolutions import cudnn
from pipeliner.errors import ToolError, WorkloadError
from pipeliner.plan.request import Request
from pipeliner.schedules import (
    ConvInputGrad,
    ConvWeightGrad,
    GatedGemm,
    Gemm,
    GemmTile,
    conv2d,
)
from pipeliner.targets import cuda_target
from tests.refusals import refused

from .. import fake_torch
from .makers import CONVS


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (Gemm(256, 256, 256, layout="NN"), r"\d+x\d+x\d+, depth"),
        (conv2d(1, 8, 8, 16, 16, 3, 3, pad=1), r"\d+x\d+x\d+, depth"),
        (
            conv2d(1, 8, 8, 16, 16, 3, 3, pad=1, groups=16),
            r"\d+ x \d+ pixels of \d+ channels a thread, ",
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.part(3)
def test_our_contender_compiles(spec, tile: str) -> None:
    problem = bench.contenders(spec, cuda_target("h100"), Request(), plain=False, peers=())
    kernel, detail = problem.contenders[0].make.kernel()
    assert kernel.arch == "sm_90"
    assert "registers" in detail
    assert re.match(tile, detail)


def test_a_tile_of_another_kind_is_refused() -> None:
    conv = conv2d(1, 8, 8, 16, 16, 3, 3, pad=1)
    tile = GemmTile(64, 64, 32)
    problem = bench.contenders(conv, cuda_target("h100"), Request(), tile, plain=False)
    with refused("tile.kind", WorkloadError, kind="GemmTile"):
        problem.contenders[0].make.kernel()


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.part(6)
def test_the_simt_peer_is_right(stages: int) -> None:
    gemm = Gemm(128, 128, 32, dtype="fp32", layout="NN")
    kernel = peers.stock_simt(gemm, cuda_target("a100"), stages)
    a, b = gemm.inputs()
    outcome = kernel.emulate(a, b, np.full((128, 128), np.nan, "float32"))
    assert not outcome.hazards
    np.testing.assert_allclose(outcome.outputs["C"], gemm.reference(a, b), rtol=0, atol=1e-4)


@pytest.mark.part(3)
@pytest.mark.parametrize("stages", [1, 3, peers.NESTED])
def test_the_mma_peer_is_right(stages: int) -> None:
    gemm = Gemm(128, 2048, 128, dtype="fp16", layout="NN")
    kernel = peers.stock_mma(gemm, cuda_target("a100"), stages)
    a, b = gemm.inputs()
    outcome = kernel.emulate(a, b, np.full((128, 2048), np.nan, "float32"), blocks=[(3, 0, 0)])
    assert not outcome.hazards
    got = outcome.outputs["C"]
    done = ~np.isnan(got)
    assert done.any()
    np.testing.assert_allclose(got[done], gemm.reference(a, b)[done], rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "gemm", "code", "args"),
    [
        (
            peers.stock_mma,
            Gemm(128, 2048, 32, dtype="bf16", layout="NN"),
            "peer.stock",
            {"dtype": "float16"},
        ),
        (peers.stock_mma, Gemm(128, 2048, 32, layout="NT"), "peer.stock", {}),
        (
            peers.stock_mma,
            Gemm(128, 1024, 32, layout="NN"),
            "peer.stock_multiples",
            {"m": 128, "n": 2048, "k": 32},
        ),
        (
            peers.stock_simt,
            Gemm(100, 128, 32, dtype="fp32", layout="NN"),
            "peer.stock_multiples",
            {"m": 128, "n": 128, "k": 8},
        ),
    ],
)
def test_peers_say_what_they_cannot(make, gemm: Gemm, code: str, args: dict[str, object]) -> None:
    with refused(code, WorkloadError, **args):
        make(gemm, cuda_target("a100"), 3)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "tf32", "int8"])
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_cublas_is_called_right(torch, dtype: str, layout: str) -> None:
    gemm = Gemm(32, 16, 24, dtype=dtype, layout=layout)
    a, b = (fake_torch.Tensor(array) for array in gemm.inputs())
    c = fake_torch.empty(gemm.shapes()[-1], getattr(fake_torch, gemm.out), "cuda")
    peers.cublas(gemm)(a, b, c)
    np.testing.assert_allclose(
        c.data.astype("float64"), gemm.reference(a.data, b.data), rtol=2**-8, atol=1e-5
    )
    assert fake_torch.backends.cuda.matmul.allow_tf32 == (dtype == "tf32")


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("out", ["bf16", "fp16", "fp32"])
def test_cublaslt_is_called_right_for_fp8(torch, out: str, fast: bool, monkeypatch) -> None:
    gemm = Gemm(32, 16, 64, dtype="e4m3", out=out)
    a, b = (fake_torch.Tensor(array) for array in gemm.inputs())
    c = fake_torch.empty(gemm.shapes()[-1], getattr(fake_torch, gemm.out), "cuda")
    asked: list[bool] = []
    multiply = fake_torch._scaled_mm

    def noted(*args, use_fast_accum: bool, **options):
        asked.append(use_fast_accum)
        return multiply(*args, use_fast_accum=use_fast_accum, **options)

    monkeypatch.setattr(fake_torch, "_scaled_mm", noted)
    got = peers.cublas(gemm, fast=fast)(a, b, c)
    assert asked == [fast]
    assert got.dtype == c.dtype
    np.testing.assert_allclose(
        got.data.astype("float64"), gemm.reference(a.data, b.data), rtol=2**-7, atol=1e-3
    )


@pytest.mark.parametrize(
    "gemm",
    [
        Gemm(32, 16, 64, dtype="e5m2"),
        Gemm(32, 16, 64, dtype="e4m3", layout="NN"),
        Gemm(32, 16, 64, dtype="e4m3", batch=2),
        Gemm(32, 16, 64, dtype="e4m3", epilogue=("relu",)),
    ],
    ids=lambda gemm: gemm.name,
)
def test_cublaslt_says_what_it_has_not_of_fp8(torch, gemm: Gemm) -> None:
    with refused("peer.cublaslt", WorkloadError):
        peers.cublas(gemm)


@pytest.mark.parametrize(
    "gemm",
    [
        Gemm(32, 16, 24, out="fp32"),
        Gemm(32, 16, 24, epilogue=("relu",)),
        Gemm(32, 16, 24, dtype="int8", out="int8"),
        Gemm(32, 16, 24, batch=2, dtype="int8"),
    ],
    ids=lambda gemm: gemm.name,
)
def test_cublas_says_what_it_has_not(torch, gemm: Gemm) -> None:
    with refused("peer.cublas", WorkloadError):
        peers.cublas(gemm)


@pytest.mark.parametrize("conv", CONVS, ids=lambda conv: conv.name)
@pytest.mark.parametrize("peer", ["cudnn", "triton"])
def test_convolutions_of_torch_are_called_right(
    torch, monkeypatch: pytest.MonkeyPatch, conv, peer: str
) -> None:
    inductor(monkeypatch, "triton_tem_fused_convolution_0")
    x, w = (fake_torch.Tensor(array) for array in conv.inputs())
    run = {"cudnn": cudnn, "triton": triton}[peer](conv)
    for _ in range(2):
        y = run(x, w, None)
        assert y.shape == conv.shapes()[-1]
        exact = conv.reference(x.data, w.data)
        np.testing.assert_allclose(y.data.astype("float64"), exact, rtol=2**-10, atol=1e-4)
    assert fake_torch.backends.cudnn.allow_tf32 == (conv.dtype == "tfloat32")


def inductor(monkeypatch: pytest.MonkeyPatch, kernel: str) -> dict[str, object]:
    """Triton is installed, and inductor makes ``kernel``; what it was asked comes back."""
    asked: dict[str, object] = {}

    def compile_(function, options, dynamic):
        asked.update(options, dynamic=dynamic)
        return function

    inner = types.ModuleType("torch._inductor")
    inner.list_options = lambda: ["max_autotune", "max_autotune_gemm_backends"]
    utils = types.ModuleType("torch._inductor.utils")
    utils.run_and_get_code = lambda function, *inputs: (function(*inputs), [f"def {kernel}()"])
    monkeypatch.setitem(sys.modules, "torch._inductor", inner)
    monkeypatch.setitem(sys.modules, "torch._inductor.utils", utils)
    monkeypatch.setattr(fake_torch, "_inductor", inner, raising=False)
    monkeypatch.setattr(fake_torch, "compile", compile_, raising=False)
    monkeypatch.setattr(
        "pipeliner.bench.libraries.find_spec", lambda name: importlib.util.find_spec("json")
    )
    return asked


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_triton_is_called_right(torch, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    asked = inductor(monkeypatch, "triton_tem_fused_mm_0")
    gemm = Gemm(32, 16, 24, layout=layout)
    a, b = (fake_torch.Tensor(array) for array in gemm.inputs())
    run = triton(gemm)
    for _ in range(2):
        exact = gemm.reference(a.data, b.data)
        np.testing.assert_allclose(run(a, b, None).data, exact, rtol=2**-10, atol=1e-5)
    assert asked == {
        "max_autotune": True,
        "max_autotune_gemm_backends": "TRITON",
        "dynamic": False,
    }


def test_what_is_no_template_is_not_called_triton(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    inductor(monkeypatch, "extern_kernels.mm")
    gemm = Gemm(32, 16, 24, layout="NN")
    a, b = (fake_torch.Tensor(array) for array in gemm.inputs())
    with refused("peer.triton_template", ToolError):
        triton(gemm)(a, b, None)


def test_triton_may_be_missing(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeliner.bench.libraries.find_spec", lambda name: None)
    with refused("peer.triton_missing", ToolError):
        triton(Gemm(32, 16, 24))


def names(problem: bench.Problem) -> list[str]:
    return [contender.name for contender in problem.contenders]


def test_each_workload_has_its_peers() -> None:
    target, asked = cuda_target("h100"), Request()
    every = tuple(peer for peer in bench.PEERS if peer != "best")
    whole = Gemm(128, 2048, 32)
    assert names(bench.contenders(whole, target, asked, peers=every)) == [
        bench.OURS,
        bench.OURS_PLAIN,
        bench.CUBLAS,
        *(f"TVM stock, {stages} slots" for stages in (*peers.STAGES, "two levels, 4")),
        bench.TRITON,
    ]
    ragged = dataclasses.replace(whole, n=1000)
    assert names(bench.contenders(ragged, target, asked, plain=False)) == [
        bench.OURS,
        bench.CUBLAS,
        bench.STOCK_PREFIX,
    ]
    conv = bench.contenders(CONVS[0], target, asked, plain=False, peers=every)
    assert names(conv) == [bench.OURS, bench.CUDNN, bench.TRITON]
    best = functools.partial(
        bench.contenders, target=target, request=asked, plain=False, peers=["best"]
    )
    assert names(best(whole)) == [bench.OURS, EVERY_ALGORITHM, bench.CUBLAS]
    assert names(best(CONVS[0])) == [bench.OURS, EVERY_ENGINE]
    point = conv2d(1, 6, 5, 8, 8, 1, 1)
    for one in (point, ConvInputGrad(point), ConvWeightGrad(point)):
        assert names(best(one)) == [bench.OURS, EVERY_ALGORITHM, EVERY_ENGINE]
    gated = names(best(GatedGemm(64, 64, 64)))
    assert gated == [bench.OURS, TORCH]
    with refused("peer.unknown", WorkloadError, value="mkl"):
        bench.contenders(whole, target, asked, peers=["mkl"])


@pytest.mark.parametrize(
    ("gemm", "code"),
    [
        (Gemm(128, 2048, 32, dtype="bf16"), "peer.stock_dtype"),
        (Gemm(128, 2048, 33), "peer.stock_multiples"),
        (Gemm(128, 2048, 32, batch=2), "peer.stock"),
        (Gemm(128, 2048, 32, epilogue=("relu",)), "peer.stock"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_stock_peer_says_once_what_it_cannot(gemm: Gemm, code: str) -> None:
    problem = bench.contenders(gemm, cuda_target("h100"), Request(), peers=["tvm"])
    (stock,) = problem.contenders[2:]
    with refused(code, WorkloadError):
        stock.make()


def test_the_stock_peer_gets_operands_as_its_layout_wants_them() -> None:
    gemm = Gemm(128, 2048, 32, layout="TT")
    problem = bench.contenders(gemm, cuda_target("h100"), Request(), plain=False, peers=["tvm"])
    a, b = (fake_torch.Tensor(array) for array in gemm.inputs())
    straight = problem.contenders[1].arrange((a, b))
    assert [tensor.shape for tensor in straight] == [(128, 32), (32, 2048)]
    assert all(tensor.data.flags.c_contiguous for tensor in straight)


def test_depth_one_keeps_what_else_was_asked() -> None:
    asked = Request(depth=3, warps=(2, 2))
    problem = bench.contenders(Gemm(256, 256, 256), cuda_target("h100"), asked, peers=())
    requests = [contender.make.request for contender in problem.contenders]
    assert requests == [asked, Request(depth=1, warps=(2, 2))]
