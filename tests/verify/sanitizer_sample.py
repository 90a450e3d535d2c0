"""Whether compute-sanitizer and the emulator agree: random kernels, and one defect in each.

    python -m tests.verify.sanitizer_sample make DIR --kernels 215 --seed 7    needs nvcc, no GPU
    python -m tests.verify.sanitizer_sample run DIR --jobs 8                   needs a GPU
    python -m tests.verify.sanitizer_sample list DIR                           what is to come of it

``make`` draws kernels as ``proof_sample`` does, of the forms that racecheck can judge: it knows
shared memory, barriers and cp.async, but no mbarriers, tensor maps and proxies. Each is proved, run
in the emulator and compiled; and so is one mutant of each that is either right for its own trip
counts or wrong by two accesses without an ordering. ``run`` runs all of them under racecheck, which
has to object exactly where the emulator does. A mutant that it accepts though the emulator objects is
run again with all that racecheck can say, and printed with the hazard and the reason why racecheck
looks past it, where there is one (``blind_spot``). Exit status 1: they disagree, and no reason is known.
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
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm

from pipeliner.emulator import Hazard, emulate
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
_REMARK: Final = re.compile(r"^=+ (Info|INFO)", re.MULTILINE)
_EVERYTHING: Final = ("--print-level", "info", "--racecheck-report", "all")
"""Options with which racecheck tells also what it takes for harmless, and each pair of accesses."""

_SAID_LINES: Final = 12
"""Lines of racecheck that are printed of a mutant that it accepts."""

_SAID_HAZARDS: Final = 3
"""Hazards of the emulator that are printed of one."""

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

    def write(made: Any, kind: str, defect: str, hazards: Sequence[Hazard]) -> None:
        made.export(folder / f"{number}_{kind}.so")
        entry = {"name": kernel.name, "arrays": shapes, "objects": bool(hazards)}
        about = {"kernel": repr(given), "defect": defect, "hazards": list(map(told, hazards))}
        (folder / f"{number}_{kind}.json").write_text(json.dumps(entry | about))

    assert prove(kernel.lowered).refuted is None, f"{given}: refuted"
    assert not any(hazards_of(kernel.lowered, arrays, mode) for mode in MODES), f"{given}: wrong"
    write(kernel, "whole", "", ())
    found = [mutant for mutant in mutants(kernel.lowered) if mutant.synchronises]
    random.Random(given.seed).shuffle(found)
    for mutant in found[:_TRIES]:
        broken = mutated(kernel.lowered, mutant)
        hazards = [one for mode in MODES for one in every_hazard(broken, arrays, mode)]
        if {one.kind for one in hazards} <= OF_ACCESSES:
            device = planted_with(kernel, mutant).cuda  # the host's code is the same
            write(EditedKernel(kernel, device), "mutant", str(mutant), hazards)
            counts["mutants"] += 1
            counts["wrong" if hazards else "right for their own counts"] += 1
            break
    return counts


def every_hazard(lowered: Any, arrays: Any, mode: tuple[str, str]) -> tuple[Hazard, ...]:
    """All hazards that the emulator meets in one mode."""
    timing, order = mode
    copies = {name: np.copy(value) for name, value in arrays.items()}
    return tuple(emulate(lowered, copies, timing=timing, order=order).hazards)


def told(hazard: Hazard) -> dict[str, Any]:
    """A hazard as the sample keeps it."""
    return {"kind": hazard.kind, "threads": list(hazard.threads), "said": str(hazard)}


def blind_spot(hazards: Sequence[dict[str, Any]]) -> str:
    """Why racecheck looks past all of these hazards; empty: no reason is known.

    It compares accesses of different threads. An asynchronous copy counts as its thread's.
    """
    pairs = [one["threads"] for one in hazards]
    if all(len(set(pair)) == 1 for pair in pairs):
        return "each is between two accesses of one thread, and racecheck compares threads"
    return ""


def entries(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was made, by name."""
    for path in sorted(folder.glob("*.json")):
        yield path.stem, json.loads(path.read_text())


def watched(folder: Path, names: Collection[str]) -> None:
    """Run kernels once on the GPU, with a line in front of each."""
    device = tvm.cuda(0)
    rng = np.random.default_rng(1)
    for name, entry in entries(folder):
        if name not in names:
            continue
        print(_MARK, name, flush=True)
        function = tvm.runtime.load_module(str(folder / f"{name}.so"))[entry["name"]]
        arrays = [rng.integers(-2, 3, shape).astype(dtype) for shape, dtype in entry["arrays"]]
        function(*(tvm.runtime.tensor(array, device) for array in arrays))
        device.sync()
    print(_MARK, "end", flush=True)


def said_of(output: str) -> dict[str, str]:
    """By kernel, what stands between its line and the next."""
    parts = re.split(rf"^{_MARK} (\S+)$", output, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def objections(output: str) -> dict[str, bool]:
    """By kernel, whether the sanitizer objects to anything between its line and the next."""
    return {name: bool(_OBJECTION.search(text)) for name, text in said_of(output).items()}


def sanitized(folder: Path, names: Sequence[str], options: Sequence[str] = ()) -> str:
    """What racecheck says of some kernels, each behind its line."""
    command = ["compute-sanitizer", "--tool", "racecheck", "--print-limit", "0", *options]
    command += [sys.executable, "-m", str(__spec__.name) if __spec__ else "", "watched"]
    done = subprocess.run(
        [*command, str(folder), "--names", ",".join(names)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "end" not in said_of(done.stdout):
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)
    return done.stdout


def compare(folder: Path, jobs: int) -> int:
    """Run all under racecheck, and print where it says otherwise than the emulator."""
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is missing", file=sys.stderr)
        return 1
    made = dict(entries(folder))
    shares = [share for first in range(jobs) if (share := [*made][first::jobs])]
    with ThreadPoolExecutor(jobs) as pool:
        outputs = pool.map(lambda share: sanitized(folder, share), shares)
        found = {name: says for output in outputs for name, says in objections(output).items()}
    counts: Counter[str] = Counter()
    for name, entry in made.items():
        verdict = verdict_of(entry, found.get(name))
        if verdict == "DISAGREE" and entry["objects"]:
            verdict = explained(folder, name, entry)
        elif verdict in ("not run", "DISAGREE"):
            print(f"{verdict}: {name}: right in the emulator: {entry['kernel']} {entry['defect']}")
        counts[f"{name.rpartition('_')[2]}: {verdict}"] += 1
    print(", ".join(f"{count} of {what}" for what, count in sorted(counts.items())))
    wrong = "not run", "DISAGREE", "UNEXPLAINED"
    return int(any(what.endswith(wrong) for what in counts))


def verdict_of(entry: dict[str, Any], objects: bool | None) -> str:
    """What came of one kernel, by whether racecheck objects to it; None: it was not run."""
    if objects is None:
        return "not run"
    if objects != entry["objects"]:
        return "DISAGREE"
    return "both object" if objects else "both accept"


def explained(folder: Path, name: str, entry: dict[str, Any]) -> str:
    """Print a mutant that racecheck accepts, its hazards, and what may explain that; a verdict."""
    said = said_of(sanitized(folder, [name], _EVERYTHING)).get(name, "")
    why = blind_spot(entry["hazards"])
    if _REMARK.search(said):
        why = "racecheck meets the hazard, and takes it for harmless: what is written is the same"
    elif _OBJECTION.search(said):
        why = "racecheck objects when it runs again: it had not met the hazard by chance"
    print(f"accepted by racecheck: {name}: {entry['kernel']} {entry['defect']}")
    for hazard in entry["hazards"][:_SAID_HAZARDS]:
        print(f"    {hazard['said']}")
    print(f"    {len(entry['hazards'])} hazards in all; racecheck says of them:")
    print(*(f"    {line}" for line in said.strip().splitlines()[:_SAID_LINES]), sep="\n")
    print(f"    {why or 'UNEXPLAINED'}")
    return "racecheck alone accepts, explained" if why else "racecheck alone accepts, UNEXPLAINED"


def listed(folder: Path) -> None:
    """Print the mutants to which the emulator objects, those that racecheck may accept first."""
    made = [(name, entry) for name, entry in entries(folder) if entry["objects"]]
    for name, entry in sorted(made, key=lambda one: not blind_spot(one[1]["hazards"])):
        kinds = sorted({one["kind"] for one in entry["hazards"]})
        why = blind_spot(entry["hazards"])
        print(f"{name}: {', '.join(kinds)}: {entry['kernel']} {entry['defect']}: {why or 'clear'}")


def main(argv: list[str] | None = None) -> int:
    """Make a sample, or run one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("make", "run", "list", "watched"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--names", default="", help="of kernels to watch, separated by commas")
    add_options(parser)
    args = parser.parse_args(argv)
    if args.step == "run":
        return compare(args.folder, args.jobs)
    if args.step == "watched":
        watched(args.folder, args.names.split(","))
        return 0
    if args.step == "list":
        listed(args.folder)
        return 0
    args.folder.mkdir(parents=True, exist_ok=True)
    options = options_of(args)
    items = [(str(args.folder), args.seed, number) for number in range(args.kernels)]
    return 0 if run("sanitizer", make, options.part(items), options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
