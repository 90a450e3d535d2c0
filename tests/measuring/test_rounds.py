"""The one loop that times: orders, and when it ends."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from pipeliner.measuring import FLUSH_BYTES, READ, WRITTEN, Rounds, flushing, race
from pipeliner.measuring.rounds import LAUNCH_PHASES, timed


def raced(rounds, *us):
    """The orders in which contenders ran that take so long, and their times."""
    orders, times = [], [[] for _ in us]

    def run_round(order):
        orders.append(list(order))
        return [us[at] for at in order]

    race(run_round, times, rounds)
    return orders, times


def test_orders_rotate_and_warming_up_is_not_timed() -> None:
    orders, times = raced(Rounds(4, warm_up=2), 1.0, 2.0)
    assert orders == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1], [1, 0]]
    assert times == [[1.0] * 4, [2.0] * 4]


def test_each_round_has_an_order_of_its_own() -> None:
    """A long kernel's clock depends on the one before it, which is not to be the same each time."""
    orders, _ = raced(Rounds(8, shuffled=True), *[1.0] * 6)
    after = [set(itertools.pairwise(order)) for order in orders]
    assert len(set.union(*after)) > 20  # of 30 pairs of neighbours; 6 if only rotated


@pytest.mark.parametrize(
    ("rounds", "count"),
    [
        (Rounds(30, seconds=0.0), 5),
        (Rounds(30, fewest=3, seconds=0.0), 3),
        (Rounds(2, seconds=0.0), 2),
        (Rounds(30, hopeless=1.1), 5),
        (Rounds(30, hopeless=2.5), 30),
    ],
)
def test_it_ends_early_but_for_the_fewest(rounds, count) -> None:
    _, times = raced(rounds, 2.0, 1.0)
    assert [len(one) for one in times] == [count, count]


def test_an_interrupt_leaves_what_was_measured() -> None:
    times: list[list[float]] = [[]]

    def run_round(order):
        if len(times[0]) == 7:
            raise KeyboardInterrupt
        return [1.0]

    with pytest.raises(KeyboardInterrupt):
        race(run_round, times, Rounds())
    assert times == [[1.0] * 7]


def test_nobody_is_timed_at_once() -> None:
    assert raced(Rounds()) == ([], [])


def test_the_cache_is_left_with_what_was_written_or_read() -> None:
    done: list[tuple[str, int]] = []

    class Memory:
        def __init__(self, count: int, dtype: str, device: str) -> None:
            self.bytes = count * 4

        def zero_(self) -> None:
            done.append(("written", self.bytes))

        def sum(self, dim: int, *, keepdim: bool) -> None:
            done.append(("read", self.bytes))

    torch = SimpleNamespace(empty=Memory, float32="float32")
    for kind, leaves in ((WRITTEN, ["written"]), (READ, ["written", "read"])):
        flush, launches = flushing(torch, kind), list[int]()
        for _ in range(40):
            done.clear()
            flush()
            *drawn, _ = (size for what, size in done if what == "written")
            assert done[len(drawn) :] == [(what, FLUSH_BYTES) for what in leaves]
            assert max(drawn, default=0) < 64
            launches.append(len(drawn))
        assert set(launches) == set(range(LAUNCH_PHASES))


@pytest.mark.parametrize("primed", [False, True])
def test_a_kernel_finds_its_code_where_it_ran_just_before(primed: bool) -> None:
    did: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            did.append("event")

        def elapsed_time(self, other: Event) -> float:
            return 0.002

    cuda = SimpleNamespace(Event=Event, synchronize=lambda: did.append("wait"))
    torch = SimpleNamespace(cuda=cuda)
    calls = [lambda name=name: did.append(name) for name in "ab"]
    assert timed(torch, calls, lambda: did.append("flush"), primed=primed) == [2.0, 2.0]
    ahead = {"a": ["a"], "b": ["b"]} if primed else {"a": [], "b": []}
    once = [[*ahead[name], "flush", "event", name, "event", "wait"] for name in "ab"]
    assert did == [*once[0], *once[1], "wait"]
    did.clear()
    timed(torch, calls)  # back to back: nothing waits in between
    assert did == ["event", "a", "event", "event", "b", "event", "wait"]
