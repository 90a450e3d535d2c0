"""Clocks of classes of threads tell the same as a clock of each thread, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeliner.emulator.base.clocks import Clock, Clocks

THREADS = 12
STEPS = 200
SELF = 2**31 - 2
GROUPS = [np.arange(12), np.arange(6), np.arange(6, 12), np.arange(3), np.array([7]), np.array([0])]
"""Threads that act together; the random ones are others."""


class Dense:
    """A row for each thread, a column for each agent, in three planes: known, fenced, fenced too."""

    def __init__(self) -> None:
        self.state = np.zeros((THREADS, 4, THREADS + 1), np.int64)
        self.state[:, :, THREADS] = -1
        self.keep()

    def keep(self) -> None:
        self.state[np.arange(THREADS), 0, np.arange(THREADS)] = SELF

    def engine(self) -> None:
        self.state = np.concatenate([self.state, np.zeros((THREADS, 4, 1), np.int64)], axis=2)

    def whole(self, clock: Any) -> Any:
        missing = self.state.shape[2] - clock.shape[1]
        return np.concatenate([clock, np.zeros((4, missing), np.int64)], axis=1)

    def release(self, tids: Any, event: int) -> Any:
        clock = self.state[tids].max(axis=0)
        clock[0, tids] = event
        return clock

    def acquire(self, tids: Any, clock: Any) -> None:
        self.state[tids] = np.maximum(self.state[tids], self.whole(clock))
        self.keep()

    def fence(self, tids: Any, event: int, planes: list[int]) -> None:
        known = self.state[tids, 0]
        known[np.arange(len(tids)), tids] = event
        for plane in planes:
            self.state[tids, plane] = np.maximum(self.state[tids, plane], known)


def same(clocks: Clocks, dense: Dense, lives: Any) -> None:
    """Compare all that can be asked."""
    agents = np.arange(dense.state.shape[2])
    every = np.arange(THREADS)
    for plane in range(4):
        found = clocks.known(every[:, None], agents, plane)
        assert (found == dense.state[:, plane]).all()
        assert all((clocks.row(t, plane) == dense.state[t, plane]).all() for t in every)
    assert (clocks.of_threads(every) == dense.state[:, 0, :THREADS]).all()
    assert (clocks.floor(every) == dense.state[:, 0, :THREADS].min(axis=1)).all()
    assert clocks.lowest == dense.state[:, 0, :THREADS].min()
    for engine in agents[THREADS + 1 :]:
        assert (clocks.of_engine(every, engine) == dense.state[:, 0, engine]).all()
        assert (clocks.earlier(every, engine) == dense.state[:, -1, engine]).all()
    least = dense.state[lives][:, :2].min(axis=(0, 1), initial=SELF)
    assert (clocks.covered() == least).all()


@pytest.mark.parametrize("seed", range(6))
def test_classes_tell_what_threads_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clocks, dense = Clocks(THREADS, proxies=True, mixed=True, timed=True), Dense()
    lives = np.ones(THREADS, np.bool_)
    released: list[tuple[Clock, Any]] = [(clocks.blank(), dense.whole(dense.state[0, :, :0]))]
    released[0][1][:, THREADS] = -1
    engines: list[int] = []
    same(clocks, dense, lives)
    for event in range(1, STEPS):
        some = np.flatnonzero(rng.random(THREADS) < 0.3)
        kind = int(rng.integers(12))
        fixed = kind < 9 or not len(some)  # random ones late, so that classes are of many at first
        tids = GROUPS[int(rng.integers(len(GROUPS)))] if fixed or event < STEPS // 2 else some
        at = int(rng.integers(len(released)))
        clock, plain = released[at]
        if kind in (0, 9):
            released.append((clocks.release(tids, event), dense.release(tids, event)))
        elif kind in (1, 10):
            clocks.acquire(tids, clock)
            dense.acquire(tids, plain)
        elif kind in (2, 11):
            clocks.join(tids, event)
            dense.acquire(tids, dense.release(tids, event))
        elif kind == 3:
            spaces, planes = [
                (("shared",), [1]),
                (("global",), [2]),
                (("shared", "global"), [1, 2]),
            ][event % 3]
            clocks.fence(tids, event, spaces=spaces)
            dense.fence(tids, event, planes)
        elif kind == 4 and len(engines) < 6:
            engines.append(clocks.engine())
            dense.engine()
        elif kind == 5 and engines:
            clocks.learn(tids, engines[0], event)
            dense.state[tids, 0, engines[0]] = np.maximum(dense.state[tids, 0, engines[0]], event)
        elif kind == 6 and engines:
            plain = dense.whole(plain)
            plain[:, engines[-1]] = event
            clock.pass_on(engines[-1], event)
            released[at] = clock, plain
        elif kind == 7:
            other, beside = released[int(rng.integers(len(released)))]
            both = np.maximum(dense.whole(plain), dense.whole(beside))
            clocks_both = clocks.merged(clock, other)
            clocks.arrive(clocks_both, tids, event)
            both[0, tids] = np.maximum(both[0, tids], event)
            clocks.precede(clocks_both, tids)
            both[-1] = np.maximum(both[-1], dense.state[tids, -1].max(axis=0))
            released.append((clocks_both, both))
        elif kind == 8:
            common = dense.state[tids].min(axis=0)
            agents = np.arange(common.shape[1])
            assert all((clocks.common(tids).of(agents, p) == common[p]).all() for p in range(4))
            if event > STEPS // 2:
                clocks.end(tids[:1])
                lives[tids[:1]] = False
        same(clocks, dense, lives)
    agents = np.arange(dense.state.shape[2])
    for clock, plain in released:
        assert all((clock.of(agents, p) == dense.whole(plain)[p]).all() for p in range(4))
    for thread in range(THREADS):
        alone = np.array([thread])
        one, own = clocks.common(alone), dense.state[thread]
        assert all((one.of(agents, p) == own[p]).all() for p in range(4))
    assert clocks.columns > 4  # classes have divided


def test_a_digest_tells_apart_which_cta_those_that_ended_were_of() -> None:
    """What is judged in the end is what the threads of one CTA have come to know."""

    def known(who: int) -> Any:
        clocks = Clocks(4, proxies=False, of_cta=2)
        engine = clocks.engine()
        clocks.learn(np.array([who]), engine, 5)
        clocks.end(np.array([0, 2]))
        which, rows = clocks.views(np.array([engine]))
        return rows[which].tolist()

    assert known(0) != known(2)
    assert known(0)[-2:] == known(2)[:-3:-1]
