"""Loads in im2col mode against numpy's padding and strided slicing, and the driver's rules."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeliner.emulator.memory.im2col_map import Im2colMap, from_driver, pixel_index
from pipeliner.emulator.memory.tensor_map import shared_offsets
from pipeliner.errors import EmulatorError

from ..refusals import refused


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
    return Im2colMap(
        "float16",
        shape[::-1],
        tuple(strides),
        tuple(lower[::-1]),
        tuple(upper[::-1]),
        (1, *stride[::-1], 1),
        channels,
        pixels,
    )


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


def test_a_pixel_takes_the_whole_span_of_its_swizzle():
    """As rows of a box do: chunk ``c`` of pixel ``p`` is the ``c ^ (row % 8)``-th of its line."""
    narrow = replace(SAME, channels=16, pixels=12, swizzle=128)
    first = 4  # begins in the middle of a swizzle
    offsets = shared_offsets(narrow, first * 128).reshape(12, 2, 8)
    lines, chunks = np.divmod(offsets[:, :, 0], 128)
    row = np.arange(first, first + 12)
    np.testing.assert_array_equal(lines, np.stack([row, row], 1))
    np.testing.assert_array_equal(chunks // 16, np.arange(2) ^ (row % 8)[:, None])


RANGE = "tensor_map.range"
REFUSED = [
    ({"lower": (-129, 0)}, RANGE, {"field": "lower corner", "low": -128, "value": -129}),
    ({"upper": (0, 128)}, RANGE, {"field": "upper corner", "high": 127, "value": 128}),
    ({"upper": (-8, 0)}, "tensor_map.empty_box", {"low": -1, "high": -2}),
    ({"steps": (1, 9, 1, 1)}, RANGE, {"field": "element stride", "high": 8, "value": 9}),
    ({"pixels": 1025}, RANGE, {"field": "pixels per column", "high": 1024}),
    ({"channels": 257}, RANGE, {"field": "channels per pixel", "high": 256}),
    ({"channels": 60}, "tensor_map.pixel", {"nbytes": 120, "swizzle": 0}),
    ({"channels": 128, "swizzle": 128}, "tensor_map.pixel", {"nbytes": 256, "swizzle": 128}),
    ({"strides": (120, 840, 5040)}, "tensor_map.stride", {"dimension": 1, "stride": 120}),
]


@pytest.mark.parametrize(("change", "code", "args"), REFUSED)
def test_what_the_driver_refuses_is_refused_by_its_numbers(change, code, args):
    with refused(code, EmulatorError, **args):
        replace(SAME, **change)


@pytest.mark.parametrize(
    ("coords", "offsets", "code", "args"),
    [
        ((0, 0, 0), (0, 0), "tensor_map.pixel_coordinates", {"coordinates": 3, "offsets": 2}),
        ((0, 0, 0, 0), (0, 256), "tensor_map.offsets", {"offsets": (0, 256), "most": 255}),
        ((0, 0, 0, 0), (-1, 0), "tensor_map.offsets", {"offsets": (-1, 0)}),
        (
            (0, 6, 0, 0),
            (0, 0),
            "tensor_map.pixel_outside",
            {"pixel": (6, 0, 0), "lower": (-1, -1), "upper": (5, 4)},
        ),
    ],
)
def test_a_load_that_is_not_defined_is_refused(coords, offsets, code, args):
    with refused(code, EmulatorError, **args):
        pixel_index(SAME, coords, offsets)


def test_the_hosts_numbers_make_the_map():
    arrays = [(64, 7, 6, 2, 0), (128, 896, 5376, 0), (-1, -1, 0), (-1, -1, 0), (1, 1, 1, 1, 0)]
    assert from_driver(6, 4, arrays, (64, 32, 3, 2)) == replace(SAME, swizzle=128)
    with refused("tensor_map.rank", low=3, high=5, rank=2):
        from_driver(6, 2, arrays, (64, 32, 3, 2))
    with refused("tensor_map.driver_dtype", dtype=13):
        from_driver(13, 4, arrays, (64, 32, 3, 2))
    with refused(RANGE, field="swizzle", value=4):
        from_driver(6, 4, arrays, (64, 32, 4, 2))
