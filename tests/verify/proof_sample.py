"""Whether proof and emulator agree: random kernels, and one defect in each.

    python -m tests.verify.proof_sample --kernels 200 --seed 7

Of each kernel of random tile, depth and number of iterations, from 1 to 3 * depth + 3, the proof may
refute nothing, and the emulator may find nothing. Of the kernel with one synchronisation weakened, the
proof has to refute its own trip counts exactly where the emulator meets a hazard.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import pipeliner
from pipeliner.emulator import Emulation, emulate
from pipeliner.errors import PipelinerError
from pipeliner.mutation import mutants, mutated
from pipeliner.proof.prove import prove
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.subjects import arguments, subject_of

from .runner import add_options, options_of, run

MODES: Final = (("late", "lockstep"), ("early", "round-robin"))
"""Timings of copies and orders of warps that the emulator is asked for."""

MUTANTS: Final = 1
"""Of each kernel."""

FORMS: Final[tuple[tuple[str, tuple[int, int, int], dict[str, Any]], ...]] = (
    ("h100", (64, 16, 64), {"instruction": "wgmma", "roles": 1, "mechanism": "tma"}),
    ("h100", (128, 32, 64), {"instruction": "wgmma", "roles": 2, "mechanism": "tma"}),
    ("h100", (128, 64, 64), {"instruction": "wgmma", "roles": 1, "store": "tma"}),
    ("h100", (64, 32, 64), {"instruction": "wgmma", "mechanism": "cp_async"}),
    ("a100", (32, 32, 16), {"instruction": "mma", "mechanism": "cp_async", "epilogue": "rolled"}),
    ("a100", (32, 32, 16), {"instruction": "mma", "mechanism": "cp_async", "epilogue": "peeled"}),
    ("a100", (16, 32, 8), {"instruction": "simt", "mechanism": "register", "dtype": "float32"}),
    ("a100", (16, 32, 8), {"instruction": "simt", "mechanism": "cp_async", "dtype": "float32"}),
)
"""Targets, tiles and options."""


@dataclass(frozen=True)
class Drawn:
    """A kernel to build: its form, depth, iterations, and tiles that each CTA computes."""

    form: int
    depth: int
    trips: int
    tiles: int
    seed: int

    def built(self, target: str = "") -> Any:
        """The kernel, for its own target unless one is given; PipelinerError: it is refused."""
        own, (m, n, k), given = FORMS[self.form]
        options = dict(given)
        dtype = options.pop("dtype", "float16")
        rows = m * (1 if self.tiles == 1 else 2 * self.tiles)
        tile = GemmTile(m, n, k, persistent=2 if self.tiles > 1 else None)
        schedule = schedule_gemm(Gemm(rows, n, self.trips * k, dtype=dtype), tile)
        return pipeliner.build(schedule, target or own, depth=self.depth, **options)


def drawn(seed: int, number: int) -> Drawn:
    """The ``number``-th kernel of a seed."""
    rng = random.Random(f"{seed} {number}")
    form = rng.randrange(len(FORMS))
    depth = rng.choice((1, 2, 2, 3, 3, 4))
    tiles = rng.choice((1, 1, 2, 3)) if "roles" in FORMS[form][2] else 1
    return Drawn(form, depth, rng.randint(1, 3 * depth + 3), tiles, rng.randrange(1 << 30))


def check(given: Drawn) -> Counter[str]:
    """Compare proof and emulator on a kernel and on a mutant; AssertionError: they disagree."""
    try:
        kernel = given.built()
    except PipelinerError:
        return Counter({"refused": 1})
    lowered = kernel.lowered
    counts = Counter({"kernels": 1})
    found = prove(lowered)
    assert found.refuted is None, f"{given}: refuted: {found.refuted.said}"
    counts["proved" if found.ok else "not proved"] += 1
    counts["proved for all"] += not any(loop.only for one in found.kernels for loop in one.loops)
    arrays = arguments(subject_of(kernel).function)
    for mode in MODES:
        assert not hazards_of(lowered, arrays, mode), f"{given}: a hazard of what is proved"
    planted = [mutant for mutant in mutants(lowered) if mutant.synchronises]
    for mutant in random.Random(given.seed).sample(planted, min(MUTANTS, len(planted))):
        counts["mutants"] += 1
        broken = mutated(lowered, mutant)
        killed = next(filter(None, (hazards_of(broken, arrays, mode) for mode in MODES)), ())
        said = prove(broken)
        assert killed or said.refuted is None, f"{given}, {mutant}: refuted: {said.refuted.said}"
        assert not killed or said.refuted is not None, f"{given}, {mutant}: missed: {killed[0]}"
        counts["refuted" if killed else "right for its own counts"] += 1
        counts["wrong for others alone"] += any(one.beyond is not None for one in said.kernels)
    return counts


def hazards_of(lowered: Any, arrays: Any, mode: tuple[str, str]) -> tuple[Any, ...]:
    """The first hazard that the emulator meets in one mode, if any."""
    timing, order = mode
    copies = {name: np.copy(value) for name, value in arrays.items()}
    done: Emulation = emulate(lowered, copies, timing=timing, order=order, only_first=True)
    return done.hazards


def main(argv: list[str] | None = None) -> int:
    """Draw kernels, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args(argv)
    options = options_of(args)
    items = options.part([drawn(args.seed, number) for number in range(args.kernels)])
    return 0 if run("proofs", check, items, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
