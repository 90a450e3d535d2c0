"""The search for a modulo schedule on numbers: every arc and pipe is met, and no bound is too low."""

from __future__ import annotations

from typing import Any

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeliner.passes.schedule.modulo_search import Arc, ModuloProblem, rec_mii, res_mii, schedule


@st.composite
def problems(draw: Any) -> ModuloProblem:
    size = draw(st.integers(1, 9))
    busy = tuple(draw(st.integers(0, 12)) for _ in range(size))
    pipes = tuple(draw(st.sampled_from(["a", "b", "c"])) for _ in range(size))
    arcs = []
    for _ in range(draw(st.integers(0, 2 * size))):
        u, v = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
        distance = draw(st.integers(0, 2)) if u < v else draw(st.integers(1, 3))
        arcs.append(Arc(u, v, draw(st.integers(0, 40)), distance))
    return ModuloProblem(pipes, busy, tuple(arcs))


@settings(max_examples=200, deadline=None)
@given(problems())
def test_search_meets_every_arc_and_pipe(problem: ModuloProblem) -> None:
    interval, starts = schedule(problem)
    assert interval >= max(res_mii(problem)[0], rec_mii(problem))
    assert all(
        starts[arc.dst] + interval * arc.distance >= starts[arc.src] + arc.delay
        for arc in problem.arcs
    )
    for pipe in set(problem.pipes):
        used: set[int] = set()
        for i, start in enumerate(starts):
            cycles = {(start + c) % interval for c in range(problem.busy[i])}
            if problem.pipes[i] == pipe:
                assert not used & cycles
                used |= cycles


@settings(max_examples=100, deadline=None)
@given(problems())
def test_recurrence_bound_is_the_slowest_cycle(problem: ModuloProblem) -> None:
    graph = nx.MultiDiGraph()
    for arc in problem.arcs:
        graph.add_edge(arc.src, arc.dst, delay=arc.delay, distance=arc.distance)
    slowest = 1
    for cycle in nx.simple_cycles(nx.DiGraph(graph)):
        hops = [graph[u][v].values() for u, v in zip(cycle, cycle[1:] + cycle[:1])]
        slowest = max(slowest, _ratio(hops))
    assert rec_mii(problem) == slowest


def _ratio(hops: list[Any]) -> int:
    """The greatest ceil(delay / distance) over every choice of parallel arcs."""
    totals = {(0, 0)}
    for options in hops:
        totals = {(d + o["delay"], n + o["distance"]) for d, n in totals for o in options}
    return max(-(-delay // distance) for delay, distance in totals)
