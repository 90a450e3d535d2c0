"""Which cases of a test run: a part of them, the same at any time, spread over the parameters."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tests.parts import chosen


@dataclass(eq=False)
class Item:
    """What is looked at of a test of pytest's."""

    nodeid: str
    callspec: Any
    one_in: int | None
    deep: bool = False

    def get_closest_marker(self, name: str) -> Any:
        if name == "deep":
            return self.deep or None
        assert name == "part"
        return None if self.one_in is None else SimpleNamespace(args=(self.one_in,))


def items(test: str, one_in: int | None, cases: list[dict[str, Any]]) -> list[Any]:
    return [
        Item(f"tests/test_it.py::{test}[{number}]", SimpleNamespace(params=params), one_in)
        for number, params in enumerate(cases)
    ]


@dataclass(frozen=True)
class Shape:
    m: int
    n: int


@pytest.fixture(params=["parameters", "a dataclass"])
def product(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    pairs = itertools.product(range(4), range(3))
    if request.param == "parameters":
        return [{"m": m, "n": n} for m, n in pairs]
    return [{"shape": Shape(m, n)} for m, n in pairs]


def values(found: list[Any]) -> set[tuple[str, int]]:
    named = [one.callspec.params.get("shape") or Shape(**one.callspec.params) for one in found]
    return {("m", shape.m) for shape in named} | {("n", shape.n) for shape in named}


def test_each_value_is_in_a_part(product: list[dict[str, Any]]) -> None:
    found = chosen(items("test_product", 3, product))
    assert len(found) == 4
    assert len(values(found)) == 4 + 3


def test_the_part_is_the_same_in_any_order(product: list[dict[str, Any]]) -> None:
    given = items("test_product", 2, product)
    assert {one.nodeid for one in chosen(given)} == {one.nodeid for one in chosen(given[::-1])}


def test_what_is_not_marked_runs_and_tests_do_not_mix() -> None:
    whole = items("test_whole", None, [{"n": n} for n in range(5)])
    halved = items("test_halved", 2, [{"n": n} for n in range(5)])
    found = chosen([*whole, *halved])
    assert found[:5] == whole
    assert len(found) == 5 + 3
    assert [one for one in halved if one in found] == found[5:]


def test_a_deep_test_runs_where_it_is_asked_for() -> None:
    whole = items("test_whole", None, [{"n": n} for n in range(2)])
    deep = [Item("tests/test_it.py::test_deep", None, None, deep=True)]
    assert chosen([*whole, *deep]) == whole
    assert chosen([*whole, *deep], deep=True) == [*whole, *deep]
