"""What is proved of every kernel of the suites, the corpus and the examples, as a table.

    python -m tests.verify.proofs                       all of them, the kernels of the suites for h100
    python -m tests.verify.proofs --only gemm --jobs 2  sooner, but each takes longer
    python -m tests.verify.proofs --only gemm --nvcc    beside the seconds that nvcc takes

A line has the kernel, what is proved of it or why not, the seconds that it took, and behind the
first kernel of a function the processor's for all of them, which others on the machine do not
change, and nvcc's. A proof makes walks side by side, on all processors. Where a trip count is a
number in the code, the code makes no other, and is proved for that one. Where extents are symbolic,
it is proved for all of their values, or for some. Exit status 1: a kernel is refuted, or does
otherwise than its plan, or is not proved although loaded data does not decide its way.
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
from pipeliner.proof.proof import KernelProof
from pipeliner.proof.prove import prove
from pipeliner.proof.running.subjects import host_and_kernels, symbolic
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.schedules.suites import suite
from pipeliner.toolchain.nvcc import compile_cuda

from .runner import prepared

GROUPS: Final = ("gemm", "conv", "attention", "corpus", "examples")
USUAL: Final = ("gemm", "conv", "corpus", "examples")
EXTENTS: Final = (1, 2, 3, 17, 100, 127, 128, 129, 1000, 1535, 1536, 1537, 3073, 4000)
"""Values of symbolic extents, of which each is proved alone where not all are together."""

MARKS: Final = {
    "proved": "proved for all trip counts",
    "by end": "for all trip counts, constants near ends read as so far from these",
    "all values": "for all values of symbolic extents",
    "constant": "for the trip counts that their code has as constants",
    "some values": f"for {len(EXTENTS)} values of symbolic extents",
    "data": "where data decides",
}
"""What is proved of a kernel, or why not; in the order of the last line."""


@dataclass(frozen=True)
class Row:
    """One device function: whether it is proved, what is said of it, in how many seconds.

    ``busy``: seconds of processors, for all device functions of a module; ``nvcc``: those that it
    takes to compile them, 0 where that was not asked for.
    """

    name: str
    mark: str
    said: str
    seconds: float
    busy: float = 0.0
    nvcc: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether it is proved, or loaded data decides."""
        return self.mark in MARKS


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


def proved(place: tuple[str, int, bool]) -> list[Row]:
    """What is proved of a kernel, by its group and its number there; whether nvcc compiles it too."""
    group, number, compiled = place
    name, build = list(kernels(group))[number]
    kernel = build()
    lowered = kernel.lowered
    nvcc = _compiling(kernel) if compiled else 0.0
    begun = _processors()
    found = prove(lowered)
    names = symbolic(host_and_kernels(lowered)[0])
    for_all = {one.kernel for one in found.kernels if one.ok and one.values}
    if found.ok or found.refuted or any(one.data for one in found.kernels):
        names = set()
    for value in EXTENTS if names else ():
        found = prove(lowered, extents=dict.fromkeys(names, value))
        if not found.ok:
            break
    rows = []
    for one in found.kernels:
        said_of = (*one.values, *one.loops)
        counts = "; ".join(str(part.said) for part in said_of) or str(one.statement)
        said = str(one.statement) if one.refuted or one.why else counts
        values = f" ({', '.join(names)} = {value})" if names else ""
        busy = 0.0 if rows else _processors() - begun
        otherwise = "; ".join(map(str, found.disagreements))
        mark = "OTHERWISE" if otherwise else _mark(one, bool(names), one.kernel in for_all)
        rows.append(
            Row(
                f"{group} {name}",
                mark,
                said + values + otherwise,
                one.seconds,
                busy,
                0.0 if rows else nvcc,
            )
        )
    return rows


def _compiling(kernel: Any) -> float:
    """Seconds of processors that nvcc takes for a kernel."""
    cuda, begun = kernel.cuda, _processors()
    compile_cuda(cuda, kernel.arch, "cubin")
    return _processors() - begun


def _mark(one: KernelProof, is_some: bool, is_for_all: bool) -> str:
    """What is proved of a kernel, in a word or two."""
    if one.refuted is not None:
        return "REFUTED"
    if not one.ok:
        return "data" if one.data else "NOT PROVED"
    if is_some or is_for_all:
        return "all values" if is_for_all and not is_some else "some values"
    own = [loop.only for loop in one.loops if loop.only]
    if not own:
        return "by end" if any(loop.by_end for loop in one.loops) else "proved"
    return "OWN COUNTS" if one.narrow else "constant"


def _processors() -> float:
    """Seconds of processors that this process and those that have ended have taken."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=GROUPS, action="append")
    parser.add_argument("--jobs", type=int, default=1, help="1: a proof uses all processors")
    parser.add_argument("--nvcc", action="store_true", help="compile each, and compare the seconds")
    args = parser.parse_args(argv)
    places = [(g, n, args.nvcc) for g in args.only or USUAL for n, _ in enumerate(kernels(g))]
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(args.jobs, prepared) as pool:
        for some in pool.imap(proved, places):
            for row in some:
                rows.append(row)
                spent = f"{row.seconds:6.2f} s {row.busy:6.2f} s"
                spent += f" nvcc {row.nvcc:6.2f} s" if args.nvcc else ""
                print(f"{row.name:40} {row.mark:10} {spent}  {row.said}", flush=True)
    busy = [row.busy for row in rows if row.busy]
    seconds = [row.seconds for row in rows]
    print(
        f"{len(rows)} kernels: "
        + ", ".join(f"{sum(row.mark == m for row in rows)} {said}" for m, said in MARKS.items())
        + f", {sum(not row.is_right for row in rows)} not; "
        f"median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s; "
        f"of processors {statistics.median(busy):.2f} s, {max(busy):.2f} s, all {sum(busy):.0f} s"
    )
    if args.nvcc:
        print(_beside_nvcc([row for row in rows if row.nvcc]))
    return 0 if all(row.is_right for row in rows) else 1


def _beside_nvcc(rows: list[Row]) -> str:
    """For how many kernels the proof takes less than nvcc, and how much of its time."""
    shares = [row.busy / row.nvcc for row in rows]
    return (
        f"nvcc takes {statistics.median(row.nvcc for row in rows):.2f} s, "
        f"{max(row.nvcc for row in rows):.2f} s, all {sum(row.nvcc for row in rows):.0f} s; "
        f"the proof takes less for {sum(share < 1 for share in shares)} of {len(rows)}, "
        f"median {statistics.median(shares):.2f} of nvcc's, most {max(shares):.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
