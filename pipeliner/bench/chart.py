"""Ratios to the library as bars."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..charts import Chart, Series, write_chart
from ..errors import ToolError, WorkloadError
from ..records.record import OURS
from .results import LIBRARIES, OURS_PLAIN, STOCK_PREFIX, TRITON, Report

SUFFIXES: Final = (".svg", ".png")

DRAWN: Final = (OURS, OURS_PLAIN, STOCK_PREFIX, TRITON)

WIDTH: Final = 900


def check_chart(file: str) -> None:
    """Refuse, before anything is measured, what could not be written afterwards.

    WorkloadError: by its name or folder. ToolError: matplotlib, which makes a .png, is missing.
    """
    path = Path(file)
    if path.suffix.lower() not in SUFFIXES:
        raise WorkloadError("chart.name", path=file)
    if not path.parent.is_dir():
        raise WorkloadError("file.no_folder", path=file, folder=str(path.parent))
    if path.suffix.lower() == ".png" and find_spec("matplotlib") is None:
        raise ToolError("chart.matplotlib", path=file)


def draw(report: Report, file: str) -> None:
    """Draw the ratios of a report; WorkloadError: there are none, or it cannot be written."""
    chart = ratios(report)
    if chart is None:
        raise WorkloadError("chart.empty", path=file)
    write_chart(chart, Path(file))


def ratios(report: Report) -> Chart | None:
    """How many times as fast as the library each contender is; None: the library ran nowhere."""
    problems = [problem for problem in report.problems if report.library(problem) is not None]
    series = []
    for name in DRAWN:
        points = []
        for at, problem in enumerate(problems):
            exact = name in (OURS, OURS_PLAIN)
            found = report.find(problem, name) if exact else report.best(problem, name)
            library = report.library(problem)
            if found is not None and library is not None:
                points.append((float(at), library.us / found.us))
        if points:
            series.append(Series(name, tuple(points)))
    if not series:
        return None
    return Chart(
        "ratios",
        f"{report.suite}: speed beside {' or '.join(_libraries(report))} (= 1)",
        "bars",
        "workload",
        "times the library's speed",
        tuple(series),
        tuple(problems),
        note=_note(report),
        one=True,
        width=WIDTH,
    )


def _libraries(report: Report) -> list[str]:
    return [name for name in LIBRARIES if any(r.contender == name for r in report.measured)]


def _note(report: Report) -> str:
    """What the bars come to, and how they were measured."""
    means = [
        f"geometric mean {one.geometric_mean:.3f}, minimum {one.minimum:.3f} ({one.worst})"
        for one in report.summaries()
        if one.peer in LIBRARIES
    ]
    return "; ".join([*means, f"{report.device}, medians of {report.rounds} rounds"])
