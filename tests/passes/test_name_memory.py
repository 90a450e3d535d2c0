"""Views of global, shared and register memory: inlined, or seen through, never overlooked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

import pipeliner
from pipeliner.passes.analysis.effects import effects
from pipeliner.passes.prepare.match_buffers import inline_matches
from pipeliner.passes.prepare.name_memory import name_memory

from ..refusals import refused

ROWS = 16
STEPS = 12
TIMINGS = ("late", "early", "random")
ORDERS = ("lockstep", "random")


def carried(store: str, early: str = "", late: str = "", load: str = "Y[t, tx]") -> Any:
    """Row t of Y, plus one and reversed, to row t + 1, by way of shared memory."""
    return tvm.script.from_source(
        f"""
@T.prim_func(s_tir=True)
def main(Y: T.Buffer(({ROWS}, 64), "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                T.reads(Y[0:{ROWS}, 0:64])
                T.writes(Y[0:{ROWS}, 0:64])
                {early or "T.evaluate(0)"}
                for t in T.serial({STEPS}):
                    with T.sblock("step"):
                        T.reads(Y[0:{ROWS}, 0:64])
                        T.writes(Y[0:{ROWS}, 0:64])
                        {late or "T.evaluate(0)"}
                        S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                        with T.sblock("load"):
                            T.reads(Y[t, tx])
                            T.writes(S[tx])
                            S[tx] = {load}
                        with T.sblock("store"):
                            T.reads(S[0:64])
                            T.writes(Y[t + 1, 0:64])
                            {store}
"""
    )


def reversed_rows(Y: np.ndarray) -> dict[str, np.ndarray]:
    rows = Y.copy()
    for t in range(STEPS):
        rows[t + 1] = rows[t][::-1] + 1
    return {"Y": rows}


def streamed(views: str, write: str, read: str, *, inside: bool, shape: str = "(64,)") -> Any:
    """Rows of X reversed to Y by way of a tile that is written and read as said."""
    pads = "\n" + " " * 16, "\n" + " " * 24
    tile = f'S = T.sblock_alloc_buffer({shape}, "float32", scope="shared")\n{views}'
    region = ", ".join(f"0:{extent}" for extent in shape.strip("(,)").split(", "))
    return tvm.script.from_source(
        f"""
@T.prim_func(s_tir=True)
def main(X: T.Buffer(({STEPS}, 64), "float32"), Y: T.Buffer(({STEPS}, 64), "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                T.reads(X[0:{STEPS}, 0:64])
                T.writes(Y[0:{STEPS}, 0:64])
                {"T.evaluate(0)" if inside else tile.replace(chr(10), pads[0])}
                for t in T.serial({STEPS}):
                    with T.sblock("step"):
                        T.reads(X[t, 0:64])
                        T.writes(Y[t, 0:64])
                        {tile.replace(chr(10), pads[1]) if inside else "T.evaluate(0)"}
                        with T.sblock("load"):
                            T.reads(X[t, tx])
                            T.writes(S[{region}])
                            {write}
                        with T.sblock("store"):
                            T.reads(S[{region}])
                            T.writes(Y[t, tx])
                            Y[t, tx] = {read}
"""
    )


def judged(func: Any, arrays: list[np.ndarray], meaning: Callable[..., Any], **asked: Any) -> Any:
    """The kernel of ``func``, right in every order and with every landing."""
    kernel = pipeliner.build(func, "sm_80", **asked)
    want = meaning(*arrays)
    for timing in TIMINGS:
        for order in ORDERS:
            found = kernel.emulate(*arrays, timing=timing, order=order)
            assert not found.hazards, found.hazards
            for name, value in want.items():
                np.testing.assert_array_equal(found.outputs[name], value)
    return kernel


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-4, 5, shape).astype("float32")


GLOBAL = {
    "reshaped": (
        f'V = T.decl_buffer(({ROWS // 2}, 128), "float32", data=Y.data)',
        "V[(t + 1) // 2, (t + 1) % 2 * 64 + tx] = S[63 - tx] + T.float32(1)",
    ),
    "offset": (
        f'V = T.decl_buffer(({ROWS - 1}, 64), "float32", data=Y.data, elem_offset=64)',
        "V[t, tx] = S[63 - tx] + T.float32(1)",
    ),
    "another type": (
        f'V = T.decl_buffer(({ROWS}, 64), "int32", data=Y.data)',
        'V[t + 1, tx] = T.reinterpret("int32", S[63 - tx] + T.float32(1))',
    ),
    "padded rows": (
        f'V = T.decl_buffer(({ROWS // 2}, 64), "float32", data=Y.data, strides=(128, 1))',
        "V[(t + 1) // 2, tx + (t + 1) % 2 * 64] = S[63 - tx] + T.float32(1)",
    ),
    "of a pointer": (
        (
            'p: T.let[T.handle("float32")] = T.address_of(Y[1, 0]); '
            f'V = T.decl_buffer(({ROWS - 1}, 64), "float32", data=p)'
        ),
        "V[t, tx] = S[63 - tx] + T.float32(1)",
    ),
}


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("view", GLOBAL)
@pytest.mark.part(2)
def test_a_row_that_is_written_through_a_view_is_not_loaded_before(view: str, early: bool) -> None:
    declared, store = GLOBAL[view]
    func = carried(store, **{"early" if early else "late": declared})
    kernel = judged(func, [numbers(ROWS, 64)], reversed_rows)
    assert not kernel.plan.pipelined


def test_a_row_that_is_loaded_through_a_view_of_another_type_is_not_loaded_before() -> None:
    func = carried(
        "Y[t + 1, tx] = S[63 - tx] + T.float32(1)",
        early=f'V = T.decl_buffer(({ROWS}, 64), "int32", data=Y.data)',
        load='T.reinterpret("float32", V[t, tx])',
    )
    judged(func, [numbers(ROWS, 64)], reversed_rows)


def test_a_matched_row_is_the_row() -> None:
    func = carried(
        'V = T.match_buffer(Y[t + 1, 0:64], (64,), "float32"); V[tx] = S[63 - tx] + T.float32(1)'
    )
    assert "match_buffer" not in inline_matches(func).script()
    judged(func, [numbers(ROWS, 64)], reversed_rows)


def upper_halves(X: np.ndarray, Y: np.ndarray) -> dict[str, np.ndarray]:
    return {"Y": X.view("float16")[:, 1::2][:, ::-1].astype("float32")}


SHARED = {
    "reshaped": (
        'V = T.decl_buffer((2, 32), "float32", data=S.data, scope="shared")',
        "S[tx] = X[t, tx]",
        "V[(63 - tx) // 32, (63 - tx) % 32]",
    ),
    "written through": (
        'V = T.decl_buffer((2, 32), "float32", data=S.data, scope="shared")',
        "V[tx // 32, tx % 32] = X[t, tx]",
        "S[63 - tx]",
    ),
    "offset": (
        'V = T.decl_buffer((32,), "float32", data=S.data, scope="shared", elem_offset=32)',
        "S[tx] = X[t, tx]",
        "T.if_then_else(tx < 32, V[31 - tx % 32], S[63 - tx])",
    ),
    "another type": (
        'V = T.decl_buffer((64,), "int32", data=S.data, scope="shared")',
        'V[tx] = T.reinterpret("int32", X[t, tx])',
        "S[63 - tx]",
    ),
    "read as another type": (
        'V = T.decl_buffer((64,), "uint32", data=S.data, scope="shared")',
        "S[tx] = X[t, tx]",
        'T.reinterpret("float32", V[63 - tx])',
    ),
    "view of a view": (
        (
            'U = T.decl_buffer((64,), "int32", data=S.data, scope="shared")\n'
            'V = T.decl_buffer((64,), "float32", data=U.data, scope="shared")'
        ),
        "V[tx] = X[t, tx]",
        "S[63 - tx]",
    ),
}


@pytest.mark.part(12)
@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, {"depth": 1}, {"depth": 3}], ids=str)
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("view", SHARED)
def test_a_tile_has_its_slots_through_a_view(view: str, inside: bool, asked: Any) -> None:
    views, write, read = SHARED[view]
    arrays = [numbers(STEPS, 64), numbers(STEPS, 64)]
    func = streamed(views, write, read, inside=inside)
    kernel = judged(func, arrays, lambda X, Y: {"Y": X[:, ::-1]}, **asked)
    assert kernel.plan.loops[0].rings[0].depth == asked.get("depth", 4)


@pytest.mark.parametrize("asked", [{}, {"depth": 1}], ids=str)
@pytest.mark.parametrize("inside", [True, False])
def test_a_tile_that_elements_of_another_size_view_has_one_slot_and_its_waits(
    inside: bool, asked: Any
) -> None:
    view = 'V = T.decl_buffer((128,), "float16", data=S.data, scope="shared")'
    read = 'T.Cast("float32", V[2 * (63 - tx) + 1])'
    func = streamed(view, "S[tx] = X[t, tx]", read, inside=inside)
    arrays = [numbers(STEPS, 64), numbers(STEPS, 64)]
    judged(func, arrays, upper_halves, **asked)
    with refused("version.viewed"):
        pipeliner.build(func, "sm_80", depth=2)


def test_buffers_over_one_raw_pointer_are_one_memory() -> None:
    func = tvm.script.from_source(
        """
@T.prim_func(s_tir=True)
def main(y: T.handle("float32"), Z: T.Buffer((64,), "float32")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("a"):
            T.reads(Z[tx])
            T.writes()
            A = T.decl_buffer((4, 16), "float32", data=y)
            A[tx // 16, tx % 16] = Z[tx]
        with T.sblock("b"):
            T.reads(Z[tx])
            T.writes()
            B = T.decl_buffer((64,), "float32", data=y)
            C = T.decl_buffer((64,), "int32", data=y)
            B[tx] = Z[tx] + T.reinterpret("float32", C[63 - tx])
"""
    )
    found = effects(name_memory(func).body)
    assert [(str(a.buffer.name), a.mode) for a in found.accesses] == [
        ("Z", "r"),
        ("A", "w"),
        ("Z", "r"),
        ("A", "r"),
        ("A", "w"),
    ]


def test_a_function_without_views_is_left_alone() -> None:
    func = carried("Y[t + 1, tx] = S[63 - tx]")
    assert name_memory(func).same_as(func)
    assert inline_matches(func).same_as(func)


def test_an_inlined_view_is_gone_and_another_stands_in_the_statement() -> None:
    reshaped = name_memory(carried(GLOBAL["reshaped"][1], early=GLOBAL["reshaped"][0]))
    plain = carried("Y[t + 1, tx] = S[63 - tx] + T.float32(1)")
    assert "decl_buffer" not in reshaped.script()
    store = "Y[t + 1, tx] = S[63 - tx] + T.float32(1.0)"
    assert store in reshaped.script()
    assert store in plain.script()
    typed = name_memory(carried(GLOBAL["another type"][1], early=GLOBAL["another type"][0]))
    assert "decl_buffer" not in typed.script()
    assert "reinterpret" not in typed.script()
    halves = f'V = T.decl_buffer(({ROWS}, 128), "float16", data=Y.data)'
    typed = name_memory(carried("V[t + 1, tx] = T.float16(1)", halves))
    assert typed.script().index("for t in") < typed.script().index("Y.view")
