"""Whether proofs for every value of symbolic extents agree with the emulator at many values.

    python -m tests.verify.proof_extents --kernels 200 --seed 7

Kernels of ``tests/proof/extents.py`` with random conditions on iterations and extents, most of which
matter for few values. What is proved for all has to be right for each value below ``VALUES``; what is
refuted has to be wrong for the values that are found. One in eight has its extent as a number in its text:
if that is proved for others, texts made for these have to be right. Exit status 1: they disagree.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from itertools import product
from typing import Any, Final

import numpy as np
from tvm import tirx

from pipeliner.emulator import emulate
from pipeliner.proof.prove import prove
from pipeliner.proof.running.subjects import host_and_kernels, symbolic

from ..emulator.raw import lower
from ..proof import extents
from .runner import add_options, options_of, run

VALUES: Final = {1: 40, 2: 9}
"""Values of each extent that the emulator runs, from 0 on, by how many extents there are."""


STEPS: Final = 60
"""The number that stands in texts of one extent, and that those of fewer are compared with."""


class Conditions:
    """Random conditions, a seed's."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = random.Random(f"{seed} {number}")

    def to_go(self, at: Any, n: Any) -> Any:
        """Of an iteration, by how many come behind it."""
        rng = self.rng
        factor = rng.choice((1, 1, 1, 2))
        near, far = at * factor + rng.randint(0, 9), n * factor + rng.randint(-1, 2)
        if rng.random() < 0.3:
            near = near + at % rng.randint(2, 4)
        kind = rng.choice((tirx.EQ, tirx.EQ, tirx.EQ, tirx.LT, tirx.GE))
        return kind(near, far) if rng.random() < 0.7 else kind(near - far, rng.randint(-2, 2))

    def of_extent(self, n: Any) -> Any:
        """Of an extent alone."""
        rng, divisor = self.rng, self.rng.randint(2, 5)
        rest = tirx.EQ(n % divisor, rng.randrange(divisor))
        return rng.choice((rest, n >= rng.randint(3, 14), tirx.EQ(n, rng.randint(3, 14))))

    def of_iteration(self, at: Any) -> Any:
        """Of an iteration alone."""
        rng, divisor = self.rng, self.rng.randint(2, 4)
        rest = tirx.EQ(at % divisor, rng.randrange(divisor))
        return rng.choice((rest, at >= rng.randint(2, 12)))

    def any(self, at: Any, n: Any) -> Any:
        """Some of these, all together."""
        found = self.to_go(at, n)
        if self.rng.random() < 0.7:
            found = tirx.And(found, self.of_extent(n))
        if self.rng.random() < 0.5:
            found = tirx.And(found, self.of_iteration(at))
        return found

    def slot(self, at: Any, n: Any) -> Any:
        """A slot of a ring."""
        rng = self.rng
        return (at * rng.choice((0, 1)) + n * rng.choice((0, 1, 2)) + rng.randint(0, 3)) % 4


def fixed(seed: int, number: int, steps: int) -> Any:
    """The ``number``-th kernel of a seed whose text is made for so many iterations."""
    by = Conditions(seed, number)

    def some(at: Any, n: Any) -> Any:
        found = by.to_go(at, tirx.const(n, "int32"))
        return tirx.And(found, by.of_iteration(at)) if by.rng.random() < 0.5 else found

    if by.rng.random() < 0.5:
        return extents.fixed(steps, unwaited=some)
    return extents.fixed(steps, clears=some, slot=lambda i, n: (i + by.rng.randint(0, 3)) % 4)


def drawn(seed: int, number: int) -> Any:
    """The ``number``-th kernel of a seed."""
    by = Conditions(seed, number)
    kind = by.rng.randrange(9)
    if kind == 0:
        return extents.ring(again=by.any, distance=by.rng.randint(3, 6))
    if kind in (1, 2):
        return extents.ring(clears=by.any, slot=by.slot)
    if kind == 3:
        return extents.ring(unwaited=by.any)
    if kind == 4:
        more = by.rng.choice((0, 0, 1, -1))
        return extents.ring(copies=lambda i, n: tirx.Or(i + extents.AHEAD < n + more, by.any(i, n)))
    if kind == 5:
        return extents.roles(by.any)
    if kind == 6:
        return extents.ragged(lambda t, n: by.any(t * extents.CHUNK + by.rng.randint(0, 7), n))
    if kind == 7:
        return extents.tiles(by.any)
    made = by.rng.randint(2, 8)
    return extents.two(lambda j, n, m, of: tirx.And(by.any(j, m), tirx.EQ(of, made)))


def check(item: tuple[int, int]) -> Counter[str]:
    """Compare proof and emulator on one kernel; AssertionError: they disagree."""
    if not item[1] % 8:
        return of_text(item)
    lowered = lower(drawn(*item))
    (found,) = prove(lowered).kernels
    names = sorted(symbolic(host_and_kernels(lowered)[0]))
    if found.refuted is not None:
        wrong = {one.name: int(one.only) for one in found.values}
        assert hazards(lowered, wrong), f"{item}: refuted: {found.statement}"
        return Counter({"kernels": 1, "refuted": 1})
    if not found.ok:
        return Counter({"kernels": 1, found.why.code: 1})
    for some in product(range(VALUES[len(names)]), repeat=len(names)):
        given = dict(zip(names, some, strict=True))
        assert not hazards(lowered, given), f"{item}: proved, but wrong for {given}"
    return Counter({"kernels": 1, "proved": 1})


def of_text(item: tuple[int, int]) -> Counter[str]:
    """Compare what is proved of other texts with the emulator; AssertionError: they disagree."""
    (found,) = prove(lower(fixed(*item, STEPS))).kernels
    own = hazards(lower(fixed(*item, STEPS)), {})
    assert found.ok is not bool(own), f"{item}: {found.statement}: {own}"
    read = [loop for loop in found.loops if found.ok and not loop.only]
    for loop in read:
        for steps in range(max(3, loop.least), STEPS, 3):
            met = hazards(lower(fixed(*item, steps)), {})
            assert not met, f"{item}: proved for others, but wrong for {steps}: {met[0]}"
    said = "of other texts" if read else "of its own text" if found.ok else "refuted"
    return Counter({"kernels": 1, said: 1})


def hazards(lowered: Any, given: dict[str, int]) -> tuple[Any, ...]:
    """What the emulator meets with values of the scalar arguments, in global memory not counted."""
    host, _ = host_and_kernels(lowered)
    arrays = {
        str(param.name): np.zeros(tuple(map(int, param.shape)), np.int32)
        for param in host.params
        if str(param.name) not in given
    }
    done = emulate(lowered, {**arrays, **given}, order="round-robin")
    return tuple(one for one in done.hazards if one.buffer not in arrays)


def main(argv: list[str] | None = None) -> int:
    """Draw kernels, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args(argv)
    options = options_of(args)
    items = options.part([(args.seed, number) for number in range(args.kernels)])
    return 0 if run("proofs of extents", check, items, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
