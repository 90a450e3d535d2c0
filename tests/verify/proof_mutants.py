"""Whether the proof refutes each mutant that the emulator kills: the corpus, and a GEMM of each form.

    python -m tests.verify.proof_mutants                    every mutant: tens of minutes
    python -m tests.verify.proof_mutants --most 4 --seed 2  four of each kernel

Each synchronisation is deleted or weakened, and each ring index shifted, one at a time. A mutant that
meets a hazard in the emulator, other than in global memory, has to be refuted, and one that meets
none at these trip counts must not be refuted for them. What differs by its values alone is not the
proof's subject, as is what races in global memory: these are counted apart. Exit status 1: one is
missed, or refuted though it is right.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

import pipeliner
from pipeliner.emulator import emulate
from pipeliner.mutation import mutants, mutated
from pipeliner.proof.prove import prove
from pipeliner.proof.running.subjects import host_and_kernels, symbolic
from pipeliner.verification.subjects import arguments, subject_of

from .proof_sample import FORMS, MODES, Drawn
from .runner import add_options, options_of, run

Arrays = Mapping[str, np.ndarray[Any, Any]]


def subject(place: tuple[str, int]) -> tuple[Any, Arrays, str]:
    """A kernel, those of its arguments that are given, and its name."""
    group, number = place
    if group == "form":
        return Drawn(number, 2, 5, 1, 0).built(), {}, f"form {number}"
    from ..corpus.test_corpus import CASES

    case = CASES[number]
    kernel = pipeliner.build(case.build(), case.arch)
    return kernel, case.inputs(np.random.default_rng(0)), case.name


def check(item: tuple[tuple[str, int], int, int]) -> Counter[str]:
    """Compare proof and emulator on the mutants of one kernel; AssertionError: they disagree."""
    place, most, seed = item
    kernel, given, name = subject(place)
    lowered = kernel.lowered
    if symbolic(host_and_kernels(lowered)[0]):
        return Counter({"kernels with symbolic extents": 1})
    whole = prove(lowered)
    if any(one.data for one in whole.kernels):
        return Counter({"kernels where data decides": 1})
    assert whole.ok, f"{name}: {whole.statement}"
    arrays = {**arguments(subject_of(kernel).function), **given}
    found = list(mutants(lowered))
    random.Random(f"{seed} {name}").shuffle(found)
    counts = Counter({"kernels": 1})
    for mutant in found[: most or len(found)]:
        broken = mutated(lowered, mutant)
        killed = hazards(broken, arrays)
        said = prove(broken)
        assert killed or said.refuted is None, f"{name}, {mutant}: refuted: {said.refuted.said}"
        assert not killed or said.refuted is not None, f"{name}, {mutant}: missed: {killed}"
        counts["mutants"] += 1
        beyond = any(one.beyond is not None for one in said.kernels)
        right = "right for its counts, wrong for others" if beyond else "no hazard"
        counts["killed and refuted" if killed else right] += 1
    return counts


def hazards(lowered: Any, arrays: Arrays) -> tuple[str, ...]:
    """What the emulator meets in any mode, in global memory not counted."""
    for timing, order in MODES:
        copies = {name: np.copy(value) for name, value in arrays.items()}
        done = emulate(lowered, copies, timing=timing, order=order)
        met = tuple(str(one) for one in done.hazards if one.buffer not in arrays)
        if met:
            return met
    return ()


def main(argv: list[str] | None = None) -> int:
    """Compare them all."""
    from ..corpus.test_corpus import CASES

    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--most", type=int, default=0, help="mutants of each kernel; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    places = [("form", number) for number in range(len(FORMS))]
    places += [("corpus", number) for number in range(len(CASES))]
    options = options_of(args)
    items = options.part([(place, args.most, args.seed) for place in places])
    return 0 if run("mutants", check, items, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
