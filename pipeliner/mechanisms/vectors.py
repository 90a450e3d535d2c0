"""The bytes that one thread moves at once in a copy by cp.async or through registers."""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason
from ..instructions.dtypes import element_bytes
from ..machine import Machine
from ..machine.constant import constant, documented
from ..plan.request import Request
from ..values.facts import CopyInfo
from .pinned import pinned_width

CHUNK: Final = constant(
    "CHUNK",
    16,
    "bytes",
    "the widest access of a thread, a row of ldmatrix and a swizzle's unit",
    formula="vector_bytes <= CHUNK",
    source=documented("PTX ISA, ld.v4, ldmatrix, tensor swizzle modes"),
    date="2026-11-21",
)

BF16_CAPABILITY: Final = constant(
    "BF16_CAPABILITY",
    80,
    "1",
    "compute capability before which TVM computes and stores bfloat16 as float32, in vectors of "
    "four",
    formula="slot_bytes * 2 where capability < BF16_CAPABILITY",
    source=documented("TVM 0.27, codegen of bfloat16"),
    date="2026-11-21",
)


def width(copy: CopyInfo, machine: Machine, request: Request) -> tuple[int, Reason]:
    """Bytes that one thread moves at once: as many as it can, or fewer as a plan says.

    A copy that the schedule binds to threads has its own vectors, and a box has none.
    """
    widest, reason = _vector_bytes(copy, machine)
    given = pinned_width(request, copy.op)
    narrower = element_bytes(copy.dtype) <= given < widest and given & (given - 1) == 0
    if narrower and not copy.bound and request.mechanism != "tma":
        return given, Reason("vector.planned", nbytes=given)
    return widest, reason


def _vector_bytes(copy: CopyInfo, machine: Machine) -> tuple[int, Reason]:
    """Bytes that one thread moves at once, and what stops more."""
    size = element_bytes(copy.dtype)
    last = len(copy.shape) - 1
    contiguous = bool(copy.src_dims) and copy.src_dims[-1] == last and copy.src_strides[-1] == 1
    if not contiguous:
        return size, Reason("vector.scattered", nbytes=size)
    aligned, row = copy.aligned * size, copy.shape[-1] * size
    as_float32 = copy.dtype == "bfloat16" and machine.capability < BF16_CAPABILITY
    vector = widest = CHUNK // 2 if as_float32 else CHUNK
    while vector > size and (aligned % vector or row % vector):
        vector //= 2
    if vector == CHUNK:
        return vector, Reason("vector.widest", nbytes=vector)
    if vector == widest:
        return vector, Reason("vector.bfloat16", nbytes=vector, arch=machine.arch)
    if aligned % (2 * vector):
        return vector, Reason("vector.aligned", nbytes=vector, aligned=aligned)
    return vector, Reason("vector.row", nbytes=vector, row=row)
