"""Arguments are memory: layouts, what is given twice, alignment, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from pipeliner.emulator import emulate, lower_for_emulation

from ..refusals import refused
from .judge import kinds, run
from .raw import CUDA

ROWS, COLUMNS = 4, 32


def rows(stride: int | None = None, offset: int = 0) -> Any:
    """C = A + 1, with A in rows ``stride`` apart (None: a variable) behind ``offset`` elements."""

    @T.prim_func(s_tir=True)
    def constant(a: T.handle, C: T.Buffer((ROWS, COLUMNS), "float32")):
        A = T.match_buffer(
            a, (ROWS, COLUMNS), "float32", strides=(stride or 0, 1), elem_offset=offset
        )
        for tx in T.thread_binding(COLUMNS, thread="threadIdx.x"):
            for i in T.serial(ROWS):
                C[i, tx] = A[i, tx] + T.float32(1)

    @T.prim_func(s_tir=True)
    def symbolic(a: T.handle, C: T.Buffer((ROWS, COLUMNS), "float32")):
        s, o = T.int32(), T.int32()
        A = T.match_buffer(
            a, (ROWS, COLUMNS), "float32", strides=(s, 1), elem_offset=o, offset_factor=1
        )
        for tx in T.thread_binding(COLUMNS, thread="threadIdx.x"):
            for i in T.serial(ROWS):
                C[i, tx] = A[i, tx] + T.float32(1)

    return constant if stride else symbolic


def values(columns: int = COLUMNS) -> np.ndarray:
    return np.arange(ROWS * columns, dtype="float32").reshape(ROWS, columns)


def blank() -> np.ndarray:
    return np.zeros((ROWS, COLUMNS), "float32")


@pytest.mark.parametrize("view", [values(), values(40)[:, :COLUMNS], values(40)[:, 8:]])
def test_variable_strides_are_those_of_the_array(view):
    result = run(rows(), view, blank())
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], view + 1)
    np.testing.assert_array_equal(result.outputs["A"], view)
    assert result.outputs["A"].strides == view.strides


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("view", [values(), values(40)[:, :COLUMNS]])
def test_constant_strides_lay_the_array_out(view, offset):
    result = run(rows(40, offset), view, blank())
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], view + 1)


def test_an_array_that_is_laid_out_otherwise_is_refused():
    with refused("emulator.argument_strides", expected=(40, 1), strides=(48, 1)):
        run(rows(40), values(48)[:, :COLUMNS], blank())


def more(width: int = 1) -> Any:
    """C[i] = A[i] + 1, in vectors."""
    count = ROWS * COLUMNS

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((count,), "float32"), C: T.Buffer((count,), "float32")):
        for tx in T.thread_binding(COLUMNS, thread="threadIdx.x"):
            for i in T.serial(ROWS // width):
                for j in T.vectorized(width):
                    at: T.let = (i * COLUMNS + tx) * width + j
                    C[at] = A[at] + T.float32(1)

    return main


def test_an_array_that_is_given_twice_is_written_in_place():
    a = values().reshape(-1)
    result = run(more(), a, a)
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["A"], values().reshape(-1) + 1)
    assert np.shares_memory(result.outputs["A"], result.outputs["C"])
    np.testing.assert_array_equal(a, values().reshape(-1))  # the argument stays as it is


def test_arrays_that_overlap_race():
    """C begins one element behind A: what a thread writes its neighbour reads."""
    memory = np.arange(ROWS * COLUMNS + 1, dtype="float32")
    assert kinds(more(), memory[:-1], memory[1:]) == {"race", "write-while-read"}
    assert kinds(more(), memory[:-1], memory[1:].copy()) == set()


def test_neighbours_in_one_array_do_not_overlap():
    memory = np.zeros(2 * ROWS * COLUMNS, "float32")
    assert kinds(more(), memory[: len(memory) // 2], memory[len(memory) // 2 :]) == set()


@pytest.mark.parametrize(("first", "found"), [(0, set()), (4, set()), (2, {"misaligned"})])
def test_a_pointer_is_as_aligned_as_the_array_in_its_memory(first, found):
    memory = np.zeros(ROWS * COLUMNS + 4, "float32")
    a = memory[first:][: ROWS * COLUMNS]
    assert kinds(more(4), a, np.zeros_like(a)) == found
    assert kinds(more(1), a, np.zeros_like(a)) == set()


def test_parameters_of_one_name_go_by_position():
    """As TE makes them."""
    x, y = (te.placeholder((COLUMNS,), "float32", name="x") for _ in range(2))
    made = te.create_prim_func([x, y, te.compute((COLUMNS,), lambda i: x[i] - y[i], name="x")])
    schedule = Schedule(made)
    (loop,) = schedule.get_loops(schedule.get_sblock("x"))
    schedule.bind(loop, "threadIdx.x")
    lowered = lower_for_emulation(schedule, CUDA)
    one, three = np.ones(COLUMNS, "float32"), np.full(COLUMNS, 3, "float32")
    result = emulate(lowered, [three, one, np.zeros_like(one)])
    assert list(result.outputs) == ["x", "x_1", "x_2"]
    assert (result.outputs["x_2"] == 2).all()
    by_name = emulate(lowered, {"x_1": one, "x": three, "x_2": np.zeros_like(one)})
    assert (by_name.outputs["x_2"] == 2).all()
