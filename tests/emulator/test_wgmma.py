"""wgmma against CuTe's published layouts, TVM's descriptor and instruction table, and numpy."""

from __future__ import annotations

import ctypes
import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.backend.cuda.codegen.header import header_generator
from tvm.backend.cuda.ptx.table import TABLE

from pipeliner.emulator.dtypes import PTX_TYPES, numpy_dtype
from pipeliner.emulator.tensor_map import (
    SWIZZLE_SPANS,
    TensorMap,
    box_index,
    from_encode_args,
    shared_offsets,
    swizzled,
)
from pipeliner.emulator.wgmma import (
    LEGAL_TYPES,
    Descriptor,
    a_register_positions,
    accumulator_positions,
    decode_descriptor,
    encode_descriptor,
    multiply,
    operand_offsets,
    wgmma_spec,
)
from pipeliner.errors import EmulatorError

from .boxes import bytes_of_box


def cute(shape, stride, coordinate: int) -> int:
    """A CuTe layout at a flat coordinate: modes decompose it leftmost fastest (colexicographic)."""
    if isinstance(shape, int):
        return coordinate * stride
    total = 0
    for mode, step in zip(shape, stride, strict=True):
        size = extent(mode)
        total += cute(mode, step, coordinate % size)
        coordinate //= size
    return total


def extent(shape) -> int:
    return shape if isinstance(shape, int) else int(np.prod([extent(mode) for mode in shape]))


def table(shape, stride) -> np.ndarray:
    """A rank-2 CuTe layout as a matrix of indices."""
    rows, cols = map(extent, shape)
    return np.array(
        [
            [cute(shape[0], stride[0], r) + cute(shape[1], stride[1], c) for c in range(cols)]
            for r in range(rows)
        ]
    )


# --- operands in shared memory ---------------------------------------------------------------


def canonical(span: int, major: str, rows: int, t: int, sbo: int, lbo: int):
    """The layouts in CUTLASS's comment on make_gmma_desc, in elements (``t`` to 16 bytes)."""
    w = max(span // 16, 1)
    if major == "k":
        across = t if span else lbo
        return ((8, rows // 8), (t, 2)), ((w * t, sbo), (1, across))
    if span:
        return ((t, w, rows // (t * w)), (8, 2)), ((1, t, lbo), (w * t, sbo))
    return ((t, 1, rows // t), (8, 2)), ((1, t, sbo), (t, lbo))


OPERANDS = [
    *itertools.product(["k"], [1, 2, 4], SWIZZLE_SPANS),
    *itertools.product(["mn"], [2], SWIZZLE_SPANS),
]


@pytest.mark.parametrize(("major", "size", "span"), OPERANDS)
@pytest.mark.parametrize("rows", [64, 128])
def test_operands_lie_in_the_canonical_layouts_of_cute(major, size, span, rows):
    lbo, sbo, base = 3 * 1024, 17 * 1024, 2048
    shape, stride = canonical(span, major, rows, 16 // size, sbo // size, lbo // size)
    desc = Descriptor(base, lbo, sbo, 0, span)
    offsets = operand_offsets(desc, rows, 32 // size, size, major)
    np.testing.assert_array_equal(offsets, swizzled(base + table(shape, stride) * size, span))


def written_by_tma(
    memory: np.ndarray, matrix: np.ndarray, base: int, width: int, span: int
) -> None:
    """Copy a row-major matrix in boxes of ``width`` columns, one after the other, from ``base``."""
    rows, cols = matrix.shape
    size = matrix.itemsize
    tmap = TensorMap(
        str(matrix.dtype), (cols, rows), (cols * size,), (width, rows), (1, 1), 0, span
    )
    for tile in range(cols // width):
        index, inside = box_index(tmap, [tile * width, 0])
        assert inside.all()
        at = shared_offsets(tmap, base + tile * rows * width * size)
        memory[at[:, None] + np.arange(size)] = matrix.reshape(-1)[index, None].view(np.uint8)


def read_by_wgmma(memory: np.ndarray, value: int, rows: int, dtype: np.dtype, major: str):
    k = 32 // dtype.itemsize
    at = operand_offsets(decode_descriptor(value), rows, k, dtype.itemsize, major)
    return memory[at[..., None] + np.arange(dtype.itemsize)].view(dtype)[..., 0]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 7), st.integers(1, 4), st.sampled_from([16, 24, 64, 96, 256]), st.data())
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("ptx", ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"])
def test_a_k_major_operand_comes_back_as_tma_wrote_it(ptx, mode, block, atoms, rows, data):
    dtype, span = numpy_dtype(PTX_TYPES[ptx]), SWIZZLE_SPANS[mode]
    width = max(span, 16) // dtype.itemsize
    cols = width * atoms * (1 if span else 2)
    matrix = numbered(rows, cols, dtype)
    memory = np.zeros(1 << 18, np.uint8)
    base = 1024 * block
    written_by_tma(memory, matrix, base, width, span)

    k = 32 // dtype.itemsize
    step = data.draw(st.integers(0, cols // k - 1))
    tile, inner = divmod(step * 32, max(span, 16))
    start = base + tile * rows * max(span, 16) + inner
    # The leading offset counts without a swizzle only; e.g. 1 is what kernels write else.
    leading = 1 if span else rows
    value = encode_descriptor(start, leading, 8 * max(span, 16) // 16, mode)
    got = read_by_wgmma(memory, value, rows, dtype, "k")
    np.testing.assert_array_equal(got, matrix[:, step * k : (step + 1) * k])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 7), st.integers(1, 4), st.integers(1, 6), st.data())
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("ptx", ["f16", "bf16"])
def test_an_mn_major_operand_comes_back_as_tma_wrote_it(ptx, mode, block, tiles, steps, data):
    dtype, span = numpy_dtype(PTX_TYPES[ptx]), SWIZZLE_SPANS[mode]
    pitch = max(span, 16)
    width = pitch // 2
    rows, k = 64 * tiles, 16 * steps  # (k, rows) in global memory: m or n contiguous
    matrix = numbered(k, rows, dtype)
    memory = np.zeros(1 << 18, np.uint8)
    base = 1024 * block
    written_by_tma(memory, matrix, base, width, span)

    step = data.draw(st.integers(0, steps - 1))
    along, across = k * pitch // 16, 8 * pitch // 16
    leading, stride = (along, across) if span else (across, along)
    value = encode_descriptor(base + step * 16 * pitch, leading, stride, mode)
    got = read_by_wgmma(memory, value, rows, dtype, "mn")
    np.testing.assert_array_equal(got, matrix[step * 16 : (step + 1) * 16].T)


def numbered(rows: int, cols: int, dtype: np.dtype) -> np.ndarray:
    """A matrix whose neighbours differ, of finite values of any dtype."""
    values = np.add.outer(np.arange(rows) * 7, np.arange(cols) * 3) % 61
    return values.astype(np.float32).astype(dtype)


def test_operands_that_no_instruction_has_are_refused():
    desc = Descriptor(0, 16, 1024, 0, 128)
    with pytest.raises(EmulatorError, match="base offset 3"):
        operand_offsets(Descriptor(0, 16, 1024, 3, 128), 64, 16, 2)
    with pytest.raises(EmulatorError, match="k = 8 elements of 2 bytes: expected 32 bytes"):
        operand_offsets(desc, 64, 8, 2)
    with pytest.raises(EmulatorError, match="mn-major wgmma operand of 1-byte elements"):
        operand_offsets(desc, 64, 32, 1, "mn")


# --- descriptors -----------------------------------------------------------------------------


def tvm_descriptor() -> type[ctypes.Structure]:
    """The bit fields of GmmaDescriptor, from the CUDA header that TVM emits."""
    union = header_generator(["gmma_descriptor"]).partition("union GmmaDescriptor")[2]
    body = re.search(r"struct \{(.*?)\} bitfield;", union, re.S)[1]
    fields = []
    for line in re.sub(r"//.*", "", body).split(";"):
        if not line.strip():
            continue
        ctype, members = line.split(maxsplit=1)
        for member in members.split(","):
            name, bits = member.split(":")
            kind = getattr(ctypes, "c_" + ctype.removesuffix("_t"))
            fields.append((name.strip() or f"pad{len(fields)}", kind, int(bits)))
    return type("GmmaDescriptor", (ctypes.Structure,), {"_fields_": fields})


# layout_type_ of the swizzle argument in the body of TVM's encoder; the header's comment agrees.
LAYOUT_TYPE = {0: 0, 1: 3, 2: 2, 3: 1}
field = st.integers(0, 2**14 - 1)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(field, field, field, st.integers(0, 3))
def test_a_descriptor_has_the_bit_fields_of_tvm(start, leading, stride, swizzle):
    fields = tvm_descriptor()(
        start_address_=start,
        leading_byte_offset_=leading,
        stride_byte_offset_=stride,
        layout_type_=LAYOUT_TYPE[swizzle],
    )
    value = int.from_bytes(bytes(fields), "little")
    assert encode_descriptor(16 * start, leading, stride, swizzle) == value
    expected = Descriptor(16 * start, 16 * leading, 16 * stride, 0, SWIZZLE_SPANS[swizzle])
    assert decode_descriptor(value) == expected
    assert decode_descriptor(np.uint64(value)) == expected


def test_a_base_offset_is_decoded():
    value = int.from_bytes(bytes(tvm_descriptor()(base_offset_=5)), "little")
    assert decode_descriptor(value) == Descriptor(0, 0, 0, 5, 0)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((8, 1, 64, 3), "operand address 8: expected a multiple of 16"),
        ((1 << 18, 1, 64, 3), "operand address 262144"),
        ((0, 1 << 14, 64, 3), "leading offset 16384: expected 0 to 16383"),
        ((0, 1, -1, 3), "stride offset -1"),
        ((0, 1, 64, 4), "swizzle 4: expected 0 to 3"),
    ],
)
def test_a_descriptor_that_its_fields_cannot_hold_is_refused(args, message):
    with pytest.raises(EmulatorError, match=message):
        encode_descriptor(*args)


# --- registers -------------------------------------------------------------------------------

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


# --- types and arithmetic --------------------------------------------------------------------


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
        if "cannot emulate wgmma m64n" not in str(error):
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
    with pytest.raises(EmulatorError, match=r"wgmma m128n8k16\.f32\.f16\.f16: unknown shape"):
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
    with pytest.raises(EmulatorError, match="imm-scale-b 0: expected -1 or 1"):
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
