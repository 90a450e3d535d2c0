"""Global memory that bulk copies add to, and whether anything else touches it in the same launch.

    cp.reduce.async.bulk.tensor .add    a read, an addition and a write of each element, indivisible
                                        (relaxed, scope gpu), by the async proxy, until its group
                                        has been waited for
    any other access of the element     by whichever thread or engine, before or after: a race

Additions to one element, of whichever CTAs, are ordered by memory itself, in no order that anyone
may rely on. Nothing else is ordered with them before the launch ends: what is to be added to must
have been written by an earlier kernel, and what becomes of it is for a later one to read. That
leaves out accesses of the same CTA behind a wait for the whole group and a proxy fence, which are
legal; no kernel makes any.

Source: PTX ISA, cp.reduce.async.bulk.tensor, cp.async.bulk.wait_group, memory consistency model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .machine import Strand

Array = np.ndarray[Any, Any]


@dataclass
class _Touched:
    """For each byte of an array: whether it has been added to, whether touched otherwise."""

    added: Array
    other: Array


class Additions:
    """What one launch does to global memory, from the view of what it adds."""

    def __init__(self) -> None:
        self._arrays: dict[int, _Touched] = {}

    def add(self, strand: Strand, tid: int, name: str, elements: Array, index: Array) -> None:
        """``tid`` has elements ``index`` of ``elements`` added to."""
        touched, at = self._bytes(elements, index, 1)
        touched.added[at] = True
        self._judge(strand, tid, name, touched.other[at], at)

    def touch(
        self, strand: Strand, tid: int, name: str, elements: Array, index: Any, width: int
    ) -> None:
        """``width`` elements from each of ``index`` on are read or written, first by ``tid``."""
        touched, at = self._bytes(elements, np.asarray(index), width)
        touched.other[at] = True
        self._judge(strand, tid, name, touched.added[at], at)

    def _judge(self, strand: Strand, tid: int, name: str, clash: Array, at: Array) -> None:
        if clash.any():
            strand.hazard(
                "race", name, int(at[clash][0]), None, tid,
                detail="bulk copies of the same launch add to it, which orders nothing else",
            )  # fmt: skip

    def _bytes(self, elements: Array, index: Array, width: int) -> tuple[_Touched, Array]:
        """The record of the array that ``elements`` are of, and which of its bytes they are."""
        owner = elements
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if id(owner) not in self._arrays:
            self._arrays[id(owner)] = _Touched(*np.zeros((2, owner.nbytes), np.bool_))
        size = elements.itemsize
        first = _address(elements) - _address(owner) + index.reshape(-1, 1) * size
        return self._arrays[id(owner)], (first + np.arange(size * width)).reshape(-1)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
