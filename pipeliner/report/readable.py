"""Which records can be shown, and what the model predicts today of those of a log."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from ..diagnostics import Reason
from ..errors import PipelinerError, RecordsError
from ..machine import Machine
from ..records import OURS, Record
from ..records.candidate import Candidate, workload_of
from ..records.functions import is_function
from ..schedules import GemmTile


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
        elif timed and candidate_of(record) is None:
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
    candidate = candidate_of(record)
    try:
        if candidate is not None and isinstance(candidate.tile, GemmTile):
            return candidate.plan(workload_of(record.workload), machine).predicted_us
    except PipelinerError:
        pass
    return 0.0


def candidate_of(record: Record) -> Candidate | None:
    """None where this version cannot read it."""
    try:
        return Candidate.from_json(record.candidate)
    except RecordsError:
        return None
