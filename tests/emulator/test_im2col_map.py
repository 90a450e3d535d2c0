"""Loads in im2col mode against numpy's padding and strided slicing, and the driver's rules."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeliner.emulator.im2col_map import Im2colMap, from_driver, pixel_index
from pipeliner.errors import EmulatorError


def image_map(shape, kernel, stride, dilation, pad, channels, pixels):
    """The map of a convolution's input ``shape`` (n, spatial, c); CUTLASS gives the same corners.

    The lower corner is the padding before; the upper one what the kernel's first position leaves.
    """
    strides, pitch = [], 2
    for extent in reversed(shape[1:]):
        pitch *= extent
        strides.append(pitch)
    lower = [-low for low, _ in pad]
    upper = [high - (k - 1) * d for (_, high), k, d in zip(pad, kernel, dilation)]
    return Im2colMap("float16", shape[::-1], tuple(strides), tuple(lower[::-1]),
                     tuple(upper[::-1]), (1, *stride[::-1], 1), channels, pixels)  # fmt: skip


def columns(x, position, kernel, stride, dilation, pad):
    """What every output sees at one position of the kernel: rows of channels, output by output."""
    padded = np.pad(x, [(0, 0), *pad, (0, 0)])
    slices = [
        slice(r * d, r * d + (size + low + high - (k - 1) * d - 1) // s * s + 1, s)
        for size, (low, high), k, s, d, r in zip(
            x.shape[1:-1], pad, kernel, stride, dilation, position
        )
    ]
    return padded[(slice(None), *slices)].reshape(-1, x.shape[-1])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rank=st.integers(1, 3))
def test_a_load_gathers_what_outputs_see(data, rank):
    def each(low, high):
        return tuple(data.draw(st.integers(low, high)) for _ in range(rank))

    size, kernel, stride, dilation = each(3, 9), each(1, 3), each(1, 3), each(1, 2)
    pad = tuple(zip(each(0, 2), each(0, 2)))
    seen = [s + lo + hi - (k - 1) * d for s, (lo, hi), k, d in zip(size, pad, kernel, dilation)]
    if min(seen) < 1:
        return
    images = data.draw(st.integers(1, 3))
    shape = (images, *size, 8)
    x = np.arange(1, 1 + prod(shape)).reshape(shape).astype(np.float16)
    tmap = image_map(shape, kernel, stride, dilation, pad, 8, data.draw(st.integers(1, 40)))
    outputs = [(extent - 1) // s + 1 for extent, s in zip(seen, stride)]
    first = data.draw(st.integers(0, images * prod(outputs) - 1))
    n, *places = np.unravel_index(first, (images, *outputs))
    start = [int(p) * s - low for p, s, (low, _) in zip(places, stride, pad)]
    for position in itertools.product(*map(range, kernel)):
        by = [r * d for r, d in zip(position, dilation)]
        index, inside = pixel_index(tmap, (0, *start[::-1], int(n)), tuple(by[::-1]))
        found = np.where(inside, x.reshape(-1)[index], 0).reshape(tmap.pixels, 8)
        want = np.zeros_like(found)
        rows = columns(x, position, kernel, stride, dilation, pad)[first : first + tmap.pixels]
        want[: len(rows)] = rows  # behind the last image there is nothing
        np.testing.assert_array_equal(found, want)


SAME = image_map((2, 6, 7, 64), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 64, 32)


def test_channels_outside_of_the_tensor_are_zero():
    _, inside = pixel_index(SAME, (32, 0, 0, 0), (0, 0))
    np.testing.assert_array_equal(inside.reshape(32, 64)[0], np.arange(64) < 32)


REFUSED = [
    ({"lower": (-129, 0)}, "expected lower corner of -128 to 127, got -129"),
    ({"upper": (0, 128)}, "expected upper corner of -128 to 127, got 128"),
    ({"upper": (-8, 0)}, "the bounding box from -1 to -2 is empty"),
    ({"steps": (1, 9, 1, 1)}, "expected element stride of 1 to 8, got 9"),
    ({"pixels": 1025}, "expected pixels per column of 1 to 1024, got 1025"),
    ({"channels": 257}, "expected channels per pixel of 1 to 256, got 257"),
    ({"channels": 60}, "120 bytes a pixel do not suit a swizzle of 0"),
    ({"channels": 128, "swizzle": 128}, "256 bytes a pixel do not suit a swizzle of 128"),
    ({"channels": 32, "swizzle": 128}, "64 bytes a pixel below a swizzle of 128"),
    ({"strides": (120, 840, 5040)}, "expected strides in multiples of 16 bytes, got 120"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_the_driver_refuses_is_refused_by_its_numbers(change, message):
    with pytest.raises(EmulatorError, match=message):
        replace(SAME, **change)


@pytest.mark.parametrize(
    ("coords", "offsets", "message"),
    [
        ((0, 0, 0), (0, 0), "got 3 coordinates and 2 offsets"),
        ((0, 0, 0, 0), (0, 256), r"offsets \(0, 256\): expected 0 to 255"),
        ((0, 0, 0, 0), (-1, 0), r"offsets \(-1, 0\): expected 0 to 255"),
        ((0, 6, 0, 0), (0, 0), r"from \(6, 0, 0\): the bounding box is \(-1, -1\) to \(5, 4\)"),
    ],
)
def test_a_load_that_is_not_defined_is_refused(coords, offsets, message):
    with pytest.raises(EmulatorError, match=message):
        pixel_index(SAME, coords, offsets)


def test_the_hosts_numbers_make_the_map():
    arrays = [(64, 7, 6, 2, 0), (128, 896, 5376, 0), (-1, -1, 0), (-1, -1, 0), (1, 1, 1, 1, 0)]
    assert from_driver(6, 4, arrays, (64, 32, 3, 2)) == replace(SAME, swizzle=128)
    with pytest.raises(EmulatorError, match="expected rank 3 to 5, got 2"):
        from_driver(6, 2, arrays, (64, 32, 3, 2))
    with pytest.raises(EmulatorError, match="driver data type 13"):
        from_driver(13, 4, arrays, (64, 32, 3, 2))
    with pytest.raises(EmulatorError, match="swizzle=4"):
        from_driver(6, 4, arrays, (64, 32, 4, 2))
