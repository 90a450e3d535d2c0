"""Records of candidates by the names that a log has for them."""

from __future__ import annotations

import dataclasses

from pipeliner.machine import H100
from pipeliner.records import Record
from pipeliner.records.candidate import Candidate, workload_key
from pipeliner.records.log import AGAIN
from pipeliner.records.names import named_candidate
from pipeliner.schedules.suites import named


def candidate(name: str, label: str = "sq1024") -> Candidate:
    return named_candidate(name, named(label, "float16"), H100)


def record(name: str, us: float = 1.0, label: str = "sq1024", **values) -> Record:
    key, tried = workload_key(named(label, "float16")), candidate(name, label).to_json()
    samples = () if "failure" in values else (us,)
    return Record(key, "h100", "", tried, samples=samples, source="record", made=0.0, **values)


def again(name: str, us: float) -> Record:
    return dataclasses.replace(record(name, us), label=AGAIN)
