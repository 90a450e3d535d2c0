"""wgmma against CuTe's published layouts, TVM's instruction table, and numpy."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from tvm.backend.cuda.ptx.table import TABLE

from pipeliner.emulator.base.dtypes import PTX_TYPES, numpy_dtype
from pipeliner.emulator.memory.tensor_map import box_index, from_encode_args, shared_offsets
from pipeliner.emulator.units.wgmma import (
    LEGAL_TYPES,
    a_register_positions,
    accumulator_positions,
    encode_descriptor,
    multiply,
    wgmma_spec,
)
from pipeliner.errors import EmulatorError

from ..refusals import refused
from .boxes import bytes_of_box
from .cute import read_by_wgmma, table

# CuTe's (thread, value) -> m + 64 n layouts of the wgmma fragments, as mma_traits_sm90_gmma.hpp
# prints them.
THREADS = (4, 8, 4)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_accumulators_lie_in_the_layout_of_cute(n):
    shape, stride = (THREADS, (2, 2, n // 8)), ((128, 1, 16), (64, 8, 512))
    col, row = np.divmod(table(shape, stride), 64)
    np.testing.assert_array_equal(accumulator_positions(n), row * n + col)


A_LAYOUTS = {
    "tf32": ((THREADS, (2, 2)), ((64, 1, 16), (8, 256))),
    "f16": ((THREADS, (2, 2, 2)), ((128, 1, 16), (64, 8, 512))),
    "bf16": ((THREADS, (2, 2, 2)), ((128, 1, 16), (64, 8, 512))),
    "s8": ((THREADS, (4, 2, 2)), ((256, 1, 16), (64, 8, 1024))),
    "e4m3": ((THREADS, (4, 2, 2)), ((256, 1, 16), (64, 8, 1024))),
}


@pytest.mark.parametrize("a_type", A_LAYOUTS)
def test_a_in_registers_lies_in_the_layout_of_cute(a_type):
    layout = table(*A_LAYOUTS[a_type])  # (128 threads, values of four registers)
    col, row = np.divmod(layout, 64)
    positions = a_register_positions(a_type)
    assert positions.shape == (64, col.max() + 1)
    np.testing.assert_array_equal(positions[row, col].reshape(-1), np.arange(layout.size))


def tvm_lines() -> set[tuple[str, str, str, str]]:
    """(shape, d, a, b) of every wgmma.mma_async in TVM's table of PTX, single-bit ones aside."""
    lines = set()
    for entry in TABLE.values():
        slots = {slot.name: slot.choices for slot in entry.slots}
        if entry.mnemonic != "wgmma" or slots["action"] != ("mma_async",):
            continue
        names = ("shape", "dtype", "atype", "btype")
        lines |= {
            line for line in itertools.product(*(slots[x] for x in names)) if "b1" not in line
        }
    return lines


def accepted(line: tuple[str, str, str, str]) -> bool:
    try:
        wgmma_spec(*line)
    except EmulatorError as error:
        if error.reason.code not in ("ptx.wgmma_types", "ptx.wgmma_shape"):
            raise
        return False
    return True


def test_the_instructions_are_those_of_tvms_ptx_table():
    types = ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"]
    shapes = [f"m64n{n}k{k}" for n in [*range(0, 273, 8), 12] for k in (8, 16, 32, 64)]
    every = itertools.product(shapes, ["f16", "f32", "s32"], types, types)
    ours = {line for line in every if accepted(line)}
    # The ISA's table of shapes has these integer shapes, its syntax line (TVM's source) does not.
    larger = {line for line in ours if line[0] in ("m64n240k32", "m64n256k32") and line[1] == "s32"}
    assert len(larger) == 8
    assert ours - larger == tvm_lines()


def test_a_name_that_is_no_shape_is_refused():
    with refused("ptx.wgmma_shape", EmulatorError, shape="m128n8k16"):
        wgmma_spec("m128n8k16", "f32", "f16", "f16")


def scattered(spec, out: np.ndarray) -> np.ndarray:
    """(64, n) of one warpgroup's accumulators."""
    tile = np.zeros(64 * spec.n, out.dtype)
    tile[accumulator_positions(spec.n)] = out
    return tile.reshape(64, spec.n)


ALL_TYPES = [(a, b, d) for (a, b), ds in LEGAL_TYPES.items() for d in ds]


@pytest.mark.parametrize(("a_type", "b_type", "d_type"), ALL_TYPES)
@pytest.mark.parametrize(("scale_a", "scale_b"), [(1, 1), (-1, 1), (-1, -1)])
def test_products_of_small_integers_are_exact(a_type, b_type, d_type, scale_a, scale_b):
    rng = np.random.default_rng(0)
    k = 32 // numpy_dtype(PTX_TYPES[a_type]).itemsize
    spec = wgmma_spec(f"m64n24k{k}", d_type, a_type, b_type)
    low = {"u8": 0}
    a = rng.integers(low.get(a_type, -4), 5, (2, 64, k))
    b = rng.integers(low.get(b_type, -4), 5, (2, 24, k))
    c = rng.integers(-9, 9, (2, 128, 12))
    as_types = a.astype(np.float32).astype(spec.a_type), b.astype(np.float32).astype(spec.b_type)
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    kept = multiply(spec, *as_types, c.astype(spec.d_type), scale_d=True, **scales)
    fresh = multiply(spec, *as_types, np.full(c.shape, -1, spec.d_type), scale_d=False, **scales)
    assert kept.dtype == fresh.dtype == spec.d_type
    for group in range(2):
        product = scale_a * scale_b * a[group] @ b[group].T
        np.testing.assert_array_equal(scattered(spec, fresh[group]), product)
        addend = scattered(spec, c[group])
        np.testing.assert_array_equal(scattered(spec, kept[group]), product + addend)


def test_without_scale_d_the_accumulators_are_not_read():
    spec = wgmma_spec("m64n8k16", "f32", "f16", "f16")
    ones = np.ones((64, 16), np.float16)
    out = multiply(spec, ones, ones[:8], np.full((128, 4), np.nan, np.float32), scale_d=False)
    np.testing.assert_array_equal(out, 16)


def test_tf32_operands_lose_their_low_bits():
    spec = wgmma_spec("m64n8k8", "f32", "tf32", "tf32")
    a, b = np.zeros((64, 8), np.float32), np.zeros((8, 8), np.float32)
    a[:, 0], b[:, 0] = 1 + 2**-10 + 2**-11, 1 + 2**-11
    out = multiply(spec, a, b, np.zeros((128, 4), np.float32), scale_d=True)
    np.testing.assert_array_equal(out, np.float32(1 + 2**-10))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_are_rounded_once(dtype):
    name = "f16" if dtype is np.float16 else "bf16"
    rng = np.random.default_rng(1)
    spec = wgmma_spec("m64n16k16", "f32", name, name)
    a, b = (rng.standard_normal((rows, 16)).astype(dtype) for rows in (64, 16))
    c = rng.standard_normal((128, 8)).astype(np.float32)
    got = scattered(spec, multiply(spec, a, b, c, scale_d=True)).astype(np.float64)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble).T + scattered(spec, c)
    assert (np.abs(got - exact) <= np.spacing(np.abs(exact).astype(np.float32)) * 0.5).all()


def test_saturated_integer_sums_stay_in_range():
    spec = wgmma_spec("m64n8k32", "s32", "u8", "u8")
    a, b = np.full((64, 32), 255, np.uint8), np.full((8, 32), 255, np.uint8)
    top = np.full((128, 4), 2**31 - 1, np.int32)
    assert (multiply(spec, a, b, top, scale_d=True, saturate=True) == 2**31 - 1).all()
    wrapped = 2**31 - 1 + 32 * 255 * 255 - 2**32
    assert (multiply(spec, a, b, top, scale_d=True) == wrapped).all()


def test_a_scale_that_the_isa_does_not_have_is_refused():
    spec = wgmma_spec("m64n8k16", "f32", "f16", "f16")
    ones = np.ones((64, 16), np.float16)
    with refused("ptx.wgmma_scale", EmulatorError, operand="b", scale=0):
        multiply(spec, ones, ones[:8], np.zeros((128, 4), np.float32), scale_d=True, scale_b=0)


def test_a_tile_of_a_gemm_as_hopper_kernels_compute_it():
    """Two warpgroups, 128 x 64 x 64 bf16 in tiles of k = 64: maps, descriptors, stores as usual."""
    rng = np.random.default_rng(2)
    m, n, depth = 128, 64, 192
    a, b = (rng.integers(-3, 4, (rows, depth)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    modes = (0, 3, 2, 0)
    a_map = from_encode_args("bfloat16", 2, [depth, m, depth * 2, 64, m, 1, 1, *modes])
    b_map = from_encode_args("bfloat16", 2, [depth, n, depth * 2, 64, n, 1, 1, *modes])
    a_at, b_at = 1024, 1024 + bytes_of_box(a_map)
    memory = np.zeros(b_at + bytes_of_box(b_map), np.uint8)
    spec = wgmma_spec("m64n64k16", "f32", "bf16", "bf16")
    acc = np.full((2, 128, n // 2), np.nan, np.float32)
    for k in range(0, depth, 64):
        for tmap, matrix, base in ((a_map, a, a_at), (b_map, b, b_at)):
            index, _ = box_index(tmap, [k, 0])
            words = memory.view(np.uint16)
            words[shared_offsets(tmap, base) // 2] = matrix.reshape(-1)[index].view(np.uint16)
        for kk in range(4):
            for group in range(2):
                starts = a_at + (group * 64 * 64 + kk * 16) * 2, b_at + kk * 16 * 2
                operands = [
                    read_by_wgmma(memory, encode_descriptor(at, 1, 64, 3), rows, spec.a_type, "k")
                    for at, rows in zip(starts, (64, n), strict=True)
                ]
                acc[group] = multiply(spec, *operands, acc[group], scale_d=k + kk > 0)
    got = np.zeros((m, n), np.float32)
    for tx, j, h, v in itertools.product(range(256), range(n // 8), range(2), range(2)):
        row = tx // 128 * 64 + tx % 128 // 32 * 16 + tx % 32 // 4 + 8 * h
        got[row, 8 * j + tx % 4 * 2 + v] = acc[tx // 128, tx % 128, 4 * j + 2 * h + v]
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32).T)
