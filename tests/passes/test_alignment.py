"""Alignment of vector accesses stays visible behind named subexpressions."""

from __future__ import annotations

import tvm
from tvm.script import tirx as T

from pipeliner.passes.device.alignment import show_alignment


def test_a_name_is_spelt_out_in_a_vector_index_alone() -> None:
    @T.prim_func
    def before(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
        for x in range(8):
            base: T.let[T.int32] = x * 16
            B[T.Ramp(base + 4, 1, 4)] = A[T.Ramp(base, 1, 4)]
            B[base] = A[base]

    @T.prim_func
    def after(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
        for x in range(8):
            base: T.let[T.int32] = x * 16
            B[T.Ramp(x * 16 + 4, 1, 4)] = A[T.Ramp(x * 16, 1, 4)]
            B[base] = A[base]

    tvm.ir.assert_structural_equal(
        show_alignment(before), after.with_attr("global_symbol", "before")
    )


def test_what_is_loaded_keeps_its_name() -> None:
    @T.prim_func
    def func(A: T.Buffer((256,), "float32"), slot: T.Buffer((1,), "int32")):
        now: T.let[T.int32] = slot[0]
        slot[0] = now + 1
        A[T.Ramp(now * 4, 1, 4)] = A[T.Ramp(now * 4 + 4, 1, 4)]

    tvm.ir.assert_structural_equal(show_alignment(func), func)
