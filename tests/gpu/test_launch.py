"""How kernels are launched on a GPU: torch's stream, CUDA graphs, one behind the other's back."""

from __future__ import annotations

from typing import Any

import pytest

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import gpu_arch

pytestmark = pytest.mark.gpu

torch: Any = pytest.importorskip("torch")

SIZE = 256
GEMM = Gemm(SIZE, SIZE, SIZE)
SPLIT = GemmTile(64, 64, 64, splits=4)
FORMS: list[tuple[GemmTile, dict[str, Any]]] = [
    (GemmTile(128, 128, 64), {"instruction": "mma"}),
    (GemmTile(128, 128, 64), {"instruction": "wgmma"}),
    (GemmTile(128, 128, 64), {"instruction": "wgmma", "pdl": True}),
    (SPLIT, {"instruction": "mma"}),
    (SPLIT, {"instruction": "wgmma"}),
    (SPLIT, {"instruction": "wgmma", "pdl": True}),
    (SPLIT, {"instruction": "wgmma", "store": "cluster", "pdl": True}),
]
SLEEP = 100_000_000
"""Cycles that a stream is kept busy: more than it takes to launch what follows."""

CALLS = 300
"""Each on what the one before wrote, and no multiple of the size."""


def built(tile: GemmTile, options: dict[str, Any]) -> Any:
    """The kernel, run once; skips where there is no Hopper GPU."""
    if not str(gpu_arch()).startswith("sm_90"):
        pytest.skip(f"wgmma and dependent launches need sm_90, this GPU is {gpu_arch()}")
    kernel = pipeliner.build(schedule_gemm(GEMM, tile), "h100", **options)
    a, b, c = operands()
    kernel(a, b, c)
    torch.cuda.synchronize()
    return kernel


def operands() -> tuple[Any, Any, Any]:
    """A and B of small integers, whose products are exact, and a C that is not yet written."""
    a = torch.randint(-2, 3, (SIZE, SIZE), device="cuda").half()
    b = torch.randint(-2, 3, (SIZE, SIZE), device="cuda").half()
    return a, b, torch.full((SIZE, SIZE), float("nan"), device="cuda").half()


def exact(a: Any, b: Any) -> Any:
    return (a.double() @ b.double().T).half()


@pytest.mark.parametrize(("tile", "options"), FORMS, ids=str)
def test_runs_on_the_current_stream(tile: GemmTile, options: dict[str, Any]) -> None:
    kernel = built(tile, options)
    a, b, c = operands()
    wanted = torch.randint(-2, 3, a.shape, device="cuda").half()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(SLEEP)
        a.copy_(wanted)
        kernel(a, b, c)
        torch.cuda.current_stream().synchronize()
    assert torch.equal(c, exact(wanted, b))


@pytest.mark.parametrize(("tile", "options"), FORMS, ids=str)
def test_a_graph_replays_it_on_other_data(tile: GemmTile, options: dict[str, Any]) -> None:
    kernel = built(tile, options)
    a, b, c = operands()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, c)
    for _ in range(3):
        new_a, new_b, new_c = operands()
        a.copy_(new_a)
        b.copy_(new_b)
        c.copy_(new_c)
        graph.replay()
        kernel(new_a, new_b, new_c)
        torch.cuda.synchronize()
        assert torch.equal(c, new_c)
        assert torch.equal(c, exact(a, b))


@pytest.mark.parametrize(("tile", "options"), FORMS, ids=str)
def test_each_call_sees_what_the_one_before_wrote(tile: GemmTile, options: dict[str, Any]) -> None:
    kernel = built(tile, options)
    x, _, y = operands()
    start = x.clone()
    shift = torch.eye(SIZE, device="cuda").half().roll(1, dims=0)
    for _ in range(CALLS):
        kernel(x, shift, y)
        x, y = y, x
    torch.cuda.synchronize()
    assert torch.equal(x, start.roll(CALLS, dims=1))


@pytest.mark.parametrize(("tile", "options"), FORMS, ids=str)
def test_maps_follow_the_arguments(tile: GemmTile, options: dict[str, Any]) -> None:
    kernel = built(tile, options)
    for _ in range(5):
        a, b, c = operands()
        kernel(a, b, c)
        other = operands()
        kernel(*other)
        torch.cuda.synchronize()
        assert torch.equal(c, exact(a, b))
        assert torch.equal(other[2], exact(other[0], other[1]))
