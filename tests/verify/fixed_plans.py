"""Whether refactorings leave CUDA as it was: kernels of every kind, each by a plan handed back.

    python -m tests.verify.fixed_plans                      which differ from what is kept
    python -m tests.verify.fixed_plans --against ../before  and in which line, from that checkout
    python -m tests.verify.fixed_plans --update             keep what is made today

``fixed_plans.txt`` has a line for each kernel: hashes of the plan that was made for it (decisions,
without reasons) and of the CUDA that the plan gave when it was handed back, then what it is made of
(``plan_cases.py``). To add one, write its line with ``- -`` for the hashes, then ``--update``.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pipeliner
from pipeliner import KernelPlan

from .plan_cases import PlanCase
from .runner import add_options, options_of, prepared

KEPT: Final = Path(__file__).with_suffix(".txt")
ROOT: Final = Path(__file__).parents[2]

SAME: Final = "same"
OTHER_PLAN: Final = "same CUDA by another plan"
OTHER_CUDA: Final = "other CUDA by the same plan"
OTHERWISE: Final = "planned otherwise"
FAILED: Final = "failed"

GOOD: Final = (SAME, OTHER_PLAN)
"""Outcomes that a refactoring may have."""

PROSE: Final = ("reason", "reasons", "predicted_us")
"""Fields of a plan that decide nothing."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A case with the hashes that are kept of it."""

    case: PlanCase
    plan: str = "-"
    cuda: str = "-"

    def __str__(self) -> str:
        return f"{self.plan} {self.cuda} {self.case}"


def fixed() -> list[Fixed]:
    """What is kept, in the order of the file."""
    lines = (line.split(maxsplit=2) for line in KEPT.read_text().splitlines())
    return [Fixed(PlanCase(text), plan, cuda) for plan, cuda, text in lines]


def spread(items: Sequence[Fixed], count: int, seed: int) -> list[Fixed]:
    """``count`` of ``items``, one of each run of neighbours, which are alike."""
    rng = random.Random(seed)
    ends = [len(items) * at // count for at in range(count + 1)]
    return [items[rng.randrange(first, end)] for first, end in itertools.pairwise(ends)]


def cuda_of(case: PlanCase) -> tuple[KernelPlan, str]:
    """The plan made for ``case``, and the CUDA that it gives when it is handed back."""
    prepared()
    function, plan = case.planned()
    done = pipeliner.pipeline(function, case.target, plan=plan)
    return plan, pipeliner.build(done).cuda


def made(case: PlanCase) -> Fixed:
    """``case`` with the hashes of what is made today."""
    plan, cuda = cuda_of(case)
    decided = json.dumps(_decisions(json.loads(plan.to_json())), sort_keys=True)
    return Fixed(case, _hash(decided), _hash(cuda))


def outcome(kept: Fixed) -> str:
    """What became of a case."""
    return _outcome(kept, made(kept.case))


def first_difference(before: str, after: str) -> str:
    """The first line in which two texts differ, as it was and as it is."""
    pairs = itertools.zip_longest(before.splitlines(), after.splitlines(), fillvalue="(ends)")
    for number, (old, new) in enumerate(pairs, 1):
        if old != new:
            return f"line {number}\n-{old}\n+{new}"
    return "the same today"


def _outcome(kept: Fixed, now: Fixed) -> str:
    if kept.cuda == now.cuda:
        return SAME if kept.plan == now.plan else OTHER_PLAN
    return OTHER_CUDA if kept.plan == now.plan else OTHERWISE


def _decisions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _decisions(part) for name, part in value.items() if name not in PROSE}
    return [_decisions(part) for part in value] if isinstance(value, list) else value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _tried(kept: Fixed) -> tuple[Fixed, Fixed | None, str]:
    """What is kept, what is made, and what became of it, which may be an error."""
    try:
        now = made(kept.case)
    except Exception:  # the others are still to be compared; what failed is reported
        return kept, None, f"{FAILED}\n{traceback.format_exc()}"
    return kept, now, _outcome(kept, now)


def _of_checkout(folder: str, cases: Iterable[PlanCase]) -> list[str]:
    """The CUDA of ``cases`` by the checkout in ``folder``, which may be older than this file."""
    paths = os.pathsep.join((folder, str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.verify.fixed_plans", "--print"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        input="\n".join(map(str, cases)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [str(text) for text in json.loads(done.stdout.splitlines()[-1])]


def _print_cuda() -> None:
    """The CUDA of the cases on stdin, as a list of JSON; an error in place of what has none."""
    found = []
    for line in sys.stdin.read().splitlines():
        try:
            found.append(cuda_of(PlanCase(line))[1])
        except Exception as err:  # an older checkout may not know what is asked for
            found.append(f"{type(err).__name__}: {err}")
    print(json.dumps(found))


def _show(differing: list[Fixed], against: str | None) -> None:
    """Name the cases that differ; with ``against`` the first line that does."""
    before = _of_checkout(against, (one.case for one in differing)) if against else []
    for one, old in itertools.zip_longest(differing, before):
        print(one.case)
        if old is not None:
            print(first_difference(old, cuda_of(one.case)[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true", help="keep what is made today")
    parser.add_argument("--against", metavar="DIR", help="a checkout to show the first line of")
    parser.add_argument("--print", action="store_true", help="CUDA of cases on stdin, as JSON")
    add_options(parser)
    args = parser.parse_args()
    if args.print:
        _print_cuda()
        return 0
    options = options_of(args)
    kept = fixed()
    counts: Counter[str] = Counter()
    differing, found = [], {one.case: one for one in kept}
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, prepared) as pool:
        for old, new, became in pool.imap(_tried, options.part(kept)):
            counts[became.split("\n")[0]] += 1
            if new is None:
                print(f"{old.case}: {became}", flush=True)
            elif became not in GOOD:
                print(f"{became}: {old.case}", flush=True)
                differing.append(old)
            found[old.case] = new or old
    if args.update:
        KEPT.write_text("".join(f"{found[one.case]}\n" for one in kept))
    elif args.against:
        _show(differing, args.against)
    print("; ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    return 1 if counts[FAILED] or (differing and not args.update) else 0


if __name__ == "__main__":
    sys.exit(main())
