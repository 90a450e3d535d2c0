"""Many mma.sync at once: neighbours of which none reads what another one writes.

A step of a matmul is a run of instructions on the same registers of A and B. Their fragments are
gathered from the register files once, each product is made as ``fragments.multiply`` makes it, and
all accumulators are written together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ..memory.state import GroupState
from .fragments import WARP, Mma, round_once, round_to_tf32
from .warp import active_warps

Array = np.ndarray[Any, Any]
Mask = Array | None
Registers: TypeAlias = tuple[int, ...]
"""The registers of a fragment, by their number in the register file."""

REGISTER: Final = 4
"""Bytes of a register."""


@dataclass(frozen=True, eq=False)
class MmaRun:
    """Products of one instruction, each with four values of the accumulator in every lane.

    ``a``: where the elements of each different fragment of A are, (fragments, m, k), in the
    register file of a warp; ``of_a``: the fragment of each product; the same of B. ``c`` and ``d``:
    elements of a lane's register file, ``values``: of the products.
    """

    spec: Mma
    saturate: bool
    a: Array
    of_a: Array
    b: Array
    of_b: Array
    c: Array
    d: Array
    values: Array

    @classmethod
    def of(
        cls,
        spec: Mma,
        saturate: bool,
        a: tuple[int, Sequence[Registers]],
        b: tuple[int, Sequence[Registers]],
        c: Sequence[Registers],
        d: Sequence[Registers],
    ) -> MmaRun:
        """Return the run of these registers; ``a``, ``b``: with those of a lane's file."""
        in_a, of_a = _fragments(spec.a, spec.a_type.itemsize, *a)
        in_b, of_b = _fragments(spec.b, spec.b_type.itemsize, *b)
        products = np.arange(len(d))[:, None] * spec.d_positions
        values = (products + spec.d[:, None]).reshape(WARP, -1)
        each = REGISTER // spec.d_type.itemsize
        addend, target = _elements(c, each), _elements(d, each)
        return cls(spec, saturate, in_a, of_a, in_b, of_b, addend, target, values)


def _fragments(
    table: Array, itemsize: int, width: int, registers: Sequence[Registers]
) -> tuple[Array, Array]:
    """Return where the elements of each different fragment are, and which each product takes."""
    different = list(dict.fromkeys(registers))
    each = REGISTER // itemsize
    lane, rest = np.divmod(table, len(registers[0]) * each)
    number, element = np.divmod(rest, each)
    at = [(lane * width + np.array(one)[number]) * each + element for one in different]
    return np.stack(at), np.array([different.index(one) for one in registers])


def _elements(registers: Sequence[Registers], each: int) -> Array:
    """Return the elements in some registers of a lane, ``each`` in one."""
    return (np.array(registers)[..., None] * each + np.arange(each)).reshape(-1)


def multiply_all(
    group: GroupState, run: MmaRun, a: Array, b: Array, c: Array, d: Array, mask: Mask
) -> None:
    """Run ``run``: register files of A and B as words, of C and D by element, a row a thread."""
    mask = group.warps(mask, "mma")
    spec, warps = run.spec, group.n // WARP
    wide = np.int64 if spec.integer else np.float64
    ma = a.view(spec.a_type).reshape(warps, -1)[:, run.a]
    mb = b.view(spec.b_type).reshape(warps, -1)[:, run.b]
    if spec.tf32:
        ma, mb = round_to_tf32(ma), round_to_tf32(mb)
    product = np.matmul(ma.astype(wide)[:, run.of_a], mb.astype(wide)[:, run.of_b])
    total = product.reshape(warps, -1)[:, run.values].reshape(group.n, -1)
    total += c[:, run.c]
    out = round_once(total, spec.d_type, saturate=run.saturate)
    if mask is None:
        d[:, run.d] = out
    else:
        d[np.flatnonzero(mask)[:, None], run.d] = out[mask]
    group.count("mmas", active_warps(group, mask) * len(run.of_a))
