"""Sentences about tensor maps: what the driver refuses to encode, and what is not modelled."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # What the driver refuses
    "tensor_map.arguments": (
        "cannot encode a tensor map of rank {rank}: expected {fewest} or {most} arguments after "
        "the pointer, got {count}"
    ),
    "tensor_map.rank": "cannot encode a tensor map: expected rank {low} to {high}, got {rank}",
    "tensor_map.range": (
        "cannot encode a tensor map: its {field} is {value}, expected {low} to {high}"
    ),
    "tensor_map.lengths": (
        "cannot encode a tensor map of rank {rank}: got {strides:count stride}, "
        "{box:count box size} and {element_strides:count element stride}"
    ),
    "tensor_map.address": (
        "cannot encode a tensor map: expected an address that is a multiple of {multiple} bytes, "
        "got one {offset:count byte} beyond"
    ),
    "tensor_map.stride": (
        "cannot encode a tensor map: expected stride {dimension} to be a multiple of {multiple} "
        "bytes below 2^40, got {stride}"
    ),
    "tensor_map.inner_box": (
        "cannot encode a tensor map: expected an inner box of a multiple of {multiple} bytes, "
        "got {elements} elements of {dtype} = {nbytes}"
    ),
    "tensor_map.swizzle": (
        "cannot encode a tensor map: expected a swizzle of {known:list} bytes, got {swizzle}"
    ),
    "tensor_map.wide": (
        "cannot encode a tensor map: its inner box of {nbytes} bytes exceeds its swizzle of "
        "{swizzle}"
    ),
    "tensor_map.fill": (
        "cannot encode a tensor map: expected an out-of-bounds fill of 0 or 1, got {value}"
    ),
    "tensor_map.fill_dtype": "cannot encode a tensor map: {dtype} has no NaN to fill with",
    "tensor_map.empty_box": (
        "cannot encode a tensor map: its bounding box from {low} to {high} is empty"
    ),
    "tensor_map.pixel": (
        "cannot encode a tensor map: {nbytes} bytes of each pixel do not suit a swizzle of "
        "{swizzle}"
    ),
    "tensor_map.reach": (
        "cannot encode a tensor map of {elements} elements over an array of {size}"
    ),
    # What is not modelled
    "tensor_map.driver_dtype": "cannot emulate a tensor map of the driver's data type {dtype}",
    "tensor_map.interleave": "cannot emulate an interleaved tensor map: mode {mode}",
    # Copies
    "tensor_map.coordinates": (
        "cannot copy by a tensor map of rank {rank}: got {coordinates:count coordinate}"
    ),
    "tensor_map.pixel_coordinates": (
        "cannot gather by an im2col tensor map of rank {rank}: got "
        "{coordinates:count coordinate} and {offsets:count offset}"
    ),
    "tensor_map.offsets": (
        "cannot gather pixels by offsets ({offsets:list}): expected 0 to {most}"
    ),
    "tensor_map.pixel_outside": (
        "cannot gather pixels from ({pixel:list}): the bounding box is ({lower:list}) to "
        "({upper:list})"
    ),
    "tensor_map.tiled_load": "cannot copy boxes by an im2col tensor map: the load is tiled",
    "tensor_map.im2col_load": "cannot gather pixels by a tiled tensor map: the load is im2col",
    "tensor_map.tiled_store": "cannot store boxes by an im2col tensor map",
}
