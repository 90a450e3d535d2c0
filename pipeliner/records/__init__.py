"""What was measured, kept in one file: every sample of every kernel that was tried.

    with Records("tuned.sqlite") as records:
        records.add(Record(workload, machine, versions, candidate, samples=(190.1, 189.8)))
        records.best(workload, machine, versions)

The file is SQLite's, in WAL mode and written through to the disk, so that any number of processes
may write at once and what ``add`` has returned from survives whatever happens to them.
"""

from .opening import APPLICATION_ID, SCHEMA_VERSION
from .record import OURS, Record
from .store import Records

__all__ = ["APPLICATION_ID", "OURS", "SCHEMA_VERSION", "Record", "Records"]
