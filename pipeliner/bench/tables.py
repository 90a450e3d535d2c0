"""A report as rows of text, and as the lines that a person needs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..diagnostics import Why
from ..measuring import READ, WRITTEN
from ..records.record import OURS
from .results import BEST, LIBRARIES, OURS_PLAIN, SDPA, Claim, Report, Result, SpeedSummary

NONE = "-"

_FLUSHED: Final = {WRITTEN: "overwritten", READ: "filled by reading"}


@dataclass(frozen=True, slots=True)
class Table:
    """Headers and rows; the last ``numeric`` columns are numbers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: int


def suite_table(report: Report) -> Table:
    """A line for each problem: our rate, each peer's, and how many times as fast we are.

    Of PyTorch's attention the fastest backend, with its name; the summary has them all.
    """
    peers = [peer for peer in report.peers() if not peer.startswith(f"{SDPA},")]
    headers = [report.suite, "TFLOP/s", "us", "noise", "error"]
    headers += ["of the roof"] if report.roofs else []
    for peer in peers:
        headers += [_title(peer), _versus(peer)]
        headers += ["hot"] if report.is_hot else []
    rows = [_suite_row(report, problem, peers) for problem in report.problems]
    return Table(tuple(headers), tuple(rows), len(headers) - 1)


def problem_tables(report: Report) -> list[Table]:
    """A table for each problem: a line for each contender; ``failure_lines`` has what failed."""
    tables = []
    for problem in report.problems:
        library = report.library(problem)
        of = f"of {library.contender}" if library else "of the library"
        headers = (problem, "", "TFLOP/s", "us", "quartiles", of, "error")
        mine = [result for result in report.results if result.problem == problem]
        rows = tuple(_contender_row(result, library) for result in mine)
        tables.append(Table(headers, rows, 5))
    return tables


def claim_table(report: Report) -> Table:
    """Each claim, whether it holds, and what it takes."""
    headers = ("claim", "met", "value", "floor", "goal")
    return Table(headers, tuple(map(_claim_row, report.claims)), 3)


def summary_lines(report: Report) -> list[str]:
    """Mean and minimum of our ratio to each peer, and what is missing from them."""
    return [_summary_line(summary) for summary in report.summaries()]


def failure_lines(report: Report) -> list[str]:
    """What has no time, and why; contenders of one kind that fail alike share a line."""
    found: dict[tuple[str, str, Why], None] = {}
    for result in report.results:
        for failure in filter(None, (result.failure, result.not_hot)):
            found[result.problem, _kind(result.contender), failure] = None
    return [f"{problem}: {name}: {reason}" for problem, name, reason in found]


def best_lines(report: Report) -> list[str]:
    """Of each problem the vendor's fastest kernel by name, back to back too where asked for."""
    lines = []
    for problem in report.problems if BEST in report.peers() else ():
        for hot in (False, True) if report.is_hot else (False,):
            one = report.best(problem, BEST, hot=hot)
            if one is not None:
                us = f"{one.hot_us:.1f} us hot" if hot else f"{one.us:.1f} us"
                by = f"{one.contender}: {one.detail}" if one.detail else one.contender
                lines.append(f"{problem}: {us} by {by}")
    return lines


def condition_lines(report: Report) -> list[str]:
    """On what, with what, how often and how steadily it was measured."""
    lines = [report.device]
    if report.conditions is not None:
        made = (f"{name} {text}" for name, text in report.conditions.versions.items())
        lines = [f"{report.conditions.gpu}; {', '.join(made)}"]
        kept = (f"{name} {text}" for name, text in report.conditions.settings.items())
        clocks = sorted(report.sm_clocks.values())
        settings = ", ".join(kept) or "settings unknown: nvidia-smi does not answer"
        if clocks:
            settings += f", SM clock after each workload {clocks[0]} to {clocks[-1]} MHz"
        lines.append(settings)
    lines.append(
        f"medians of {report.rounds} rounds, contenders interleaved, L2 {_FLUSHED[report.flush]} "
        "before each run, standard normal inputs (integers: -8..7)"
    )
    lines.append(
        "noise: interquartile range of the times over their median, "
        f"{report.noise:.1%} in the middle; error: the largest, over what rounding allows"
    )
    if report.interrupted:
        lines.append("interrupted: what was measured so far")
    return lines


def _suite_row(report: Report, problem: str, peers: Sequence[str]) -> tuple[str, ...]:
    ours = report.find(problem, OURS)
    cells = [NONE] * 4
    if ours is not None:
        cells = [f"{ours.tflops:.1f}", f"{ours.us:.1f}", f"{ours.noise:.1%}", f"{ours.worst:.2f}"]
    if report.roofs:
        roof = report.roofs.get(problem)
        cells.append(NONE if ours is None or roof is None else f"{roof / ours.us:.2f}")
    for peer in peers:
        theirs = report.best(problem, peer)
        ratio = report.ratio(problem, peer)
        backend = theirs.contender.removeprefix(SDPA).replace(",", "") if theirs else ""
        named = backend if peer == SDPA else ""
        cells.append(NONE if theirs is None else f"{theirs.tflops:.1f}{named}")
        cells.append(NONE if ratio is None else f"{ratio:.3f}")
        if report.is_hot:
            hot = report.ratio(problem, peer, hot=True)
            cells.append(NONE if hot is None else f"{hot:.3f}")
    return (problem, *cells)


def _contender_row(result: Result, library: Result | None) -> tuple[str, ...]:
    if result.failure:
        return (result.contender, *[NONE] * 6)
    return (
        result.contender,
        result.detail,
        f"{result.tflops:.1f}",
        f"{result.us:.1f}",
        f"{result.low_us:.1f}-{result.high_us:.1f}",
        f"{library.us / result.us:.3f}" if library else NONE,
        f"{result.worst:.2f}",
    )


def _claim_row(claim: Claim) -> tuple[str, ...]:
    met = "yes" if claim.met else "NO"
    return (claim.name, met, f"{claim.value:.3g}", f"{claim.floor:g}", f"{claim.goal:g}")


def _summary_line(summary: SpeedSummary) -> str:
    missing = f"; no ratio for {', '.join(summary.missing)}" if summary.missing else ""
    hot = ", hot" if summary.hot else ""
    return (
        f"{_versus(summary.peer)}{hot}: geometric mean {summary.geometric_mean:.3f}, minimum "
        f"{summary.minimum:.3f} ({summary.worst}), of {summary.problems}{missing}"
    )


def _kind(contender: str) -> str:
    """``TVM stock`` for each of its depths; ours and backends of attention stay as they are."""
    return contender if contender.startswith((OURS, SDPA)) else contender.partition(",")[0]


def _title(peer: str) -> str:
    return "depth 1" if peer == OURS_PLAIN else peer


def _versus(peer: str) -> str:
    """What our ratio to a peer is called."""
    if peer == OURS_PLAIN:
        return "gain of the depth"
    return f"of {peer}" if peer in (*LIBRARIES, BEST) else f"over {peer}"
