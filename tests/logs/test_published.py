"""The published tables, and how far the model's ratios are from theirs."""

from __future__ import annotations

import math

import pytest

from pipeliner.logs.published import TABLES, compare, predicted_us

BUFFERS, STEPS = TABLES


def test_a_row_has_a_time_for_each_size():
    for table in TABLES:
        assert {len(row.us) for row in table.rows} == {len(table.sizes)}
        assert table.base in {row.name for row in table.rows if row.tile is not None}
    assert [row.us[0] / 1e3 for row in BUFFERS.rows] == [42, 35, 32]
    assert STEPS.rows[-1].us == (22.4, 62.5, 333, 2533)


def test_ratios_are_of_predictions_for_the_same_size():
    first, last = STEPS.rows[3], STEPS.rows[-1]
    (cell,) = [c for c in compare(STEPS) if (c.row, c.size) == (last.name, 1024)]
    assert cell.published == pytest.approx(558 / 333)
    times = [predicted_us(row, STEPS.machine, 1024) for row in (first, last)]
    assert cell.predicted == pytest.approx(times[0] / times[1])
    assert cell.difference == pytest.approx(cell.predicted / cell.published - 1)


def test_more_buffers_are_predicted_to_be_faster_as_they_are():
    """One of two steps: on an A100 two buffers gained 20 %, asynchronous copies 9 % more."""
    double, asynchronous = compare(BUFFERS)
    assert 1 < double.predicted <= asynchronous.predicted
    assert abs(double.difference) < 0.3
    assert abs(asynchronous.difference) < 0.3


@pytest.mark.parametrize("size", STEPS.sizes)
def test_larger_thread_tiles_and_two_buffers_are_predicted_to_gain_as_they_do(size):
    cells = {cell.row: cell for cell in compare(STEPS) if cell.size == size}
    # Off: tiles of one output a thread at large sizes, which lose more than bandwidth says.
    for row in ("1-D thread tile", "warp tiled", "double buffered"):
        assert abs(math.log(cells[row].predicted / cells[row].published)) < math.log(1.6), row
    assert cells["double buffered"].predicted > cells["warp tiled"].predicted
    if size >= 512:
        assert cells["shared tiles"].predicted < cells["1-D thread tile"].predicted < 1


def test_times_of_the_last_step_are_near_where_it_fills_the_gpu():
    """Not only ratios: the product of 2048 by the fastest kernel."""
    assert predicted_us(STEPS.rows[-1], STEPS.machine, 2048) == pytest.approx(2533, rel=0.15)
