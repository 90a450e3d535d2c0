"""Whether compute-sanitizer and the emulator agree: random kernels, and one defect in each.

    python -m tests.verify.sanitizer_sample make DIR --kernels 200 --seed 7    needs nvcc, no GPU
    python -m tests.verify.sanitizer_sample run DIR                            needs a GPU

``make`` draws kernels as ``proof_sample`` does, of the forms that racecheck can judge: it knows
shared memory, barriers and cp.async, but no mbarriers, tensor maps and proxies. Each is proved, run
in the emulator and compiled; and so is one mutant of each that is either right for its own trip
counts or wrong by two accesses without an ordering. ``run`` runs all of them under racecheck, which
has to object exactly where the emulator does. Exit status 1: they disagree.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm

from pipeliner.errors import PipelinerError
from pipeliner.kernel.edited import EditedKernel
from pipeliner.mutation import mutants, mutated
from pipeliner.proof.prove import prove
from pipeliner.verification.subjects import arguments, subject_of

from ..gpu.planted import planted_with
from .proof_sample import FORMS, MODES, Drawn, drawn, hazards_of
from .runner import add_options, options_of, run

TARGET: Final = "h100"
OF_ACCESSES: Final = {"race", "write-while-read", "read-before-arrival", "write-in-flight"}
"""Hazards that racecheck is there to find."""

_MARK: Final = "KERNEL"
_OBJECTION: Final = re.compile(r"^=+ (Error|Warning)", re.MULTILINE)
_TRIES: Final = 8
"""Mutants of a kernel that are looked at, until one is for racecheck to judge."""


def forms() -> list[int]:
    """The numbers of the forms without asynchronous engines besides cp.async."""
    return [n for n, (_, _, options) in enumerate(FORMS) if options["instruction"] != "wgmma"]


def sample(seed: int, number: int) -> Drawn:
    """The ``number``-th kernel of a seed."""
    given = drawn(seed, number)
    of = forms()
    return replace(given, form=of[given.form % len(of)], tiles=1)


def make(place: tuple[str, int, int]) -> Counter[str]:
    """Write the library of one kernel and of a mutant, and what the emulator says of them."""
    folder, seed, number = Path(place[0]), place[1], place[2]
    given = sample(seed, number)
    try:
        kernel = given.built(TARGET)
    except PipelinerError:
        return Counter({"refused": 1})
    arrays = arguments(subject_of(kernel).function)
    shapes = [[list(array.shape), str(array.dtype)] for array in arrays.values()]
    counts = Counter({"kernels": 1})

    def write(made: Any, kind: str, defect: str, objects: bool) -> None:
        made.export(folder / f"{number}_{kind}.so")
        entry = {"name": kernel.name, "arrays": shapes, "objects": objects}
        about = {"kernel": repr(given), "defect": defect}
        (folder / f"{number}_{kind}.json").write_text(json.dumps(entry | about))

    assert prove(kernel.lowered).refuted is None, f"{given}: refuted"
    assert not any(hazards_of(kernel.lowered, arrays, mode) for mode in MODES), f"{given}: wrong"
    write(kernel, "whole", "", False)
    found = [mutant for mutant in mutants(kernel.lowered) if mutant.synchronises]
    random.Random(given.seed).shuffle(found)
    for mutant in found[:_TRIES]:
        broken = mutated(kernel.lowered, mutant)
        kinds = {one.kind for mode in MODES for one in hazards_of(broken, arrays, mode)}
        if kinds <= OF_ACCESSES:
            device = planted_with(kernel, mutant).cuda  # the host's code is the same
            write(EditedKernel(kernel, device), "mutant", str(mutant), bool(kinds))
            counts["mutants"] += 1
            counts["wrong" if kinds else "right for their own counts"] += 1
            break
    return counts


def entries(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was made, by name."""
    for path in sorted(folder.glob("*.json")):
        yield path.stem, json.loads(path.read_text())


def watched(folder: Path) -> None:
    """Run every kernel once on the GPU, with a line in front of each."""
    device = tvm.cuda(0)
    rng = np.random.default_rng(1)
    for name, entry in entries(folder):
        print(_MARK, name, flush=True)
        function = tvm.runtime.load_module(str(folder / f"{name}.so"))[entry["name"]]
        arrays = [rng.integers(-2, 3, shape).astype(dtype) for shape, dtype in entry["arrays"]]
        function(*(tvm.runtime.tensor(array, device) for array in arrays))
        device.sync()
    print(_MARK, "end", flush=True)


def objections(output: str) -> dict[str, bool]:
    """By kernel, whether the sanitizer objects to anything between its line and the next."""
    parts = re.split(rf"^{_MARK} (\S+)$", output, flags=re.MULTILINE)
    return {
        name: bool(_OBJECTION.search(text))
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def compare(folder: Path) -> int:
    """Run all under racecheck, and print where it says otherwise than the emulator."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is missing", file=sys.stderr)
        return 1
    command = [sanitizer, "--tool", "racecheck", "--print-limit", "0", sys.executable, "-m"]
    ours = [str(__spec__.name), "watched", str(folder)] if __spec__ else []
    done = subprocess.run([*command, *ours], capture_output=True, text=True, check=False)
    found = objections(done.stdout)
    counts: Counter[str] = Counter()
    for name, entry in entries(folder):
        kind = name.rpartition("_")[2]
        if name not in found or "end" not in found:
            verdict = "not run"
        elif found[name] == entry["objects"]:
            verdict = "objected to" if found[name] else "accepted"
        else:
            verdict = "DISAGREE"
        counts[f"{kind}: {verdict}"] += 1
        if verdict in ("not run", "DISAGREE"):
            says = "wrong" if entry["objects"] else "right"
            print(f"{verdict}: {name}: {says} in the emulator: {entry['kernel']} {entry['defect']}")
    print(", ".join(f"{count} of {what}" for what, count in sorted(counts.items())))
    if "end" not in found:
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)
    return int(any("DISAGREE" in what or "not run" in what for what in counts))


def main(argv: list[str] | None = None) -> int:
    """Make a sample, or run one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("make", "run", "watched"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    add_options(parser)
    args = parser.parse_args(argv)
    if args.step == "run":
        return compare(args.folder)
    if args.step == "watched":
        watched(args.folder)
        return 0
    args.folder.mkdir(parents=True, exist_ok=True)
    options = options_of(args)
    items = [(str(args.folder), args.seed, number) for number in range(args.kernels)]
    return 0 if run("sanitizer", make, options.part(items), options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
