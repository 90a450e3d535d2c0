"""Operands of wgmma in shared memory against CuTe's published layouts and TMA; TVM's descriptors."""

from __future__ import annotations

import ctypes
import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.backend.cuda.codegen.header import header_generator

from pipeliner.emulator.base.dtypes import PTX_TYPES, numpy_dtype
from pipeliner.emulator.memory.tensor_map import (
    SWIZZLE_SPANS,
    TensorMap,
    box_index,
    shared_offsets,
    swizzled,
)
from pipeliner.emulator.units.wgmma import (
    Descriptor,
    decode_descriptor,
    encode_descriptor,
    operand_offsets,
)
from pipeliner.errors import EmulatorError

from ..refusals import refused
from .cute import read_by_wgmma, table


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


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 7), st.integers(1, 4), st.sampled_from([16, 24, 64, 96, 256]), st.data())
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("ptx", ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"])
@pytest.mark.part(2)
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
    with refused("ptx.descriptor_base", offset=3):
        operand_offsets(Descriptor(0, 16, 1024, 3, 128), 64, 16, 2)
    with refused("ptx.wgmma_k", k=8, itemsize=2, expected=32):
        operand_offsets(desc, 64, 8, 2)
    with refused("ptx.wgmma_major", itemsize=1):
        operand_offsets(desc, 64, 32, 1, "mn")


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


FIELD = "ptx.descriptor_field"


def test_a_base_offset_is_decoded():
    value = int.from_bytes(bytes(tvm_descriptor()(base_offset_=5)), "little")
    assert decode_descriptor(value) == Descriptor(0, 0, 0, 5, 0)


@pytest.mark.parametrize(
    ("args", "code", "numbers"),
    [
        ((8, 1, 64, 3), "ptx.descriptor_address", {"address": 8, "multiple": 16}),
        ((1 << 18, 1, 64, 3), "ptx.descriptor_address", {"address": 262144}),
        ((0, 1 << 14, 64, 3), FIELD, {"field": "leading offset", "high": 16383, "value": 16384}),
        ((0, 1, -1, 3), FIELD, {"field": "stride offset", "value": -1}),
        ((0, 1, 64, 4), FIELD, {"field": "swizzle", "high": 3, "value": 4}),
    ],
)
def test_a_descriptor_that_its_fields_cannot_hold_is_refused(args, code, numbers):
    with refused(code, EmulatorError, **numbers):
        encode_descriptor(*args)
