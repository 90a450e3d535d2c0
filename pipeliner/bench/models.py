"""Whole models on this machine's GPU: one run as a CUDA graph, its time, its error, its kernels.

A model is any function without arguments that returns a tensor of PyTorch.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ..measuring.rounds import timed

ModelRun: TypeAlias = Callable[[], Any]

EAGER: Final = "eager"
IN_OUR_GRAPH: Final = "max-autotune-no-cudagraphs"
"""A mode of torch.compile that captures no graph: we do."""

MODES: Final = (EAGER, IN_OUR_GRAPH, "max-autotune", "reduce-overhead")
"""The ways of PyTorch to run a model: without compiling, or a mode of torch.compile."""

WARM_UP: Final = 3
CALLS: Final = 20
"""Between two events: a graph of few microseconds is as long as they are exact."""

ROUNDS: Final = 7
MOST_KERNELS: Final = 16


def graphed(run: ModelRun) -> ModelRun:
    """What replays a CUDA graph of one ``run``, by TVM or by PyTorch, and returns its result."""
    import torch
    import tvm_ffi

    with tvm_ffi.use_torch_stream(torch.cuda.stream(torch.cuda.Stream())):
        for _ in range(WARM_UP):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with tvm_ffi.use_torch_stream(torch.cuda.graph(graph, capture_error_mode="relaxed")):
        result = run()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def milliseconds(run: ModelRun) -> float:
    """Of one run on the GPU: the median of rounds, each of so many one after the other."""
    import torch

    def calls() -> None:
        for _ in range(CALLS):
            run()

    took = timed(torch, [calls] * (ROUNDS + 1))[1:]
    return statistics.median(took) / CALLS * 1e-3


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """What torch.compile compiles meanwhile has its parameters as constants."""
    import torch._inductor.config as inductor

    before, inductor.freezing = inductor.freezing, True
    try:
        yield
    finally:
        inductor.freezing = before


def ways_of_torch(
    model: Any, x: Any, modes: Sequence[str] = MODES
) -> Iterator[tuple[str, ModelRun]]:
    """PyTorch's ways to run ``model`` on ``x``, with the constants frozen, each with its name."""
    import torch

    for mode in modes:
        torch._dynamo.reset()
        if mode == EAGER:
            yield "PyTorch, eager in a CUDA graph", graphed(functools.partial(model, x))
            continue
        with frozen():
            run = functools.partial(torch.compile(model, mode=mode), x)
            for _ in range(WARM_UP):
                run()
        if mode == IN_OUR_GRAPH:
            yield "torch.compile, max-autotune in a CUDA graph", graphed(run)
        else:
            yield f"torch.compile, {mode}", run


def exactly(model: Any, x: Any) -> Any:
    """What ``model`` gives for ``x`` in float64."""
    return copy.deepcopy(model).double()(x.double())


@dataclass
class ModelBench:
    """Prints each way to run a model with its time and its largest difference from ``exact``.

    ``kernels``: also those that take most of its time.
    """

    exact: Any
    kernels: bool = False

    def show(self, name: str, run: ModelRun) -> float:
        """Print a line, and return the milliseconds of a run."""
        error = (run().double() - self.exact).abs().max().item()
        ms = milliseconds(run)
        size = self.exact.abs().max().item()
        print(f"{name:44} {ms:8.4f} ms, error {error:.5f} of {size:.3f}", flush=True)
        for line in kernel_lines(run) if self.kernels else ():
            print(line)
        return ms

    def beside(
        self, ours: ModelRun, others: Iterator[tuple[str, ModelRun]], name: str = "ours"
    ) -> None:
        """Print ``ours``, each of the others, ``ours`` again, and what the slower one reaches."""
        times = [self.show(name, ours)]
        peers = [self.show(other, run) for other, run in others]
        times.append(self.show("ours again", ours))
        print(f"ours: {min(peers) / max(times):.3f}x the fastest of the others")


def kernel_lines(run: ModelRun) -> list[str]:
    """The kernels of one ``run``, those that take longest first: microseconds, launches, name."""
    import torch

    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    taken, launches = collections.Counter[str](), collections.Counter[str]()
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            taken[event.name] += event.self_device_time_total
            launches[event.name] += 1
    lines = [
        f"  {us:9.1f} us {launches[name]:4} x {name[:100]}"
        for name, us in taken.most_common(MOST_KERNELS)
    ]
    return [*lines, f"  {sum(taken.values()):9.1f} us in {sum(launches.values())} launches"]
