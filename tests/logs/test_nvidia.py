"""NVIDIA's heuristics as candidates of ours, by a package that is made up."""

from __future__ import annotations

import enum
import sys
import types

import pytest

from pipeliner.errors import ToolError
from pipeliner.logs import nvidia
from pipeliner.logs.nvidia import NvidiaHeuristics
from pipeliner.machine import H100
from pipeliner.machine.values import Machine
from pipeliner.schedules import GatedGemm, Gemm, conv2d

LAYOUTS = enum.Enum("LAYOUTS", [f"{a}{b}_ROW_MAJOR" for a in "NT" for b in "NT"])


def kernel(m, n, k, stages=4, split_k=1, cluster=(1, 1), rows=64):
    return types.SimpleNamespace(
        cta_tile_m=m,
        cta_tile_n=n,
        cta_tile_k=k,
        instr_tile_m=rows,
        stages=stages,
        split_k=split_k,
        cluster_m=cluster[0],
        cluster_n=cluster[1],
    )


@pytest.fixture
def package(monkeypatch):
    """A package that says what it was asked, and has ``kernels`` with the times that it expects."""
    asked = types.SimpleNamespace(kernels=[], problems=[], gpu=None)

    def get(problem, count, precision):
        asked.problems.append((*problem, precision))
        return [{"kernel": one, "runtime": us} for us, one in asked.kernels][:count]

    def interface(backend, flags, gpu):
        asked.gpu = gpu
        made = types.SimpleNamespace(get=get)
        made.makeNvMatmulHeuristicsProblem = lambda *sizes: sizes
        return made

    made = types.ModuleType(nvidia.PACKAGE)
    made.NvMatmulHeuristicsMatmulLayout = LAYOUTS
    made.NvMatmulHeuristicsInterfaceEx = interface
    made.NvMatmulHeuristicsTarget = types.SimpleNamespace(CUTLASS3=4)
    made.NvMatmulHeuristicsFlags = types.SimpleNamespace(PERF_MODEL_BASED_AUTO_TUNING=8)
    made.NvMatmulHeuristicsNvidiaGpu = dict.fromkeys(nvidia.GPUS.values(), 0) | {"H100_SXM": 9000}
    monkeypatch.setitem(sys.modules, nvidia.PACKAGE, made)
    monkeypatch.setattr(nvidia, "find_spec", lambda name: object())
    return asked


def test_the_fastest_by_their_estimate_is_first_and_each_of_ours_is_one(package):
    package.kernels = [
        (3.0, kernel(128, 128, 64)),
        (2.0, kernel(128, 256, 64, cluster=(2, 1))),
        (2.5, kernel(128, 128, 64)),  # by other warps
    ]
    first, second = NvidiaHeuristics(H100)(Gemm(4096, 4096, 4096, layout="TN"))
    assert package.gpu == 9000
    assert package.problems == [(4096, 4096, 4096, LAYOUTS["TN_ROW_MAJOR"], 1, "HSH")]
    assert (first.tile.m, first.tile.n, first.tile.k, first.tile.persistent) == (128, 256, 64, 132)
    assert (first.request.depth, first.request.cluster) == (4, 2)
    assert (first.request.instruction, first.request.mechanism) == ("wgmma", "tma")
    assert (second.tile.n, second.request.cluster) == (128, 1)


def test_what_does_not_fit_as_it_is_keeps_its_tile(package):
    package.kernels = [(1.0, kernel(128, 256, 64, stages=8, cluster=(1, 4)))]
    (one,) = NvidiaHeuristics(H100)(Gemm(4096, 4096, 4096))
    assert (one.tile.m, one.tile.n, one.request.depth) == (128, 256, "auto")
    assert one.plan(Gemm(4096, 4096, 4096), H100).predicted_us > 0


def test_a_convolution_is_asked_for_as_a_product(package):
    package.kernels = [(1.0, kernel(128, 64, 64, split_k=2))]
    (one,) = NvidiaHeuristics(H100)(conv2d(8, 14, 14, 256, 256, 3, 3, pad=1))
    assert package.problems[0][:3] == (8 * 14 * 14, 256, 9 * 256)
    assert (one.tile.splits, one.tile.persistent) == (2, None)


def test_what_they_do_not_know_has_no_choices(package):
    ask = NvidiaHeuristics(H100)
    assert ask(GatedGemm(512, 512, 512)) == []
    assert ask(conv2d(8, 14, 14, 256, 256, 3, 3, pad=1, groups=8)) == []
    assert package.problems == []


def test_without_the_package_or_for_another_gpu_one_line_says_so(package, monkeypatch):
    other = types.SimpleNamespace(key="gtx1080ti", name="GTX 1080 Ti", spec=Machine)
    with pytest.raises(ToolError) as caught:
        NvidiaHeuristics(other)
    assert caught.value.reason.code == "command.no_heuristics_of"
    monkeypatch.setattr(nvidia, "find_spec", lambda name: None)
    with pytest.raises(ToolError) as caught:
        NvidiaHeuristics(H100)
    assert caught.value.reason.code == "command.no_heuristics"
