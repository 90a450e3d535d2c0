"""Whether the proof refutes each mutant that the emulator kills: the corpus, and a GEMM of each form.

    python -m tests.verify.proof_mutants                    every mutant: tens of minutes
    python -m tests.verify.proof_mutants --most 4 --seed 2  four of each kernel

Each synchronisation is deleted or weakened, and each ring index shifted, one at a time. A mutant that
meets a hazard in the emulator, other than in global memory, has to be refuted, and one that meets
none at these trip counts must not be refuted for them. Of a kernel with symbolic extents, a mutant
that is killed with some value of these has to be refuted, and killed with the value that is found.
What differs by its values alone is not the
proof's subject, as is what races in global memory: these are counted apart. Exit status 1: one is
missed, or refuted though it is right.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

import pipeliner
from pipeliner.emulator import emulate
from pipeliner.mutation import mutants, mutated
from pipeliner.mutation.mutants import Mutant
from pipeliner.proof.prove import prove
from pipeliner.proof.running.subjects import admitted, host_and_kernels, symbolic
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.subjects import arguments, subject_of

from .proof_sample import FORMS, MODES, Drawn
from .runner import add_options, options_of, run

VALUES: Final = (0, 1, 2, 3, 5, 9, 17, 40, 131)
"""Values of symbolic extents with which the emulator runs mutants."""

ROWS: Final = (("a100", GemmTile(16, 32, 16)), ("h100", GemmTile(64, 32, 64)))
"""Targets, and tiles of GEMMs with any number of rows."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


def subject(place: tuple[str, int]) -> tuple[Any, Arrays, str]:
    """A kernel, those of its arguments that are given, and its name."""
    group, number = place
    if group == "form":
        return Drawn(number, 2, 5, 1, 0).built(), {}, f"form {number}"
    if group == "rows":
        target, tile = ROWS[number]
        kernel = pipeliner.build(schedule_gemm(Gemm(None, 32, 128), tile), target)
        return kernel, {}, f"rows {number}"
    from ..corpus.test_corpus import CASES

    case = CASES[number]
    kernel = pipeliner.build(case.build(), case.arch)
    return kernel, case.inputs(np.random.default_rng(0)), case.name


def check(item: tuple[tuple[str, int], int, int]) -> Counter[str]:
    """Compare proof and emulator on the mutants of one kernel; AssertionError: they disagree."""
    place, most, seed = item
    kernel, given, name = subject(place)
    lowered = kernel.lowered
    names = symbolic(host_and_kernels(lowered)[0])
    whole = prove(lowered)
    if any(one.data for one in whole.kernels):
        return Counter({"kernels where data decides": 1})
    assert whole.ok, f"{name}: {whole.statement}"
    found = list(mutants(lowered))
    random.Random(f"{seed} {name}").shuffle(found)
    if names:
        return _of_all_values(kernel, names, found[: most or len(found)])
    arrays = {**arguments(subject_of(kernel).function), **given}
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


def _of_all_values(kernel: Any, names: set[str], found: list[Mutant]) -> Counter[str]:
    """Compare proof and emulator on mutants of a kernel with symbolic extents."""
    function = subject_of(kernel).function
    counts = Counter({"kernels with symbolic extents": 1})

    def killed(broken: Any, value: int) -> tuple[str, ...]:
        if not admitted(*host_and_kernels(broken), dict.fromkeys(names, value)):
            return ()
        arrays = arguments(function, extents=dict.fromkeys(names, value))
        return hazards(
            broken, {one: a for one, a in arrays.items() if not isinstance(a, int)}, arrays
        )

    for mutant in found:
        broken = mutated(kernel.lowered, mutant)
        (said,) = prove(broken).kernels
        met = next((value for value in VALUES if killed(broken, value)), None)
        where = f"{kernel.name}, {mutant}"
        counts["mutants"] += 1
        if said.refuted is not None:
            wrong = int(said.values[0].only)
            assert killed(broken, wrong), f"{where}: refuted at {wrong}: {said.refuted.said}"
            counts["killed and refuted" if met is not None else "refuted at other values"] += 1
            continue
        assert met is None, f"{where}: missed at {met}"
        counts["no hazard" if said.ok else "not understood"] += 1
    return counts


def hazards(
    lowered: Any, arrays: Arrays, given: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """What the emulator meets in any mode, in global memory not counted.

    ``given``: the arguments, where there are others than ``arrays``.
    """
    for timing, order in MODES:
        copies = {name: copy.copy(value) for name, value in (given or arrays).items()}
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
    places += [("rows", number) for number in range(len(ROWS))]
    places += [("corpus", number) for number in range(len(CASES))]
    options = options_of(args)
    items = options.part([(place, args.most, args.seed) for place in places])
    return 0 if run("mutants", check, items, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
