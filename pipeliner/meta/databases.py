"""Carry what was measured between meta_schedule's databases and our records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from ..errors import PipelinerError
from ..records import OURS, Record, Records
from ..records.candidate import Candidate, machine_key, versions_key, workload_key, workload_of
from ..records.functions import Knobs
from .workload import annotate, candidate_of, replays, spec_of, target, workload

SOURCE: Final = "meta_schedule"


def import_database(database: Any, db: str | Path) -> int:
    """Add the timed records of a meta_schedule database to the records ``db``; how many.

    Those of other spaces than ours are left out: ``pipeliner.build`` could not build them. So are
    those of GPUs that are not described, and traces that do not apply.
    """
    found = [_record(one) for one in database.get_all_tuning_records()]
    kept = [record for record in found if record is not None]
    with Records(db) as records:
        known = {(one.workload, one.candidate, one.samples) for one in records.find(plans=False)}
        new = [one for one in kept if (one.workload, one.candidate, one.samples) not in known]
        records.add(*new)
    return len(new)


def export_database(db: str | Path, database: Any) -> int:
    """Commit every timed record of ours in ``db`` to a meta_schedule database; how many.

    Those that no trace replays are left out, such as of split reductions.
    """
    with Records(db, create=False) as records:
        timed = [one for one in records.find() if one.contender == OURS and not one.failure]
    found = [one for one in timed if _is_replayed(one)]
    for record in found:
        mod = workload(workload_of(record.workload))
        database.commit_tuning_record(
            ms.database.TuningRecord(
                trace=_trace(record),
                workload=database.commit_workload(mod),
                run_secs=[us * 1e-6 for us in record.samples],
                target=target(record.machine),
                args_info=ms.arg_info.ArgInfo.from_prim_func(mod["main"]),
            )
        )
    return len(found)


def _is_replayed(record: Record) -> bool:
    tile = Candidate.from_json(record.candidate).tile
    return not isinstance(tile, Knobs) and replays(tile)


def _trace(record: Record) -> Any:
    candidate = Candidate.from_json(record.candidate)
    schedule = candidate.function(workload_of(record.workload))
    annotate(schedule, candidate, [candidate.request], 0)
    return schedule.trace


def _record(one: Any) -> Record | None:
    """Our record of one of theirs; None: it has no time, or is of another space."""
    times = [float(seconds) * 1e6 for seconds in one.run_secs or ()]
    if not times or not all(0 < us < 1e9 for us in times):  # meta_schedule's failures take 1e10 s
        return None
    try:
        spec = spec_of(one.workload.mod)
        schedule = Schedule(one.workload.mod)
        one.trace.apply_to_schedule(schedule, remove_postproc=False)
        candidate = candidate_of(schedule)
        machine = machine_key(one.target)
    except (PipelinerError, RuntimeError):  # TVM's, of a trace
        return None
    return Record(
        workload_key(spec),
        machine,
        versions_key(),
        candidate.to_json(),
        samples=tuple(times),
        source=SOURCE,
        trace=json.dumps(_plain(one.trace.as_json())),
    )


def _plain(value: Any) -> Any:
    """TVM's arrays and strings as Python's, for JSON."""
    if isinstance(value, (str, bytes)):
        return str(value)
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "__iter__"):
        return [_plain(part) for part in value]
    return value.value  # an IntImm or a FloatImm
