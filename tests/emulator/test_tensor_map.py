"""Tensor maps against numpy's padding and slicing, TVM's swizzled layouts and the driver's rules."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout

from pipeliner.emulator.memory.tensor_map import (
    SWIZZLE_SPANS,
    TensorMap,
    box_index,
    fill_value,
    from_encode_args,
    shared_offsets,
    swizzled,
)
from pipeliner.errors import EmulatorError

from ..refusals import refused
from .boxes import bytes_of_box

# A[M, K] of float16 in boxes of 64 x 128 under the 128-byte swizzle, as Hopper GEMMs load it.
SHAPE, STRIDES, BOX, STEPS, MODES = (256, 384), (512,), (64, 128), (1, 1), (0, 3, 2, 0)


def encode(
    dtype="float16", shape=SHAPE, strides=STRIDES, box=BOX, steps=STEPS, modes=MODES, base=0
):
    return from_encode_args(dtype, len(shape), [*shape, *strides, *box, *steps, *modes], base)


def test_the_arguments_of_a_gemm_operand():
    assert encode() == TensorMap("float16", SHAPE, STRIDES, BOX, STEPS, swizzle=128)
    assert encode(modes=(*MODES, -1)) == encode()
    assert bytes_of_box(encode()) == 128 * 64 * 2


def test_rank_one_has_no_strides():
    tmap = encode("float32", (1000,), (), (64,), (1,), (0, 0, 0, 0))
    index, inside = box_index(tmap, [960])
    np.testing.assert_array_equal(index, [*range(960, 1000)] + [0] * 24)
    np.testing.assert_array_equal(inside, [True] * 40 + [False] * 24)


RANGE = "tensor_map.range"
FP8 = {"dtype": "float8_e4m3fn", "box": (128, 8)}
REFUSED = [
    ({"base": 8}, "tensor_map.address", {"multiple": 16, "offset": 8}),
    ({"shape": (256, 0)}, RANGE, {"field": "dimension 1", "high": 2**32, "value": 0}),
    ({"shape": (2**32 + 1, 384)}, RANGE, {"field": "dimension 0", "value": 2**32 + 1}),
    ({"strides": (520,)}, "tensor_map.stride", {"dimension": 1, "multiple": 16, "stride": 520}),
    ({"strides": (2**40,)}, "tensor_map.stride", {"stride": 2**40}),
    ({"box": (64, 257)}, RANGE, {"field": "box size 1", "high": 256, "value": 257}),
    ({"box": (64, 0)}, RANGE, {"field": "box size 1", "low": 1, "value": 0}),
    ({"box": (60, 8)}, "tensor_map.inner_box", {"elements": 60, "nbytes": 120}),
    ({"box": (72, 8)}, "tensor_map.wide", {"nbytes": 144, "swizzle": 128}),
    ({"steps": (1, 9)}, RANGE, {"field": "element stride 1", "high": 8, "value": 9}),
    ({"steps": (0, 1)}, RANGE, {"field": "element stride 0", "value": 0}),
    ({"modes": (1, 3, 2, 0)}, "tensor_map.interleave", {"mode": 1}),
    ({"modes": (0, 4, 2, 0)}, RANGE, {"field": "swizzle", "high": 3, "value": 4}),
    ({"modes": (0, 3, 4, 0)}, RANGE, {"field": "L2 promotion", "value": 4}),
    ({"modes": (0, 3, 2, 2)}, "tensor_map.fill", {"value": 2}),
    ({"modes": (0, 3, 2, 0, 11)}, "tensor_map.driver_dtype", {"dtype": 11}),
    ({"modes": (0, 3, 2)}, "tensor_map.arguments", {"rank": 2, "fewest": 11, "count": 10}),
    ({"dtype": "int16", "modes": (0, 3, 2, 1)}, "tensor_map.fill_dtype", {"dtype": "int16"}),
    ({**FP8, "modes": (0, 3, 2, 1)}, "tensor_map.fill_dtype", {"dtype": "float8_e4m3fn"}),
    ({"dtype": "float4_e2m1fn"}, "emulator.dtype", {"dtype": "float4_e2m1fn"}),
]


@pytest.mark.parametrize(("change", "code", "args"), REFUSED)
def test_what_the_driver_refuses_is_refused_by_its_numbers(change, code, args):
    with refused(code, EmulatorError, **args) as caught:
        encode(**change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rank", [0, 6])
def test_a_rank_that_the_driver_does_not_know(rank):
    with refused("tensor_map.rank", EmulatorError, low=1, high=5, rank=rank):
        from_encode_args("float16", rank, [1] * (4 * rank + 3))
    with refused("tensor_map.rank", EmulatorError, low=1, high=5, rank=rank):
        TensorMap("float16", (8,) * rank, (16,) * max(rank - 1, 0), (8,) * rank, (1,) * rank)


def test_fields_that_disagree_in_rank():
    with refused("tensor_map.lengths", rank=2, strides=1, box=1, element_strides=2):
        TensorMap("float16", (64, 64), (128,), (64,), (1, 1))
    with refused("tensor_map.coordinates", rank=2, coordinates=3):
        box_index(encode(), [0, 0, 0])


def test_loads_fill_with_zero_or_nan():
    assert fill_value(encode()) == 0
    assert np.isnan(fill_value(encode(modes=(0, 3, 2, 1))))
    value = fill_value(encode("bfloat16", modes=(0, 3, 2, 1)))
    assert isinstance(value, ml_dtypes.bfloat16)
    assert np.isnan(value)


@st.composite
def boxes(draw):
    """A tensor, a map of a part of it, and the coordinates of a box."""
    rank = draw(st.integers(1, 5))
    inner = draw(st.sampled_from([4, 8, 12]))
    shape = [draw(st.integers(1, 20)), *(draw(st.integers(1, 4)) for _ in range(rank - 1))]
    # Rows of whole 16 bytes; the tensor may be narrower than its row.
    pitch = [-(-shape[0] // 4) * 4 + draw(st.sampled_from([0, 4])), *shape[1:]]
    box = [inner, *(draw(st.integers(1, 4)) for _ in range(rank - 1))]
    steps = [draw(st.integers(1, 8)), *(draw(st.integers(1, 3)) for _ in range(rank - 1))]
    coords = [draw(st.integers(-9, extent + 9)) for extent in shape]
    strides = [4 * prod(pitch[:i]) for i in range(1, rank)]
    tmap = TensorMap("float32", tuple(shape), tuple(strides), tuple(box), tuple(steps))
    return tmap, pitch, coords


@settings(max_examples=200, deadline=None, derandomize=True)
@given(boxes())
def test_a_box_is_a_strided_slice_of_the_tensor_padded_with_zeros(case):
    tmap, pitch, coords = case
    data = np.arange(1, prod(pitch) + 1, dtype=np.float32)

    index, inside = box_index(tmap, coords)
    got = np.where(inside, data[index], 0)

    expected = data.reshape(pitch[::-1])[tuple(slice(extent) for extent in tmap.shape[::-1])]
    margin = 40
    steps = (1, *tmap.element_strides[1:])
    for axis, (at, size, step) in enumerate(zip(coords, tmap.box, steps, strict=True)):
        lines = np.pad(
            np.moveaxis(expected, -1 - axis, 0), [(margin, margin)] + [(0, 0)] * (tmap.rank - 1)
        )
        expected = np.moveaxis(lines[margin + at : margin + at + size : step], 0, -1 - axis)
    np.testing.assert_array_equal(got, expected.reshape(-1))
    assert bytes_of_box(tmap) == expected.nbytes


# PTX ISA 5.5 (tensors), "Swizzling Modes": which 16-byte chunk lies where in consecutive lines of
# 128 bytes, from the start of a pattern; "… pattern repeats …".
PATTERNS = {
    0: ["01234567"],
    32: ["01234567", "10325476"],
    64: ["01234567", "10325476", "23016745", "32107654"],
    128: [
        "01234567",
        "10325476",
        "23016745",
        "32107654",
        "45670123",
        "54761032",
        "67452301",
        "76543210",
    ],
}


@pytest.mark.parametrize("span", PATTERNS)
def test_a_swizzle_is_the_pattern_printed_in_the_ptx_isa(span):
    pattern = PATTERNS[span]
    for address in range(0, 4096, 4):
        line, byte = divmod(address, 128)
        chunk = int(pattern[line % len(pattern)][byte // 16])
        assert swizzled(np.int64(128 * line + 16 * chunk + byte % 16), span) == address


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("mode", range(4))
def test_column_tiles_land_in_the_shared_layout_that_tvm_gives_matrix_operands(dtype, mode):
    rows = 24
    size = ml_dtypes.finfo(dtype).bits // 8
    width = (SWIZZLE_SPANS[mode] or 16) // size
    cols = 2 * width
    tmap = encode(dtype, (cols, rows), (cols * size,), (width, rows), (1, 1), (0, mode, 0, 0))
    layout = mma_shared_layout(dtype, mode, [rows, cols])
    base = 4096
    for tile in range(2):
        offsets = shared_offsets(tmap, base + tile * bytes_of_box(tmap)).reshape(rows, width)
        for row in range(rows):
            for col in range(width):
                at = layout.apply(row, tile * width + col, shape=[rows, cols])
                assert offsets[row, col] - base == int(next(iter(at.values()))) * size


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.sampled_from([32, 64, 128]), st.integers(0, 64), st.integers(1, 32))
def test_a_box_begins_inside_of_the_pattern_that_its_address_gives(span, line, rows):
    """CUDA programming guide, swizzle offset: smem[y][x] <-> smem[y][((y + offset) % period) ^ x]."""
    base, period = 128 * line, span // 16
    offset = base // 128 % period
    tmap = TensorMap("float16", (span // 2, rows), (span,), (span // 2, rows), (1, 1), 0, span)
    chunks = shared_offsets(tmap, base)[::8]
    for number, at in enumerate(chunks):
        y, x = divmod(number, 8)
        assert at == base + 128 * y + 16 * (((y + offset) % period) ^ x)
