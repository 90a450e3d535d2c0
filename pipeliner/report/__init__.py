"""Everything that records hold as one HTML page, and as plots for papers.

report("tuned.sqlite", "report.html", plots="figures")
"""

from __future__ import annotations

from pathlib import Path

from ..diagnostics import Reason
from ..errors import WorkloadError
from ..machine import NAMES, machine_for, read_machine
from ..records import Record, Records
from ..records.log import read_log
from .charts import Chart, Series, check_png, write_charts
from .figures import (
    Row,
    charts_of,
    experiment_charts,
    experiment_tables,
    function_rows,
    predicted,
    rows_of,
    sifted,
)
from .kernels import KernelView, view_of
from .page import page

__all__ = ["Chart", "KernelView", "Row", "Series", "report"]

MOST_KERNELS = 24


def report(
    db: str | Path,
    output: str | Path,
    *,
    plots: str | Path | None = None,
    png: bool = False,
    kernels: int = MOST_KERNELS,
    machine: str | Path | None = None,
    log: str = "",
) -> list[Path]:
    """Write the page of the records ``db`` to ``output``; the files that were written.

    ``log``: ``db`` is a log of this GPU, such as ``"h100"``; the model predicts the times that it
    does not hold.

    Of each machine, the records of the newest versions are shown; the page says what is not, such
    as records of a later version that cannot be read. ``plots``: a folder for every chart as SVG
    and CSV, with ``png`` as PNG too. ``kernels``: how many of the chosen kernels of a machine are
    made again, to be read. ``machine``: the file of a GPU that is not described here, or of one
    that was calibrated. WorkloadError: there is nothing to show, or no place for it. ToolError:
    matplotlib is missing for PNG.
    """
    path = Path(output)
    if png:
        check_png()
    if not path.parent.is_dir():
        raise WorkloadError("file.no_folder", path=str(path), folder=str(path.parent))
    machines, names = dict(NAMES), {name: name for name in NAMES}
    if machine is not None:
        own = read_machine(Path(machine)).machine
        machines[own.key], names[own.key] = own, str(machine)
    if log:
        key = machine_for(log).key
        kept = predicted(read_log(Path(db), machines[key]), machines[key])
    else:
        with Records(db, create=False) as records:
            kept = records.find(plans=False)
    if not kept:
        raise WorkloadError("report.empty", db=str(db))
    readable, unreadable = sifted(kept, machines)
    if not readable:
        first = next(iter(unreadable))
        raise WorkloadError("report.unreadable", db=str(db), count=len(kept), first=first)
    newest = _newest(readable)
    hidden = dict(unreadable)
    if older := len(readable) - sum(map(len, newest.values())):
        hidden[Reason("report.older")] = older
    rows = {name: rows_of(found, machines[name]) for name, found in newest.items()}
    functions = {name: function_rows(found) for name, found in newest.items()}
    tables = {name: experiment_tables(found) for name, found in newest.items()}
    charts = {
        name: charts_of(found, name) + experiment_charts(tables[name])
        for name, found in rows.items()
    }
    views = {name: _views(found, kernels, names[name]) for name, found in rows.items()}
    text = page(f"Kernels of {Path(db).name}", rows, functions, charts, tables, views, hidden)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise WorkloadError("file.write", path=str(path), why=err.strerror) from err
    written = [path]
    for name, found in charts.items():
        if plots is not None:
            written += write_charts(found, Path(plots) / name, png=png)
    return written


def _newest(records: list[Record]) -> dict[str, list[Record]]:
    """Of each machine, the records of the versions that were used last."""
    last = {record.machine: record.versions for record in sorted(records, key=lambda r: r.made)}
    return {
        machine: [one for one in records if (one.machine, one.versions) == (machine, versions)]
        for machine, versions in sorted(last.items())
    }


def _views(rows: list[Row], most: int, machine: str) -> list[tuple[Row, Record, KernelView]]:
    chosen = [(row, row.best) for row in rows if row.best is not None][:most]
    return [(row, best, view_of(row.spec, best, machine)) for row, best in chosen]
