"""Tests that take long: ``make test`` runs a part of their cases, or none; ``make verify-all`` all.

    @pytest.mark.part(3)                about one case in three
    @pytest.mark.deep("test_of_units")  none; what is named covers it in ``make test``

They are taken so that they have as many values of each parameter as can be, and then as many pairs
of values; among equal ones their names decide, so that they are always the same. Fields of a case
that is a dataclass count as parameters. A case that is named by its id runs.

Where each case is the only one of its kind, a form that code of its own emits, all must run: a wrong
transposition of one layout of registers was seen by one case of sixteen.
"""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

Value = tuple[str, Hashable]


def chosen(items: Sequence[pytest.Item], *, deep: bool = False) -> list[pytest.Item]:
    """``items`` in their order, without what is left to ``make verify-all``; with ``deep`` tests or not."""
    of_test: dict[Any, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("part") is not None:
            of_test[item.nodeid.partition("[")[0]].append(item)
    left_out = {item for cases in of_test.values() for item in set(cases) - set(part_of(cases))}
    if not deep:
        left_out.update(item for item in items if item.get_closest_marker("deep") is not None)
    return [item for item in items if item not in left_out]


def part_of(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The cases of one test that run."""
    (one_in,) = cases[0].get_closest_marker("part").args
    left = {case: _values(case) for case in sorted(cases, key=_drawn)}
    counts = defaultdict(set)
    for values in left.values():
        for name, value in values:
            counts[name].add(value)
    # What is different in each case is the case.
    left = {
        case: [(name, value) for name, value in values if len(counts[name]) < len(cases)]
        for case, values in left.items()
    }
    single = {value for values in left.values() for value in values}
    pairs = {pair for values in left.values() for pair in itertools.combinations(values, 2)}
    taken: list[pytest.Item] = []
    while len(taken) * one_in < len(cases):
        best = max(left, key=lambda case: _gain(left[case], single, pairs))
        taken.append(best)
        single.difference_update(left[best])
        pairs.difference_update(itertools.combinations(left.pop(best), 2))
    return taken


def _gain(values: list[Value], single: set[Value], pairs: set[tuple[Value, Value]]) -> Any:
    return len(single.intersection(values)), len(pairs & {*itertools.combinations(values, 2)})


def _values(case: Any) -> list[Value]:
    return [*_named(case.callspec.params)]


def _named(params: dict[str, Any]) -> Iterator[Value]:
    for name, value in params.items():
        if is_dataclass(value) and not isinstance(value, type):
            inner = {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
            yield from _named(inner)
        else:
            yield name, value if _is_plain(value) else id(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _drawn(case: pytest.Item) -> int:
    return zlib.crc32(case.nodeid.encode())
