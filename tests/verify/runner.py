"""Run many checks on all cores: progress on stderr, a line of counts at the end."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

from pipeliner.peers import tensor_intrinsics

REPORT_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Options:
    """Which part of the work to do, and on how many processes."""

    shard: int
    shards: int
    jobs: int
    limit: int | None

    def part(self, items: Sequence[Any]) -> Sequence[Any]:
        """Every ``shards``-th item from ``shard`` on, so that shards are alike; ``limit`` of them."""
        return items[self.shard :: self.shards][: self.limit]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the work")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--limit", type=int, help="stop after this many items of the shard")


def options_of(args: argparse.Namespace) -> Options:
    shard, shards = map(int, args.shard.split("/"))
    if not 1 <= shard <= shards:
        raise SystemExit(f"expected --shard i/n with 1 <= i <= n, got {args.shard}")
    return Options(shard - 1, shards, args.jobs, args.limit)


def run(title: str, check: Callable[[Any], Counter[str]], items: Sequence[Any], jobs: int) -> bool:
    """Whether ``check``, which returns counts of outcomes, raised for none of the ``items``."""
    counts: Counter[str] = Counter()
    failures = 0
    start = last = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs, tensor_intrinsics) as pool:
        results = pool.imap_unordered(_guarded, zip(repeat(check), items))
        for done, (outcome, failure) in enumerate(results, 1):
            counts += outcome
            if failure:
                failures += 1
                print(failure, flush=True)
            if time.monotonic() - last > REPORT_SECONDS:
                last = time.monotonic()
                line = f"{title}: {done} of {len(items)}, {failures} failed, {last - start:.0f} s"
                print(line, file=sys.stderr, flush=True)
    seconds = time.monotonic() - start
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{title}: {outcomes or 'nothing'}; {failures} failed; {seconds:.0f} s", flush=True)
    return failures == 0


def _guarded(task: tuple[Callable[[Any], Counter[str]], Any]) -> tuple[Counter[str], str]:
    check, item = task
    try:
        return check(item), ""
    except Exception:  # the run goes on; what failed is reported, whatever it is
        return Counter(), f"FAILED {item}\n{traceback.format_exc()}"
