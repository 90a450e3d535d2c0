"""The layouts of ldmatrix and mma, against the formulas of the PTX ISA and against numpy."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from pipeliner.emulator.units.fragments import (
    computed_pair,
    ldmatrix_words,
    logic_of_three,
    mma_spec,
    mma_store_positions,
    multiply,
    narrowed_pair,
    nearest_tf32,
    permuted_bytes,
    round_to_tf32,
)
from pipeliner.errors import EmulatorError

from ..refusals import refused

# PTX ISA 9.7.14.5, "Matrix Fragments for mma.m16n8k..": row and column of element i of lane's
# fragment, written out per shape as the ISA prints them.
A_FORMULA = {
    "m16n8k16_16": lambda g, t, i: (
        g if i in (0, 1, 4, 5) else g + 8,
        t * 2 + (i & 1) + (8 if i >= 4 else 0),
    ),
    "m16n8k8_16": lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    "m16n8k8_32": lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    "m16n8k4_32": lambda g, t, i: (g if i == 0 else g + 8, t),
    "m16n8k32_8": lambda g, t, i: (
        g if i < 4 or 8 <= i < 12 else g + 8,
        t * 4 + (i & 3) + (16 if i >= 8 else 0),
    ),
    "m16n8k16_8": lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
}
B_FORMULA = {
    "m16n8k16_16": lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    "m16n8k8_16": lambda g, t, i: (t * 2 + i, g),
    "m16n8k8_32": lambda g, t, i: (t if i == 0 else t + 4, g),
    "m16n8k4_32": lambda g, t, i: (t, g),
    "m16n8k32_8": lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
    "m16n8k16_8": lambda g, t, i: (t * 4 + i, g),
}
CASES = [
    ("m16n8k16", "f16", "f32", np.float16),
    ("m16n8k16", "f16", "f16", np.float16),
    ("m16n8k8", "f16", "f32", np.float16),
    ("m16n8k16", "bf16", "f32", ml_dtypes.bfloat16),
    ("m16n8k8", "bf16", "f32", ml_dtypes.bfloat16),
    ("m16n8k8", "tf32", "f32", np.float32),
    ("m16n8k4", "tf32", "f32", np.float32),
    ("m16n8k32", "s8", "s32", np.int8),
    ("m16n8k16", "s8", "s32", np.int8),
    ("m16n8k32", "u8", "s32", np.uint8),
    ("m16n8k32", "e4m3", "f32", ml_dtypes.float8_e4m3fn),
    ("m16n8k32", "e5m2", "f32", ml_dtypes.float8_e5m2),
]


def fragment(matrix: np.ndarray, formula, elements: int) -> np.ndarray:
    """(1, 32, registers) uint32: what each lane holds of the matrix."""
    out = np.zeros((32, elements), matrix.dtype)
    for lane in range(32):
        for i in range(elements):
            out[lane, i] = matrix[formula(lane // 4, lane % 4, i)]
    return out.view(np.uint32)[None]


@pytest.mark.parametrize("table", [0xEA, 0x96, 0x00, 0xFF])
def test_logic_of_three_is_what_its_table_says(table: int) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, (3, 40), dtype=np.uint32)
    got = logic_of_three(table, *words)
    for bit in range(32):
        a, b, c = (words >> np.uint32(bit) & 1).astype(int)
        want = table >> (a * 4 + b * 2 + c) & 1
        assert ((got >> np.uint32(bit) & 1) == want).all()


@pytest.mark.parametrize(("shape", "kind", "acc", "dtype"), CASES)
def test_mma_multiplies_fragments_laid_out_by_the_isa(shape, kind, acc, dtype):
    rng = np.random.default_rng(0)
    spec = mma_spec(shape, kind, kind, acc)
    low = 0 if kind == "u8" else -4
    a = rng.integers(low, 5, (16, spec.k)).astype(dtype)
    b = rng.integers(low, 5, (spec.k, 8)).astype(dtype)
    c = rng.integers(-9, 9, (16, 8)).astype(spec.d_type)
    size = np.dtype(dtype).itemsize
    key = f"{shape}_{8 * size}"
    fa = fragment(a, A_FORMULA[key], 16 * spec.k // 32)
    fb = fragment(b, B_FORMULA[key], 8 * spec.k // 32)
    rows = [
        (lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2) for lane in range(32) for i in range(4)
    ]
    fc = np.array([c[rc] for rc in rows], spec.d_type).reshape(1, 32, 4)

    fd = multiply(spec, fa, fb, fc, saturate=False)

    expected = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    got = np.zeros((16, 8))
    for rc, value in zip(rows, fd.reshape(-1), strict=True):
        got[rc] = value
    np.testing.assert_array_equal(got, expected)


def test_tf32_operands_lose_their_low_bits_and_cvt_rounds_to_nearest():
    value = np.array([1 + 2**-11, 1 + 2**-10, 1 + 2**-11 + 2**-20], np.float32)
    np.testing.assert_array_equal(round_to_tf32(value), np.float32([1, 1 + 2**-10, 1]))
    np.testing.assert_array_equal(nearest_tf32(value), np.float32([1 + 2**-10] * 3))


def test_saturated_integer_mma_stays_in_range():
    spec = mma_spec("m16n8k32", "s8", "s8", "s32")
    ones = np.full((1, 32, 4), 0x7F7F7F7F, np.uint32)
    top = np.full((1, 32, 4), 2**31 - 1, np.int32)
    assert (multiply(spec, ones, ones[..., :2], top, saturate=True) == 2**31 - 1).all()
    assert (multiply(spec, ones, ones[..., :2], top, saturate=False) < 0).all()


def test_an_unknown_mma_shape_is_refused_by_name():
    with refused("ptx.mma", EmulatorError, shape="m8n8k4", a_type="f16"):
        mma_spec("m8n8k4", "f16", "f16", "f32")


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_each_lane_its_pair(count, transposed):
    matrices = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    rows = np.zeros((1, 32, 8), np.uint16)
    rows[0, : 8 * count] = matrices.reshape(-1, 8)
    words = ldmatrix_words(rows.view(np.uint8), count, transposed=transposed)
    for i in range(count):
        source = matrices[i].T if transposed else matrices[i]
        for lane in range(32):
            pair = source[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
            assert words[i][0, lane] == int(pair[0]) | int(pair[1]) << 16


def test_the_16x16_accumulator_layout_covers_the_tile_once():
    rows, cols = mma_store_positions()
    assert sorted((rows * 16 + cols).reshape(-1)) == list(range(256))


def test_permuted_bytes_are_those_that_each_digit_names():
    """PTX ISA, prmt: bytes 0 to 3 of a are numbered 0 to 3, those of b 4 to 7; 8 and up: signs."""
    rng = np.random.default_rng(0)
    low, high, chosen = rng.integers(0, 2**32, (3, 64), dtype=np.uint64).astype(np.uint32)
    got = permuted_bytes(low, high, chosen).view(np.uint8).reshape(-1, 4)
    both = np.stack([low, high], axis=1).view(np.uint8)
    for lane in range(64):
        digits = [int(d, 16) for d in reversed(f"{chosen[lane]:08x}"[4:])]
        named = [both[lane][d % 8] for d in digits]
        want = [(255 if x >= 128 else 0) if d >= 8 else x for d, x in zip(digits, named)]
        assert got[lane].tolist() == want
    # CUDA Math API, __byte_perm: 0x3210 gives the first word, 0x7654 the second.
    for selector, word in ((0x3210, low), (0x7654, high)):
        np.testing.assert_array_equal(permuted_bytes(low, high, np.full(64, selector, "u4")), word)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrowed_pair_has_the_second_operand_in_its_lower_half(dtype):
    """PTX ISA, cvt: "the converted result of a is stored in the upper half of d"."""
    low, high = np.float32([1.0, 1 + 2**-20, -3e5]), np.float32([2.0, 65504, 2**-9 + 1])
    word = narrowed_pair(low, high, np.dtype(dtype))
    got = word.view(np.uint16).reshape(-1, 2).view(dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, np.stack([low, high], axis=1).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_a_computed_pair_is_rounded_once(name, dtype):
    """No neighbour of a result is nearer to the exact value, which fractions hold."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((3, 400, 2)) * 2.0 ** rng.integers(-6, 7, (3, 400, 2))
    values[:, :4] = [[[1.0, 1024.0]], [[2.0**-7, 2.0**-10]], [[2.0**-12, -1.0]]]
    halves = values.astype(dtype)
    words = halves.view(np.uint32)[..., 0]
    used = words[: 3 if name == "fma" else 2]
    got = computed_pair(name, np.dtype(dtype), *used).view(dtype).reshape(-1, 2)
    exact = {
        "add": lambda a, b, c: a + b,
        "sub": lambda a, b, c: a - b,
        "mul": lambda a, b, c: a * b,
        "fma": lambda a, b, c: a * b + c,
    }[name]
    for n, half in np.ndindex(400, 2):
        want = exact(*(Fraction(float(x[n, half])) for x in halves))
        bits = int(got[n : n + 1, half].view(np.uint16)[0])
        near = np.uint16([max(bits - 1, 0), bits, bits + 1]).view(dtype)
        off = [abs(Fraction(float(x)) - want) for x in near if np.isfinite(float(x))]
        assert abs(Fraction(float(got[n, half])) - want) == min(off)
