"""Tile loops of persistent kernels end where the tiles end; other loops are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.passes.ir.nodes import SBlockRealize, const_int, walk
from pipeliner.passes.recognise.tile_loops import trim_tile_loops
from pipeliner.schedules.gemm import schedule_gemm
from pipeliner.schedules.tiles import GemmTile
from pipeliner.schedules.workloads import Gemm

from .lowering_tools import prepared
from .tiles import evaluate, run


def loops(body: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    walk(body, tirx.For, lambda loop: found.setdefault(str(loop.loop_var.name), loop))
    return found


def trimmed(gemm: Gemm, ctas: int) -> tuple[Any, Any]:
    (func,) = schedule_gemm(gemm, GemmTile(128, 64, 64, persistent=ctas)).mod.functions.values()
    before = prepared(func).body
    return before, trim_tile_loops(before)


@pytest.mark.parametrize(
    ("m", "n", "ctas"),
    [(512, 128, 3), (512, 128, 5), (300, 136, 2), (300, 136, 4), (128, 640, 7), (200, 640, 6)],
)
def test_every_tile_is_computed_once_without_a_guard(m: int, n: int, ctas: int) -> None:
    before, after = trimmed(Gemm(m, n, 128), ctas)
    (name,) = [name for name in loops(after) if name.endswith("fused_0")]
    cta = loops(after)["blockIdx.x"].loop_var
    tiles = -(-m // 128) * -(-n // 64)
    extents = evaluate(loops(after)[name].extent, {cta: np.arange(ctas)})
    np.testing.assert_array_equal(
        np.broadcast_to(extents, ctas), [len(range(c, tiles, ctas)) for c in range(ctas)]
    )
    var = loops(after)[name].loop_var

    def guards(body: Any) -> list[Any]:
        found: list[Any] = []
        walk(body, SBlockRealize, lambda node: found.append(node.predicate))
        return [guard for guard in found if const_int(guard) != 1]

    assert tiles % ctas == 0 or guards(before)
    left = [guard for guard in guards(after) if f"{var.name} * {ctas}" in str(guard)]
    assert all("%" in str(guard) or "//" in str(guard) for guard in left)  # ragged edges


def test_a_symbolic_number_of_tiles() -> None:
    _, after = trimmed(Gemm(None, 136, 128), 4)
    (loop,) = [loop for name, loop in loops(after).items() if name.endswith("fused_0")]
    assert "blockIdx" in str(loop.extent)


def test_a_loop_that_writes_without_the_guard_is_left_alone() -> None:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((16, 8), "float32"), B: T.Buffer((16, 8), "float32")):
        for bx in T.thread_binding(3, thread="blockIdx.x"):
            for t in range(6):
                with T.sblock("tile"):
                    for i in range(8):
                        with T.sblock("guarded"):
                            T.where(t * 3 + bx < 16)
                            A[t * 3 + bx, i] = T.float32(1)
                    for i in range(8):
                        with T.sblock("free"):
                            B[(t * 3 + bx) % 16, i] = T.float32(2)

    assert trim_tile_loops(main.body).same_as(main.body)


@pytest.mark.parametrize("ctas", [1, 2, 3, 5])
@pytest.mark.part(6)
def test_persistent_kernels_are_right_on_older_gpus_too(ctas: int) -> None:
    run(Gemm(128, 192, 128), GemmTile(64, 64, 32, persistent=ctas))
    run(Gemm(100, 136, 72), GemmTile(64, 64, 32, persistent=ctas))


def least(extent: Any, values: dict[Any, int]) -> int:
    """The value of a minimum of two variables."""
    assert isinstance(extent, tirx.Min)
    return min(values[extent.a], values[extent.b])


def test_a_guard_that_fails_beyond_the_range_does_not_make_it_longer() -> None:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((16, 8), "float32"), n: T.int32, m: T.int32):
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for t in range(n):
                for i in range(8):
                    with T.sblock("guarded"):
                        T.where(t < m)
                        A[t, i] = T.float32(1)

    after = trim_tile_loops(main.body)
    (extent,) = [loop.extent for name, loop in loops(after).items() if name == "t"]
    (n, m) = main.params[1:]
    assert [int(least(extent, {n: a, m: b})) for a, b in ((0, 6), (4, 6), (6, 4))] == [0, 4, 4]
