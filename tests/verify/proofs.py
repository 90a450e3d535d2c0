"""What is proved of every kernel of the suites, the corpus and the examples, as a table.

    python -m tests.verify.proofs                       all of them, the kernels of the suites for h100
    python -m tests.verify.proofs --only gemm --jobs 1

A line has the kernel, what is proved of it or why not, the seconds that it took, and behind the
first kernel of a function the processor's for all of them, which others on the machine do not
change. Exit status 1: a kernel is refuted, or one is not proved whose way loaded data does not
decide.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pipeliner
from examples import pipeline_your_own, streaming, the_idea, tune_your_own
from pipeliner.proof.prove import prove
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.schedules.suites import suite

from .runner import prepared

GROUPS: Final = ("gemm", "conv", "attention", "corpus", "examples")
USUAL: Final = ("gemm", "conv", "corpus", "examples")
EXTENT: Final = 100
"""Of each symbolic extent."""


@dataclass(frozen=True)
class Row:
    """One device function: whether it is proved, what is said of it, in how many seconds.

    ``busy``: seconds of processors, for all device functions of a module.
    """

    name: str
    mark: str
    said: str
    seconds: float
    busy: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether it is proved, or loaded data decides."""
        return self.mark in ("proved", "own counts", "data")


def kernels(group: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The name of each kernel of a group, and how it is built."""
    if group in ("gemm", "conv", "attention"):
        for name, spec in suite(group).items():
            yield name, partial(pipeliner.build, spec, "h100")
    elif group == "corpus":
        from ..corpus.test_corpus import CASES

        for case in CASES:
            yield case.name, lambda case=case: pipeliner.build(case.build(), case.arch)
    else:
        yield "streaming.py:add", partial(pipeliner.build, streaming.add, "a100")
        yield "the_idea.py:reverse", partial(pipeliner.build, the_idea.reverse, "a100")
        yield (
            "pipeline_your_own.py",
            lambda: pipeliner.build(pipeline_your_own.scheduled(), "a100"),
        )
        yield "tune_your_own.py", lambda: pipeliner.build(tune_your_own.scheduled(8, 4, 8), "a100")
        readme = Gemm(m=4096, n=4096, k=4096, dtype="float16")
        yield (
            "README.md",
            lambda: pipeliner.build(schedule_gemm(readme, GemmTile(128, 256, 64)), "h100"),
        )


def proved(place: tuple[str, int]) -> list[Row]:
    """What is proved of a kernel, by its group and its number there."""
    group, number = place
    name, build = list(kernels(group))[number]
    lowered = build().lowered
    begun = _processors()
    found = prove(lowered)
    names = {name for one in found.kernels if one.why for name in _extents(one.why)}
    if names:
        found = prove(lowered, extents=dict.fromkeys(names, EXTENT))
    rows = []
    for one in found.kernels:
        if one.refuted is not None:
            mark = "REFUTED"
        elif not one.ok:
            mark = "data" if one.data else "NOT PROVED"
        else:
            mark = "own counts" if any(loop.only for loop in one.loops) else "proved"
        counts = "; ".join(str(loop.said) for loop in one.loops) or str(one.statement)
        said = str(one.statement) if one.refuted or one.why else counts
        values = f" ({', '.join(names)} = {EXTENT})" if names else ""
        busy = 0.0 if rows else _processors() - begun
        rows.append(Row(f"{group} {name}", mark, said + values, one.seconds, busy))
    return rows


def _processors() -> float:
    """Seconds of processors that this process and those that have ended have taken."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _extents(why: Any) -> tuple[str, ...]:
    return why["names"] if hasattr(why, "has") and why.has("proof.extents") else ()


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=GROUPS, action="append")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args(argv)
    places = [(g, n) for g in args.only or USUAL for n, _ in enumerate(kernels(g))]
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(args.jobs, prepared) as pool:
        for some in pool.imap(proved, places):
            for row in some:
                rows.append(row)
                spent = f"{row.seconds:6.2f} s {row.busy:6.2f} s"
                print(f"{row.name:40} {row.mark:10} {spent}  {row.said}", flush=True)
    busy = [row.busy for row in rows if row.busy]
    seconds = [row.seconds for row in rows]
    print(
        f"{len(rows)} kernels: {sum(row.mark == 'proved' for row in rows)} proved for all trip counts, "
        f"{sum(row.mark == 'own counts' for row in rows)} for their own, "
        f"{sum(row.mark == 'data' for row in rows)} where data decides, "
        f"{sum(not row.is_right for row in rows)} not; "
        f"median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s; "
        f"of processors {statistics.median(busy):.2f} s, {max(busy):.2f} s, all {sum(busy):.0f} s"
    )
    return 0 if all(row.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
