"""Sentences of the emulator about PTX instructions that it does not model."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "ptx.unknown": "cannot emulate PTX instruction '{instruction}': {call}",
    "ptx.modifier": "cannot emulate PTX instruction '{instruction}' with '.{modifier}'",
    "ptx.sunk": "cannot emulate PTX instruction '{instruction}' with sunk destinations",
    "ptx.space": "cannot emulate PTX instruction '{instruction}' of {space} memory",
    "ptx.destination": "cannot emulate a destination that is no register: {expression}",
    "ptx.address_space": "expected an address in {expected} memory, got one in {space} memory",
    "ptx.tensor_map": "cannot emulate a tensor map that is no kernel parameter: {expression}",
    "ptx.cp_async": "cannot emulate cp.async.{cache} of {nbytes:count byte}",
    "ptx.cp_async_spaces": "cannot emulate cp.async from {source} to {destination} memory",
    "ptx.mma": "cannot emulate mma {shape} of {a_type} and {b_type}: unknown shape",
    "ptx.mma_layouts": (
        "cannot emulate mma with layouts {a_layout} and {b_layout}: expected row and col"
    ),
    "ptx.wgmma_types": "cannot emulate wgmma of {a_type} and {b_type} to {d_type}: unknown types",
    "ptx.wgmma_shape": "cannot emulate wgmma {shape} of {a_type} to {d_type}: unknown shape",
    "ptx.wgmma_scale": "cannot emulate imm-scale-{operand} {scale} of wgmma: expected -1 or 1",
    "ptx.wgmma_k": (
        "cannot emulate a wgmma operand of k = {k} elements of {itemsize:count byte}: expected "
        "{expected} bytes"
    ),
    "ptx.wgmma_major": (
        "cannot emulate an MN-major wgmma operand with elements of {itemsize:count byte}: "
        "expected 2 bytes"
    ),
    "ptx.wgmma_arrays": "cannot emulate a wgmma fragment in several arrays: {expression}",
    "ptx.wgmma_index": "cannot emulate a wgmma fragment whose index varies: {expression}",
    "ptx.descriptor_field": (
        "cannot encode a wgmma descriptor with {field} {value}: expected 0 to {high}"
    ),
    "ptx.descriptor_address": (
        "cannot encode a wgmma descriptor with address {address}: expected a multiple of "
        "{multiple} of at most {most}"
    ),
    "ptx.descriptor_base": "cannot emulate a wgmma descriptor with base offset {offset}",
}
