"""From rows and records to charts, and to the tables of experiments."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ..charts import Chart, Series
from ..records import OURS, Record
from ..records.candidate import workload_of
from ..records.functions import is_function, name_of
from ..schedules import Gemm
from ..schedules.workloads import Spec
from .readable import candidate_of
from .rows import Row, label_of

FEWEST_DEPTHS: Final = 3
"""Depths of one tile that make a curve."""

DEPTH: Final = "depth_"
"""With this the names of depth curves begin."""

MOST_POINTS: Final = 2000

MOST_COLUMNS: Final = 4
"""Workloads of an experiment whose rates are drawn beside each other."""

MOST_LETTERS: Final = 60

Tables: TypeAlias = "dict[str, dict[str, dict[str, Record]]]"
"""Of each experiment, of each variant, the record of each workload."""


def distinct(stems: Sequence[str]) -> list[str]:
    """Stems of files, numbered from the second on where they are alike."""
    seen = Counter[str]()
    made = []
    for stem in stems:
        seen[stem] += 1
        made.append(stem if seen[stem] == 1 else f"{stem}_{seen[stem]}")
    return made


def charts_of(rows: Sequence[Row], machine: str) -> list[Chart]:
    """Every chart that there is data for."""
    made = [_speed(rows, machine), _prediction(rows, machine)]
    return [chart for chart in made if chart is not None] + depth_curves(rows)


def depth_curves(rows: Sequence[Row]) -> list[Chart]:
    """Time over depth of each workload's tile of which most depths were measured."""
    charts = []
    for row in rows:
        curves: dict[str, dict[int, Record]] = {}
        for record in row.ours:
            candidate = candidate_of(record)
            depth = None if candidate is None else candidate.request.depth
            if candidate is not None and isinstance(depth, int):
                request = dataclasses.replace(candidate.request, depth="auto")
                same = dataclasses.replace(candidate, request=request).to_json()
                curves.setdefault(same, {})[depth] = record
        curve = max(curves.values(), key=len, default={})
        if len(curve) < FEWEST_DEPTHS:
            continue
        depths = sorted(curve)
        measured = tuple((float(at), curve[at].us) for at in depths)
        predicted = tuple(
            (float(at), curve[at].predicted_us) for at in depths if curve[at].predicted_us
        )
        series = [Series("measured", measured), Series("predicted", predicted)]
        charts.append(
            Chart(
                f"{DEPTH}{row.spec.name}",
                row.label,
                "lines",
                "slots",
                "us",
                tuple(one for one in series if one.points),
                width=340,
                height=230,
            )
        )
    names = distinct([chart.name for chart in charts])
    return [dataclasses.replace(chart, name=name) for chart, name in zip(charts, names)]


def experiment_tables(records: Sequence[Record]) -> Tables:
    """Of each experiment, of each variant, the record of each workload, in order."""
    tables: Tables = {}
    for record in sorted(records, key=lambda one: one.made):
        if record.experiment:
            variants = tables.setdefault(record.experiment, {})
            variants.setdefault(record.label, {})[_column(record)] = record
    return tables


def experiment_charts(tables: Tables) -> list[Chart]:
    """Rates of the variants of each experiment that has few workloads, as bars."""
    charts = []
    for (title, variants), name in zip(tables.items(), chart_names(tables)):
        rates: dict[str, list[tuple[float, float]]] = {}
        for at, found in enumerate(variants.values()):
            for column, record in found.items():
                if not record.failure and not is_function(record.workload):
                    flops = workload_of(record.workload).flops()
                    rates.setdefault(column, []).append((float(at), flops / record.us * 1e-6))
        if not 1 <= len(rates) <= MOST_COLUMNS:
            continue
        series = tuple(Series(column, tuple(points)) for column, points in rates.items())
        heading, labels = title.partition(":")[0], tuple(variants)
        charts.append(Chart(name, heading, "bars", "variant", "TFLOP/s", series, labels=labels))
    return charts


def chart_names(experiments: Iterable[str]) -> list[str]:
    """The stems of the files of experiments' charts."""
    plain = (re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_") for title in experiments)
    return distinct([f"experiment_{stem[:MOST_LETTERS]}" for stem in plain])


def _column(record: Record) -> str:
    if is_function(record.workload):
        return name_of(record.workload)
    return column_of(workload_of(record.workload))


def column_of(spec: Spec) -> str:
    """What a table calls a workload whatever its types and layout: a product by its extents."""
    if isinstance(spec, Gemm):
        return f"{spec.m}x{spec.n}x{spec.k}"
    return label_of(spec)


def _speed(rows: Sequence[Row], machine: str) -> Chart | None:
    """Shares of the roofline, ours and the peers'."""
    shown = [row for row in rows if row.best is not None]
    if not shown:
        return None
    names = list(dict.fromkeys(name for row in shown for name in row.peers))
    times = [{OURS: row.best, **row.peers} for row in shown]
    series = tuple(
        Series(
            name,
            tuple(
                (float(at), row.roofline_us / record.us)
                for at, (row, found) in enumerate(zip(shown, times))
                if (record := found.get(name)) is not None
            ),
        )
        for name in (OURS, *names)
    )
    return Chart(
        "speed",
        f"Speed on {machine}",
        "bars",
        "workload",
        "share of the roofline",
        series,
        labels=tuple(row.label for row in shown),
    )


def _prediction(rows: Sequence[Row], machine: str) -> Chart | None:
    """Predicted over measured time of everything that ran."""
    sources: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for record in row.ours:
            if record.predicted_us:
                sources.setdefault(record.source, []).append((record.us, record.predicted_us))
    if not sources:
        return None
    series = tuple(
        Series(name, tuple(points[-MOST_POINTS:])) for name, points in sources.items() if points
    )
    return Chart(
        "predicted",
        f"Predicted against measured on {machine}",
        "points",
        "measured, us",
        "predicted, us",
        series,
        log=True,
        diagonal=True,
        height=460,
    )
