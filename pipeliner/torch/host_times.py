"""Host time of calls: ours, PyTorch's own, and the floor of an op that Python implements.

A call returns when the GPU has been told what to do. What is timed is how long that takes: calls
one after the other, few enough that the GPU's queue never fills, then a wait that is not timed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from . import calls, ops

CALLS: Final = 100
"""Between two waits; the GPU's queue has a thousand places."""

ROUNDS: Final = 60

COLUMNS: Final = ("direct", "torch", "op", "floor", "graph", "torch")
"""Our call and PyTorch's, our op and the floor of one, a graph of ours and one of PyTorch's."""

SHAPES: Final = ((256, 256, 256), (1024, 1024, 1024))

_FIRST: Final = """
import time, torch
import pipeliner.torch as pt
x = torch.randn(1000, 768, device="cuda", dtype=torch.float16)
w = torch.randn(520, 768, device="cuda", dtype=torch.float16)
torch.cuda.synchronize()
start = time.perf_counter()
y = pt.linear(x, w)
torch.cuda.synchronize()
from pipeliner.torch.dispatch import kernels
print(time.perf_counter() - start, *kernels().values(), *pt.fallbacks())
"""


@dataclass(frozen=True, slots=True)
class HostTime:
    """Microseconds of a call by each way; ``floor``: of a Python op that calls PyTorch."""

    name: str
    direct: float
    torch: float
    op: float
    floor: float
    graph: float
    torch_graph: float


def host_times() -> list[HostTime]:
    """Host times of products of some sizes, with a bias and without."""
    found = []
    for m, n, k in SHAPES:
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        w = torch.randn(n, k, device="cuda", dtype=torch.float16)
        bias = torch.randn(n, device="cuda", dtype=torch.float16)
        b = w.t()
        size = f"{m}x{n}x{k}"
        functional = torch.nn.functional.linear
        compared: dict[str, tuple[Callable[..., Any], ...]] = {
            "matmul": (calls.matmul, torch.mm, ops.matmul, _floor()[0]),
            "linear": (calls.linear, functional, ops.linear, _floor()[1]),
            "linear + bias": (calls.linear, functional, ops.linear, _floor()[1]),
        }
        for name, ways in compared.items():
            args = {"matmul": (a, b), "linear": (a, w)}.get(name, (a, w, bias))
            times = _interleaved([_bound(way, args) for way in ways])
            graphs = _interleaved([_graph(_bound(way, args)) for way in ways[:2]])
            found.append(HostTime(f"{name} {size}", *times, *graphs))
    return found


def host_lines(times: Sequence[HostTime]) -> list[str]:
    """The times as a table, with what its columns are above them."""
    lines = [" ".join([f"{'host time, us':28}", *(f"{name:>7}" for name in COLUMNS)])]
    for one in times:
        figures = (one.direct, one.torch, one.op, one.floor, one.graph, one.torch_graph)
        lines.append(" ".join([f"{one.name:28}", *(f"{figure:7.1f}" for figure in figures)]))
    return lines


def first_call() -> tuple[float, str]:
    """Seconds of a fresh process's first call after its imports, and where its kernel is from."""
    done = subprocess.run(
        [sys.executable, "-c", _FIRST], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return float("nan"), done.stderr.strip().splitlines()[-1]
    seconds, *source = done.stdout.split()
    return float(seconds), " ".join(source)


def _bound(way: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    first, second, *bias = args
    if bias:
        third = bias[0]
        return lambda: way(first, second, third)
    return lambda: way(first, second)


def _interleaved(runs: list[Callable[[], Any]]) -> list[float]:
    """The median time of a call of each, in microseconds, timed in turn."""
    times: list[list[float]] = [[] for _ in runs]
    for number in range(-5, ROUNDS):
        for run, kept in zip(runs, times):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            taken = time.perf_counter() - start
            if number >= 0:
                kept.append(taken / CALLS * 1e6)
    torch.cuda.synchronize()
    return [statistics.median(kept) for kept in times]


def _graph(run: Callable[[], Any]) -> Any:
    """The replay of a CUDA graph with one call."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _floor() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Ops of the same signatures, implemented in Python by PyTorch's own."""
    if not _FLOOR:
        own = torch.library.custom_op

        def linear(input: Any, weight: Any, bias: Any = None) -> Any:
            if bias is None:
                return torch.mm(input, weight.t())
            return torch.addmm(bias, input, weight.t())

        for name, peer in (("matmul", torch.mm), ("linear", linear)):
            schema = ops.SCHEMAS[name]
            _FLOOR.append(own(f"pipeliner_floor::{name}", peer, mutates_args=(), schema=schema))
    return _FLOOR[0], _FLOOR[1]


_FLOOR: Final[list[Callable[..., Any]]] = []
