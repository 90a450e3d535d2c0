"""What the tuner would have found by a log, and that it is enough on the log that ships."""

from __future__ import annotations

import json
import math

import pytest

from pipeliner.cli import main
from pipeliner.commands.lab.replay import CLOSE, replayed
from pipeliner.logs.cases import cases, cases_of
from pipeliner.logs.replay import replay, shares, stopped
from pipeliner.machine import H100
from pipeliner.records.candidate import Candidate
from pipeliner.records.log import SHIPPED
from pipeliner.schedules import GemmTile
from pipeliner.tuning.space import Point
from tests.refusals import told

from .made import record

FLOORS = {16: 0.98, 64: 0.995}
"""Geometric means over all workloads, and of the half that nothing was fitted to."""


def line(*times: float) -> list[Point]:
    return [
        Point(Candidate(GemmTile(16 + at, 16, 16)), us, (at / 4,)) for at, us in enumerate(times)
    ]


def test_each_point_is_tried_once_and_no_more_than_asked() -> None:
    points = line(*(1.0 + at / 100 for at in range(40)))
    order = replay(points, [1.0] * 40, 12)
    assert len(order) == len(set(order)) == 12
    assert order[0] == 0
    assert sorted(replay(points, [1.0] * 40, 99)) == list(range(40))


def test_what_is_under_way_is_chosen_before_anything_is_known() -> None:
    """Half of the trials and the one that is measured; what comes then knows the first time."""
    points = line(*(1.0 + at / 100 for at in range(40)))
    as_said = [point.predicted_us for point in points]
    surprising = [9.0, *as_said[1:]]
    one, other = (replay(points, times, 12) for times in (as_said, surprising))
    assert one[:7] == other[:7]
    assert one[7:] != other[7:]


def test_a_share_is_of_the_best_in_the_log() -> None:
    keys = [f"wgmma/tma 128x128x64 d{depth}" for depth in (1, 2, 3, 4)]
    us = (40.0, 20.0, 10.0, 12.0)
    records = [record(key, time) for key, time in zip(keys, us)]
    (found,) = cases(records, H100).values()
    first = min(range(4), key=lambda at: found[at].plan.predicted_us)
    assert shares(found, (1, 4)) == pytest.approx((10.0 / us[first], 1.0))


def test_it_stops_where_nothing_better_is_left_and_not_before() -> None:
    """Where the model is right it stops soon; where it is off, not without the best."""
    points = line(*(1.0 + at / 10 for at in range(40)))
    right = [point.predicted_us for point in points]
    tried = replay(points, right, 40, stops=True)
    assert 0 in tried
    assert len(tried) < 25
    assert len(replay(points, right, 40)) == 40
    alike = line(*(1.0 + at / 1e4 for at in range(40)))
    assert 39 in replay(alike, [2.0 - at / 25 for at in range(40)], 40, stops=True)


@pytest.mark.parametrize("target", SHIPPED)
def test_what_is_stopped_by_itself_has_the_best_of_a_log(target) -> None:
    _, _, timed = cases_of(None, target)
    ends = [stopped(found) for found in timed.values()]
    assert [share for _, share in ends if share < CLOSE] == []
    assert sum(trials for trials, _ in ends) < 0.6 * sum(map(len, timed.values()))


@pytest.fixture(scope="module")
def found():
    from pipeliner.cli import parser

    return replayed(parser().parse_args(["replay"]))


@pytest.mark.parametrize("trials", FLOORS)
@pytest.mark.deep("the other tests here; regret on the same log in test_shipped.py")
def test_the_best_of_the_shipped_log_is_soon_found(found, trials) -> None:
    at = found["trials"].index(trials)
    assert len(found["workloads"]) >= 19
    for half in ([True, False], [False]):
        some = [one["shares"][at] for one in found["workloads"] if one["fitted"] in half]
        mean = math.exp(sum(map(math.log, some)) / len(some))
        assert mean > FLOORS[trials], found
    assert min(one["shares"][at] for one in found["workloads"]) > 0.95


def test_the_command_prints_a_table(capsys, tmp_path) -> None:
    log = tmp_path / "log.csv"
    lines = SHIPPED["h100"].read_text().splitlines()
    log.write_text("\n".join(lines[:3] + [row for row in lines if row.startswith("decode128,")]))
    assert main(["replay", "--log", str(log)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("48 candidates of 1 workloads on H100")
    assert out[-2].split()[:2] == ["geometric", "mean"]
    assert "of 48 trials" in out[-1]
    assert main(["replay", "--log", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workloads"][0]["candidates"] == 48
    assert main(["replay", "--target", "a100"]) == 1
    told(capsys.readouterr().err, "option.log")
