"""Exchange words among the four lanes (a lane quad) that have a row of an mma.sync accumulator.

    lane   word 0  word 1  word 2  word 3             word 0  word 1  word 2  word 3
      0      00      10      20      30                 00      01      02      03
      1      01      11      21      31       =>        10      11      12      13
      2      02      12      22      32                 20      21      22      23
      3      03      13      23      33                 30      31      32      33

A lane has two columns of every instruction tile, one word of two 16-bit values each; the other
lanes have the columns beside them. After the exchange it has all eight columns of one tile: 16
bytes of a row of the result.

Lane ``q`` keeps its word ``q`` and gets that of lane ``q ^ s``, ``s`` in 1..3, by one shuffle each.
A lane cannot index registers by its own number, so selects order the words before and after, in one
round for each bit of ``q``. The cost is these selects and shuffles; the gain is a quarter of the
stores, each of whole 32-byte sectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tvm import tirx
from tvm.script import tirx as T

from ..ir.nodes import Buffer, Expr, Stmt, Var, i32, seq

LANES: Final = 4
PAIR: Final = 2
"""16-bit values in a word."""
RUN: Final = LANES * PAIR
"""Neighbouring columns that a lane has after the exchange."""

_WARP: Final = 32
_ALL_LANES: Final = 0xFFFFFFFF


def exchange(pairs: Buffer, row: Buffer, lane: Expr) -> Stmt:
    """Return the transposition of ``pairs`` over the quad into ``row``, of ``RUN`` 16-bit values.

    ``lane``: which of the four a thread is. Every lane of the warp must run it.
    """
    places = [tirx.Ramp(t * PAIR, 1, PAIR) for t in range(LANES)]
    steps: list[Stmt] = []

    def bind(name: str, values: Sequence[Expr]) -> list[Expr]:
        """Variables for ``values``: of anything that loads, TVM makes a select a branch."""
        found = [Var(f"{name}{s}", "uint32") for s in range(LANES)]
        steps.extend(map(tirx.Bind, found, values))
        return found

    def order(words: Sequence[Expr]) -> Sequence[Expr]:
        """``words[s ^ lane]`` for each ``s``."""
        for bit in (1, 2):
            is_set = tirx.EQ(tirx.floormod(tirx.floordiv(lane, bit), 2), i32(1))
            exchanged = [tirx.Select(is_set, words[s ^ bit], words[s]) for s in range(LANES)]
            words = bind(f"by{bit}_", exchanged)
        return words

    packed = [tirx.reinterpret("uint32", tirx.BufferLoad(pairs, [at])) for at in places]
    sent = order(bind("held", packed))
    got = order(bind("got", [of_lane_xor(word, s) for s, word in enumerate(sent)]))
    kind = f"{row.dtype}x{PAIR}"
    for at, word in zip(places, got):
        steps.append(tirx.BufferStore(row, tirx.reinterpret(kind, word), [at]))
    return seq(*steps)


def of_lane_xor(value: Expr, s: int) -> Expr:
    """Return the ``value`` of lane ``q ^ s``."""
    if s == 0:
        return value
    return T.tvm_warp_shuffle_xor(tirx.const(_ALL_LANES, "uint32"), value, s, _WARP, _WARP)
