"""A process that adds records until it is ended, and says of each that it is on the disk.

As a program: PATH, the writer's name, and for how many seconds.
"""

from __future__ import annotations

import sys
import time

from pipeliner.records import Record, Records

PLAN = "p" * 7000  # about as long as the plan of a GEMM


def main(path: str, name: str, seconds: str) -> None:
    end = time.monotonic() + float(seconds)
    with Records(path) as records:
        at = 0
        while time.monotonic() < end:
            records.add(Record("w", "m", "v", f"{name}.{at}", samples=(1.0 + at,), plan=PLAN))
            print(at, flush=True)
            at += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
