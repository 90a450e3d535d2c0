"""Split indices: the same elements, constants outside, registers and risky sums left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

import pipeliner
from pipeliner.passes import lower
from pipeliner.passes.device.addresses import scalar, split_addresses
from pipeliner.passes.ir import nodes as ir
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import Gemm

from .sass import longest_loop, nothing
from .tiles import run, scheduled

EXTENTS = (6, 8, 16)
SIZE = 4096
Index = Callable[[Any, Any, Any], Any]


def xor(a: Any, b: Any) -> Any:
    return tirx.bitwise_xor(a, b if not isinstance(b, int) else ir.i32(b))


def gather(index: Index, lanes: int = 1, scope: str = "global") -> Any:
    """``C[k, x, y] = A[index(k, x, y)]``, the loop over ``k`` inside those over ``x`` and ``y``."""
    k_extent, x_extent, y_extent = EXTENTS
    a = tirx.decl_buffer([SIZE], "int32", "A", layout=None)
    c = tirx.decl_buffer([k_extent * x_extent * y_extent * lanes], "int32", "C", layout=None)
    source = a if scope == "global" else ir.buffer([SIZE], "int32", "S", scope)

    def body(k: Any, x: Any, y: Any) -> Any:
        at = ((k * x_extent + x) * y_extent + y) * lanes
        place = at if lanes == 1 else tirx.Ramp(at, ir.i32(1), lanes)
        return tirx.BufferStore(c, tirx.BufferLoad(source, [index(k, x, y)]), [place])

    nest = ir.loop(
        "x",
        x_extent,
        lambda x: ir.loop("y", y_extent, lambda y: ir.loop("k", k_extent, lambda k: body(k, x, y))),
    )
    stmts = [] if source is a else [tirx.AllocBuffer(source)]
    func = tirx.PrimFunc([a, c], ir.seq(*stmts, nest))
    return func.with_attr("global_symbol", "main")


def executed(func: Any, lanes: int = 1) -> Any:
    out = np.full(int(np.prod(EXTENTS)) * lanes, -1, np.int32)
    compiled = tvm.compile(tvm.IRModule({"main": func}), target="llvm")
    compiled["main"](np.arange(SIZE, dtype=np.int32), out)
    return out


def index_of(func: Any) -> Any:
    """The index of the one access to the source."""
    found: list[Any] = []
    ir.walk(func.body, ir.TensorLoad, found.append)
    (load,) = found
    return load.indices[0]


def constants_under_xor(expr: Any) -> list[int]:
    """Constants added below an exclusive or."""
    found: list[int] = []

    def add(node: Any) -> None:
        if isinstance(node.b, tirx.IntImm):
            found.append(int(node.b.value))

    def visit(node: Any) -> None:
        ir.walk(node, tirx.Add, add)

    ir.walk(expr, tirx.BitwiseXor, visit)
    return found


INDICES: dict[str, Index] = {
    "plain": lambda k, x, y: k * 7 + x * 64 + y + 100,
    "sorted by size": lambda k, x, y: k % 3 * 128 + x * 64 + k + y * 2 + 5,
    "multiple under xor": lambda k, x, y: k * 256 + xor(x + 8, y % 8) * 4,
    "bits of its own under xor": lambda k, x, y: k * 64 + xor(x % 4 + 4, 5) * 2,
    "bits of both under xor": lambda k, x, y: k * 64 + xor(x // 4 + 2, y % 8) * 2,
    "carries under xor": lambda k, x, y: k * 64 + xor(x + 3, y),
    "constants on both sides": lambda k, x, y: xor(x % 2 + 12, y % 4 + 24) * 3 + k,
    "constants alone": lambda k, x, y: xor(ir.i32(12), 5) + k,
    "constants alone, not folded": lambda k, x, y: tirx.BitwiseXor(ir.i32(12), ir.i32(5)) + k,
    "swizzle of a swizzle": lambda k, x, y: xor(xor(x + 16, y % 4) + 32, 3) + k * 64,
    "difference": lambda k, x, y: 3000 - x * 64 - y + k,
    "negative parts": lambda k, x, y: (x - 1) * 16 + y + k - 2 + 20,
    "minus under xor": lambda k, x, y: xor(x - 8, y) + 64 + k,
    "product of variables": lambda k, x, y: x * y + k * 3 + 1,
    "clamped": lambda k, x, y: tirx.min(k * 8 + x + 9, ir.i32(40)) * 16 + y,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INDICES)
@pytest.mark.part(6)
def test_the_elements_are_the_same(name: str) -> None:
    func = gather(INDICES[name])
    np.testing.assert_array_equal(executed(split_addresses(func)), executed(func))


@pytest.mark.parametrize("name", ["multiple under xor", "bits of its own under xor"])
def test_constants_come_out_of_the_exclusive_or(name: str) -> None:
    func = gather(INDICES[name])
    assert constants_under_xor(index_of(func))
    index = index_of(split_addresses(func))
    assert not constants_under_xor(index)


def test_what_the_loop_leaves_alone_stands_by_itself() -> None:
    index = index_of(split_addresses(gather(INDICES["sorted by size"])))
    (head, constant) = index.a, index.b
    assert int(constant.value) == 5
    names = [{str(var.name) for var in variables(part)} for part in (head.a, head.b)]
    assert names == [{"k"}, {"x", "y"}]


def variables(expr: Any) -> list[Any]:
    found: list[Any] = []
    ir.walk(expr, ir.Var, found.append)
    return found


def vector(base: Any, lanes: int = 4) -> Any:
    return tirx.Broadcast(base, lanes)


VECTORS: dict[str, Index] = {
    "ramp first": lambda k, x, y: tirx.Ramp(k * 64 + x * 8, ir.i32(1), 4) + vector(y * 4 + 8),
    "swizzle": lambda k, x, y: (
        xor(vector(x + 8), vector(y % 8)) * vector(ir.i32(4)) + tirx.Ramp(k * 4, ir.i32(1), 4)
    ),
    "minus": lambda k, x, y: tirx.Ramp(k + 900, ir.i32(1), 4) - vector(x * 8 + y),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_become_ramps(name: str) -> None:
    func = gather(VECTORS[name], lanes=4)
    done = split_addresses(func)
    assert isinstance(index_of(done), tirx.Ramp)
    np.testing.assert_array_equal(executed(done, 4), executed(func, 4))


def test_vectors_of_other_strides_stay() -> None:
    x = ir.Var("x", "int32")
    assert scalar(tirx.Ramp(x, ir.i32(2), 4))[1] == 2
    assert scalar(tirx.Ramp(x, ir.i32(1), 4) * vector(x)) is None
    func = gather(lambda k, x, y: tirx.Ramp(k, ir.i32(2), 4) + vector(x), lanes=4)
    assert isinstance(index_of(split_addresses(func)), tirx.Add)


def test_sums_that_could_overflow_in_another_order_stay() -> None:
    func = gather(lambda k, x, y: (x * (1 << 29) - k * (1 << 29)) + y * (1 << 28))
    done = split_addresses(func)
    tvm.ir.assert_structural_equal(index_of(done), index_of(func), map_free_vars=True)


def test_registers_have_no_addresses() -> None:
    func = gather(INDICES["multiple under xor"], scope="local")
    assert constants_under_xor(index_of(split_addresses(func)))
    shared = gather(INDICES["multiple under xor"], scope="shared.dyn")
    assert not constants_under_xor(index_of(split_addresses(shared)))


# Whole kernels.


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize(
    ("dtype", "tile"), [("float32", (64, 64, 8)), ("float16", (64, 64, 32))], ids=["simt", "mma"]
)
@pytest.mark.part(6)
def test_a_gemm_is_right(dtype: str, tile: tuple[int, int, int], layout: str) -> None:
    run(Gemm(96, 72, 80, dtype=dtype, layout=layout), GemmTile(*tile), depth=3, tolerance=5e-3)


def test_fragments_are_read_in_vectors() -> None:
    func = scheduled(Gemm(512, 512, 512, dtype="float32", layout="NT"), GemmTile(64, 128, 8))
    source = pipeliner.build(pipeliner.pipeline(func, "sm_90", depth=3), "sm_90").cuda
    assert "*(float4*)(buf_dyn_shmem" in source
    assert "make_int4" not in source


@pytest.mark.nvcc
@pytest.mark.deep("the CUDA is that of verify/test_fixed_plans.py")
def test_machine_code_shares_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = Gemm(512, 512, 512, dtype="bfloat16", layout="NN")
    func = scheduled(gemm, GemmTile(64, 128, 64))
    split = pipeliner.build(pipeliner.pipeline(func, "sm_90", depth=3, instruction="mma"), "sm_90")
    lean = longest_loop(split.sass)
    monkeypatch.setattr(lower, "split_addresses", nothing)
    whole = pipeliner.build(pipeliner.pipeline(func, "sm_90", depth=3, instruction="mma"), "sm_90")
    assert len(lean) < len(longest_loop(whole.sass))
    assert split.resources.stack == split.resources.spills == 0
