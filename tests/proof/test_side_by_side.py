"""Works that know nothing of each other, done side by side in copies of the process."""

from __future__ import annotations

import os
import time
from contextlib import closing

import pytest

from pipeliner.proof.running import branching
from pipeliner.proof.running.branching import side_by_side

AN_HOUR = 3600.0


def _end() -> float:
    return time.perf_counter() + AN_HOUR


def _slow(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


@pytest.mark.parametrize("processors", [1, 2, 16])
def test_what_comes_of_works_is_in_their_order(
    monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    monkeypatch.setattr(branching, "processors", lambda: processors)
    works = [lambda at=at: _slow(at, 0.02 * (5 - at)) for at in range(5)]
    assert list(side_by_side(works, _end())) == list(range(5))


def test_as_many_as_there_are_processors_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "processors", lambda: 4)
    begun = time.perf_counter()
    assert len(set(side_by_side([lambda: (_slow(0, 0.5), os.getpid())] * 4, _end()))) == 4
    assert time.perf_counter() - begun < 1.5


def test_who_asks_for_no_more_stops_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "processors", lambda: 2)
    begun = time.perf_counter()
    with closing(side_by_side([lambda: 1, lambda: _slow(2, 60.0)], _end())) as found:
        assert next(found) == 1
    assert time.perf_counter() - begun < 30.0


def test_what_a_copy_cannot_do_fails_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "processors", lambda: 2)

    def wrong() -> int:
        raise ValueError("this one")

    with pytest.raises(ValueError, match="this one"):
        list(side_by_side([lambda: 1, wrong, lambda: 3], _end()))


def test_where_processes_cannot_be_copied_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "processors", lambda: 2)
    monkeypatch.delattr(os, "fork")
    assert set(side_by_side([os.getpid] * 3, _end())) == {os.getpid()}
