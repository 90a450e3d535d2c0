"""Everything that records hold as one HTML page, and as plots for papers.

report("tuned.sqlite", "report.html", plots="figures")
"""

from __future__ import annotations

from pathlib import Path

from ..charts import Chart, Series, check_png, write_charts
from ..diagnostics import Reason
from ..errors import WorkloadError
from ..machine import NAMES, Machine, machine_for, read_machine
from ..records import Record, Records
from ..records.log import read_log
from .figures import charts_of, experiment_charts, experiment_tables
from .kernels import KernelView, view_of
from .page import MachinePart, page
from .readable import predicted, sifted
from .rows import Row, function_rows, rows_of
from .summary import notable, summary_of
from .written import ReportFiles

__all__ = ["Chart", "KernelView", "ReportFiles", "Row", "Series", "report"]

MOST_KERNELS = 16


def report(
    db: str | Path,
    output: str | Path,
    *,
    plots: str | Path | None = None,
    png: bool = False,
    kernels: int = MOST_KERNELS,
    machine: str | Path | None = None,
    log: str = "",
) -> ReportFiles:
    """Write the page of the records ``db`` to ``output``; the files that were written.

    A notebook shows what is at the top of the page.

    ``log``: ``db`` is a log of this GPU, such as ``"h100"``; the model predicts the times that it
    does not hold.

    Of each machine, the records of the newest versions are shown; the page says what is not, such
    as records of a later version that cannot be read. ``plots``: a folder for every chart as SVG
    and CSV, with ``png`` as PNG too. ``kernels``: how many of the fastest kernels of a machine are
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
    parts = [
        _part(name, found, machines[name], names[name], kernels) for name, found in newest.items()
    ]
    text = page(f"Measured kernels: {Path(db).name}", parts, hidden)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise WorkloadError("file.write", path=str(path), why=err.strerror) from err
    written = [path]
    for part in parts:
        if plots is not None:
            written += write_charts(part.charts, Path(plots) / part.name, png=png)
    return ReportFiles(written, parts)


def _newest(records: list[Record]) -> dict[str, list[Record]]:
    """Of each machine, the records of the versions that were used last."""
    last = {record.machine: record.versions for record in sorted(records, key=lambda r: r.made)}
    return {
        machine: [one for one in records if (one.machine, one.versions) == (machine, versions)]
        for machine, versions in sorted(last.items())
    }


def _part(
    name: str, records: list[Record], machine: Machine, asked: str, kernels: int
) -> MachinePart:
    """What is shown of a machine; ``asked``: its name, or its file."""
    rows, experiments = rows_of(records, machine), experiment_tables(records)
    charts = charts_of(rows, name) + experiment_charts(experiments)
    wanted = list(dict.fromkeys(map(id, [*notable(summary_of(rows)), *rows])))[:kernels]
    chosen = [(row, row.best) for row in rows if row.best is not None and id(row) in wanted]
    views = [
        (row, best, view_of(row.spec, best, asked, f"{name}{at}-"))
        for at, (row, best) in enumerate(chosen)
    ]
    functions = function_rows(records)
    return MachinePart(name, machine.name, rows, functions, charts, experiments, views)
