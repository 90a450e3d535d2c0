"""From records to what is shown of them: rows, charts, tables."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..diagnostics import Reason
from ..errors import PipelinerError, RecordsError
from ..instructions.dtypes import element_bytes
from ..machine import Machine
from ..records import OURS, Record
from ..records.candidate import Candidate, workload_of
from ..records.functions import is_function, name_of
from ..schedules import Gemm, GemmTile
from ..schedules.suites import label_of as suite_label
from ..schedules.workloads import Spec
from .charts import Chart, Series

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


@dataclass(frozen=True, slots=True)
class Row:
    """A workload on one GPU: the fastest of ours, each peer's, and all that was tried."""

    spec: Spec
    label: str
    machine: Machine
    records: tuple[Record, ...]

    @property
    def ours(self) -> tuple[Record, ...]:
        """Our candidates that ran, and have a time."""
        return tuple(one for one in self.records if one.contender == OURS and not one.failure)

    @property
    def best(self) -> Record | None:
        """The fastest of ours."""
        return min(self.ours, key=lambda one: one.us, default=None)

    @property
    def peers(self) -> dict[str, Record]:
        """The fastest of each peer's."""
        found: dict[str, Record] = {}
        for one in self.records:
            if one.contender != OURS and not one.failure:
                known = found.get(one.contender)
                found[one.contender] = one if known is None or one.us < known.us else known
        return found

    @property
    def failures(self) -> tuple[Record, ...]:
        """What has no time."""
        return tuple(one for one in self.records if one.failure)

    @property
    def roofline_us(self) -> float:
        """The least time: all arithmetic at the peak rate, or all operands and results once."""
        return max(
            self.spec.flops() / peak_flops(self.spec, self.machine) * 1e6,
            bytes_of(self.spec) / self.machine.dram_bytes_per_second * 1e6,
        )

    def tflops(self, us: float) -> float:
        """The rate of a run of ``us`` microseconds."""
        return self.spec.flops() / us * 1e-6


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function of the user's on one GPU: all that was tried. Nobody counts its operations."""

    label: str
    records: tuple[Record, ...]

    @property
    def ours(self) -> tuple[Record, ...]:
        """The candidates that ran, and have a time."""
        return tuple(one for one in self.records if not one.failure)

    @property
    def best(self) -> Record | None:
        """The fastest."""
        return min(self.ours, key=lambda one: one.us, default=None)

    @property
    def failures(self) -> tuple[Record, ...]:
        """What has no time."""
        return tuple(one for one in self.records if one.failure)


def peak_flops(spec: Spec, machine: Machine) -> float:
    """Operations a second of the fastest instruction for the workload's operands."""
    rates = [machine.mma(spec.types.dtype), machine.wgmma(spec.types.dtype)]
    each = max((rate.ops_per_cycle for rate in rates if rate), default=2 * machine.fp32_per_cycle)
    if spec.types.dtype == "float32":
        each = 2 * machine.fp32_per_cycle  # exact: no tensor cores
    return each * machine.sms * machine.clock_ghz * 1e9


def bytes_of(spec: Spec) -> int:
    """Of all operands and the result, each once."""
    *inputs, out = spec.shapes()
    kinds = (spec.storage, getattr(spec, "weights", "") or spec.storage)
    operands = sum(math.prod(one) * element_bytes(kind) for one, kind in zip(inputs, kinds))
    others = sum(math.prod(shape) for shape in (*inputs[2:], out)) * element_bytes(spec.out)
    return operands + others


def sifted(
    records: Sequence[Record], machines: Mapping[str, Machine]
) -> tuple[list[Record], Mapping[Reason, int]]:
    """The records that can be shown, and how many others there are, by reason.

    ``machines``: those that are described, by key.
    """
    shown, others = list[Record](), Counter[Reason]()
    known: dict[tuple[str, str], Reason | None] = {}
    for record in records:
        key = (record.machine, record.workload)
        if key not in known:
            known[key] = _obstacle(record, machines)
        timed = record.contender == OURS and not record.failure
        obstacle = known[key]
        if obstacle is not None:
            others[obstacle] += 1
        elif timed and _candidate(record) is None:
            others[Reason("report.candidate")] += 1
        else:
            shown.append(record)
    return shown, others


def _obstacle(record: Record, machines: Mapping[str, Machine]) -> Reason | None:
    """Why nothing of a record's machine and workload can be shown; None: it can."""
    if record.machine not in machines:
        return Reason("report.machine", choices=tuple(machines), machine=record.machine)
    if is_function(record.workload):
        return None
    try:
        workload_of(record.workload)
    except PipelinerError as err:  # of a later version
        return err.reason
    return None


def predicted(records: Sequence[Record], machine: Machine) -> list[Record]:
    """``records`` of ``machine`` with what the model predicts of each candidate today."""
    found = {(one.workload, one.candidate): one for one in records}
    times = {key: _prediction_of(one, machine) for key, one in found.items()}
    return [
        dataclasses.replace(one, predicted_us=times[one.workload, one.candidate]) for one in records
    ]


def _prediction_of(record: Record, machine: Machine) -> float:
    """0 where the model says nothing, or refuses the candidate today."""
    candidate = _candidate(record)
    try:
        if candidate is not None and isinstance(candidate.tile, GemmTile):
            return candidate.plan(workload_of(record.workload), machine).predicted_us
    except PipelinerError:
        pass
    return 0.0


def distinct(stems: Sequence[str]) -> list[str]:
    """Stems of files, numbered from the second on where they are alike."""
    seen = Counter[str]()
    made = []
    for stem in stems:
        seen[stem] += 1
        made.append(stem if seen[stem] == 1 else f"{stem}_{seen[stem]}")
    return made


def rows_of(records: Sequence[Record], machine: Machine) -> list[Row]:
    """The records by workload, in the order in which workloads were first tried.

    ``records``: of one ``machine`` and versions. RecordsError: a workload that is none of ours.
    Functions have rows of their own.
    """
    return [
        Row(spec := workload_of(key), label_of(spec), machine, tuple(found))
        for key, found in _by_workload(records).items()
        if not is_function(key)
    ]


def function_rows(records: Sequence[Record]) -> list[FunctionRow]:
    """The records of functions of the user's, in the order in which they were first tried."""
    return [
        FunctionRow(name_of(key), tuple(found))
        for key, found in _by_workload(records).items()
        if is_function(key)
    ]


def _by_workload(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.workload, []).append(record)
    return groups


def label_of(spec: Spec) -> str:
    """The name of a workload in its suite, or else a product's extents, types and layout."""
    known = suite_label(spec)
    if known is not None:
        return known if spec.types.dtype == "float16" else f"{known} {spec.types.suffix}"
    if isinstance(spec, Gemm) and spec.batch is None and not spec.epilogue:
        return f"{spec.m}x{spec.n}x{spec.k} {spec.types.suffix} {spec.layout}"
    return spec.name


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
            candidate = _candidate(record)
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


def _candidate(record: Record) -> Candidate | None:
    try:
        return Candidate.from_json(record.candidate)
    except RecordsError:
        return None
