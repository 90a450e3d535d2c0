"""Indices past 2^31, on arrays that no machine holds: a wrap is a hazard, 64 bits are none."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.emulator import emulate, sparse
from pipeliner.emulator.translate.compiler import compile_kernel
from pipeliner.mutation.mutants import device_functions

from .raw import lower

ROWS, COLUMNS, WARP = 2**16 + 8, 2**16, 32
LAST = ROWS - 1


def copy(wide: bool) -> Any:
    """A row by each CTA; TVM flattens indices in the type that the shape has."""
    shape = tuple(map(T.int64 if wide else T.int32, (ROWS, COLUMNS)))

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer(shape, "uint8"), C: T.Buffer(shape, "uint8")):
        for bx in T.thread_binding(ROWS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                C[bx, tx] = A[bx, tx]

    return lower(main)


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return sparse((ROWS, COLUMNS), "uint8"), sparse((ROWS, COLUMNS), "uint8")


def test_64_bits_reach_the_end_and_take_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    a, c = arrays()
    a[LAST] = 7
    result = emulate(copy(wide=True), [a, c], blocks=[(LAST, 0, 0), (0, 0, 0)])
    assert result.hazards == ()
    assert (result.outputs["C"][LAST, :WARP] == 7).all()
    assert not result.outputs["C"][LAST, WARP:].any()
    assert [cta.block[0] for cta in result.stats] == [0, LAST]
    assert not c[LAST].any()  # the arguments stay as they are
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB: of 8 GiB


@pytest.mark.parametrize("block", [2**15, LAST])
def test_32_bits_wrap(block):
    result = emulate(copy(wide=False), list(arrays()), blocks=[(block, 0, 0)])
    hazard = result.hazards[0]
    assert hazard.kind == "index-overflow"
    assert hazard.detail["bits"] == 32
    assert block * COLUMNS <= hazard.detail["value"] < (block + 1) * COLUMNS
    assert "C[" in hazard.site.statement


def test_32_bits_below_their_end_do_not_wrap():
    block = 2**15 - 1
    assert emulate(copy(wide=False), list(arrays()), blocks=[(block, 0, 0)]).hazards == ()


@pytest.mark.parametrize("limit", [0, 8])
def test_what_no_thread_uses_is_no_hazard(limit):
    """The product is computed by every CTA; only those below the limit use it."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64,), "int32"), limit: T.int32):
        for bx in T.thread_binding(ROWS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                if bx < T.min(limit, 9) + LAST:
                    A[T.bitwise_and((bx * COLUMNS + tx) // 7, 31)] = 1

    result = emulate(lower(main), [np.zeros(64, "int32"), limit], blocks=[(LAST, 0, 0)])
    assert {h.kind for h in result.hazards} == ({"index-overflow"} if limit else set())


def test_only_the_threads_that_wrap():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            C[tx] = A[T.bitwise_and(T.shift_right(A[tx] * 70001, 4), 63)]

    a = np.zeros(64, "int32")
    a[5] = 40000
    (hazard,) = emulate(lower(main), [a, np.zeros_like(a)]).hazards
    assert (hazard.kind, hazard.threads) == ("index-overflow", (5,))


@pytest.mark.parametrize("least", [0, 2**31 - 17, 2**31 - 9, 2**31 - 1])
def test_a_loaded_index_is_checked_wherever_it_is_raised(least):
    """Of one index two sums: one, both or none wrap, in the first step and not in the second."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((2, 32), "int32"), C: T.Buffer((32,), "int32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            for i in T.serial(2):
                at: T.let[T.int32] = A[i, tx]
                C[T.bitwise_and(at + 8, 31)] = i
                C[T.bitwise_and(at + 16, 31)] = i

    a = np.zeros((2, 32), np.int32)
    a[0, 0] = least
    mod = lower(main)
    (kernel,) = device_functions(mod)[0].values()
    assert compile_kernel(kernel).code.source.count("arith.greatest") == 1
    result = emulate(mod, [a, np.zeros(32, np.int32)])
    found = [h for h in result.hazards if h.kind == "index-overflow"]
    wanted = [least + by for by in (8, 16) if least + by >= 2**31]
    assert [hazard.detail["value"] for hazard in found] == wanted
    assert all((hazard.count, hazard.site.iteration) == (1, (("i", 0),)) for hazard in found)


def test_values_that_were_loaded_may_wrap():
    """Arithmetic of values, not of places: as it comes out on a GPU."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            C[tx] = T.shift_right(A[tx] * 65536 * 4, 2) + A[0] * 65536

    a = np.arange(64).astype("int32") * 65537
    result = emulate(lower(main), [a, np.zeros_like(a)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], (a * 65536 * 4 >> 2) + a[0] * 65536)


def test_a_pointer_is_wider_than_the_index_it_is_made_of():
    """``&A[i]`` counts bytes in 64 bits: 2^31 - 1 elements of four bytes are reached."""
    count = 2**31 - 1

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((count,), "float32"), C: T.Buffer((WARP,), "float32")):
        for bx in T.thread_binding(count // WARP, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((WARP,), "float32", scope="shared")
                T.ptx["cp.async.ca.shared.global"](
                    T.address_of(S[tx]), T.address_of(A[bx * WARP + tx]), 4
                )
                T.ptx["cp.async.wait_all"]()
                T.tvm_storage_sync("shared")
                C[tx] = S[WARP - 1 - tx]

    a = sparse(count, "float32")
    last = count // WARP - 1
    a[last * WARP :][:WARP] = np.arange(WARP)
    result = emulate(lower(main), [a, np.zeros(WARP, "float32")], blocks=[(last, 0, 0)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], np.arange(WARP)[::-1])


def test_sparse_arrays_are_arrays():
    a = sparse((2**20, 2**16), "float16")
    assert (a.shape, a.dtype, a.nbytes) == ((2**20, 2**16), np.float16, 2**37)
    a[-1, -3:] = 1, 2, 3
    assert (a[-1, -4:] == [0, 1, 2, 3]).all()
    assert a.view("uint16")[-1, -3] == np.float16(1).view("uint16")
