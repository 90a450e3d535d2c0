"""Run many checks on all cores: progress on stderr, a line of counts at the end.

Whoever watches learns what takes long: a batch that has been running for a minute is named, and so
is a failure that is still being shrunk, and a process that ended without an answer. ^C ends the
run; what failed until then is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, Final

REPORT_SECONDS: Final = 30
"""Between two lines of progress."""

SILENT_SECONDS: Final = 60
"""Of one item, after which it is named; again each time that it has taken twice as long."""

_LOOK_SECONDS: Final = 1.0
INTERRUPTED: Final = 130
"""Exit status of a shell's command that ^C ended."""


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


def prepared() -> None:
    """Load what nearly every check needs."""
    from pipeliner.bench.peers import tensor_intrinsics  # and with it TVM, which takes seconds

    tensor_intrinsics()


def run(
    title: str,
    check: Callable[[Any], Counter[str]],
    items: Sequence[Any],
    jobs: int,
    silent: float = SILENT_SECONDS,
    prepare: Callable[[], object] = prepared,
) -> bool:
    """Whether ``check``, which returns counts of outcomes, raised for none of the ``items``.

    ``silent``: seconds after which an item that is still running is named. ``prepare``: what each
    process does first. SystemExit: ^C.
    """
    watch = _Watch(title, len(items), silent)
    context = multiprocessing.get_context("spawn")
    notes = context.SimpleQueue()
    with context.Pool(jobs, _begin, (notes, prepare)) as pool:
        results = pool.imap_unordered(_guarded, zip(count(), repeat(check), items))
        try:
            while watch.done < len(items):
                with contextlib.suppress(multiprocessing.TimeoutError):
                    watch.ended(*results.next(_LOOK_SECONDS))
                while not notes.empty():
                    watch.note(*notes.get())
                watch.look()
        except KeyboardInterrupt:
            watch.summary(f"interrupted at {watch.done} of {len(items)}")
            raise SystemExit(INTERRUPTED) from None
    watch.summary()
    return watch.failures == 0


def found(failure: str) -> None:
    """Tell whoever watches of a failure before its check ends, such as one that is being shrunk."""
    _HERE.tell(failure=failure)


def doing(what: str) -> None:
    """Tell whoever watches what the check of this process does now, in case that has no end."""
    _HERE.tell(doing=what)


@dataclass(slots=True)
class _Here:
    """What a process of a run works on, by its number, and where it tells what it does."""

    notes: Any = None
    number: int = 0

    def tell(self, **news: Any) -> None:
        """Fields of ``_Running`` as they are now."""
        if self.notes is not None:
            self.notes.put((self.number, news))


_HERE: Final = _Here()


@dataclass
class _Running:
    """An item that ``process`` works on, and what is told of it.

    ``failure``: the first that was found. ``said``: seconds after which a line was last printed.
    ``gone``: since when the process is; its last result may be under way.
    """

    since: float
    item: str = ""
    process: int = 0
    doing: str = ""
    failure: str = ""
    said: float = 0.0
    gone: float | None = None


class _Watch:
    """What is known of a run while it goes on, and the lines that say so."""

    def __init__(self, title: str, items: int, silent: float) -> None:
        self.title, self.items, self.silent = title, items, silent
        self.failures = 0
        self.counts: Counter[str] = Counter()
        self.start = self.last = time.monotonic()
        self._running: dict[int, _Running] = {}
        self._ended: set[int] = set()

    @property
    def done(self) -> int:
        """Items that have ended."""
        return len(self._ended)

    def note(self, number: int, news: dict[str, Any]) -> None:
        """What is told of an item by the process that works on it."""
        if number in self._ended:
            return
        one = self._running.setdefault(number, _Running(time.monotonic()))
        first = "failure" in news and not one.failure
        for name, value in news.items():
            if name != "failure" or first:
                setattr(one, name, value)
        if first:
            self._say(f"{one.item} fails, which is being shrunk:\n{one.failure}")

    def ended(self, number: int, outcome: Counter[str], failure: str) -> None:
        """The result of an item."""
        self._running.pop(number, None)
        if number in self._ended:
            return
        self._ended.add(number)
        self.counts += outcome
        if failure:
            self.failures += 1
            print(failure, flush=True)

    def look(self) -> None:
        """Say how far the run is, which items take long, and which will never end."""
        now = time.monotonic()
        for number, one in list(self._running.items()):
            took = now - one.since
            if not _is_alive(one.process):
                one.gone = one.gone or now
                if now - one.gone < 2 * _LOOK_SECONDS:
                    continue
                self.ended(number, Counter(), f"FAILED {one.item}\nits process died\n{one.failure}")
            elif took > max(self.silent, 2 * one.said):
                one.said = took
                why = "a failure is being shrunk" if one.failure else one.doing or "no failure yet"
                self._say(f"{one.item}: {took:.0f} s, still running; {why}")
        if now - self.last > REPORT_SECONDS:
            self.last = now
            done = f"{self.done} of {self.items}, {self.failures} failed"
            self._say(f"{done}, {now - self.start:.0f} s")

    def summary(self, *ends: str) -> None:
        """The line of counts, behind what was found of items that have not ended."""
        for one in self._running.values():
            if one.failure:
                self.failures += 1
                print(f"FAILED {one.item}, not shrunk to the end\n{one.failure}", flush=True)
        outcomes = ", ".join(f"{number} {name}" for name, number in sorted(self.counts.items()))
        seconds = f"{time.monotonic() - self.start:.0f} s"
        parts = (outcomes or "nothing", f"{self.failures} failed", *ends, seconds)
        print(f"{self.title}: {'; '.join(parts)}", flush=True)

    def _say(self, text: str) -> None:
        print(f"{self.title}: {text}", file=sys.stderr, flush=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _begin(notes: Any, prepare: Callable[[], object]) -> None:
    """A process of a run: ^C is for the one that watches."""
    _HERE.notes = notes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()


def _guarded(task: tuple[int, Callable[[Any], Counter[str]], Any]) -> tuple[int, Counter[str], str]:
    number, check, item = task
    _HERE.number = number
    _HERE.tell(item=str(item), process=os.getpid())
    try:
        return number, check(item), ""
    except Exception:  # the run goes on; what failed is reported, whatever it is
        return number, Counter(), f"FAILED {item}\n{traceback.format_exc()}"
