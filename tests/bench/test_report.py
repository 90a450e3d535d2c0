"""Ratios, means, tables and charts of a report, computed from times that are known."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeliner import bench
from pipeliner.bench import Report, tables
from pipeliner.errors import ToolError, WorkloadError
from pipeliner.schedules import Gemm
from tests.refusals import refused

from .makers import known

WIDE = Gemm(64, 32, 48, layout="NN")


@pytest.fixture
def report(torch) -> Report:
    """Ours runs at 0.8, 0.5 and (cuBLAS being broken) nothing of cuBLAS; twice as fast as TVM."""
    made = Report("a stand-in", suite="gemm, float16", rounds=4)
    ours = {"pipeliner": 1.0, "pipeliner,_depth_1": 1.5, "cuBLAS": 0.8, "TVM_stock,_3_slots": 2.0}
    for problem in (
        known("near", **ours, **{"TVM_stock,_4_slots": 2.5}),
        known("far", WIDE, **ours | {"cuBLAS": 0.5, "pipeliner,_depth_1": 1.2}),
        known("alone", pipeliner=1.0),
    ):
        bench.measure([problem], made, rounds=4, say=lambda text: None)
    for depth in (3, 4):
        made.results.append(
            bench.Result("alone", f"TVM stock, {depth} slots", failure="no such schedule")
        )
    made.results.append(bench.Result("alone", "cuBLAS", failure="out of luck"))
    return made


def test_ratios_and_means(report: Report) -> None:
    assert report.problems == ("near", "far", "alone")
    assert report.peers() == ("cuBLAS", "TVM stock", "pipeliner, depth 1")
    assert report.ratio("near", "cuBLAS") == pytest.approx(0.8)
    assert report.ratio("alone", "cuBLAS") is None
    library, stock, gain = report.summaries()
    assert library.geometric_mean == pytest.approx(math.sqrt(0.8 * 0.5))
    assert (library.minimum, library.worst) == (pytest.approx(0.5), "far")
    assert (library.problems, library.missing) == (2, ("alone",))
    assert stock.geometric_mean == pytest.approx(2.0)  # against its best depth
    assert gain.geometric_mean == pytest.approx(math.sqrt(1.5 * 1.2))
    assert gain.missing == ()  # nobody asked for it on 'alone'


def test_the_table_of_a_suite(report: Report) -> None:
    table = tables.suite_table(report)
    assert table.headers == (
        "gemm, float16", "TFLOP/s", "us", "noise", "error", "cuBLAS", "of cuBLAS",
        "TVM stock", "over TVM stock", "depth 1", "gain of the depth",
    )  # fmt: skip
    near, far, alone = table.rows
    assert near[0] == "near"
    assert near[2:4] == ("1000.0", "0.0%")
    assert (near[6], near[8], near[10]) == ("0.800", "2.000", "1.500")
    assert (far[6], far[8], far[10]) == ("0.500", "2.000", "1.200")
    assert alone[5:] == ("-",) * 6
    assert all(len(row) == len(table.headers) for row in table.rows)


def test_what_failed_has_a_line_below_and_no_cell_as_wide_as_its_reason(report: Report) -> None:
    *_, alone = tables.problem_tables(report)
    cells = {row[0]: row[1:] for row in alone.rows}
    assert cells["cuBLAS"] == ("-",) * 6
    assert all(len(row) == len(alone.headers) for row in alone.rows)
    assert "alone: cuBLAS: out of luck" in tables.failure_lines(report)


def test_what_is_said_beside_the_table(report: Report) -> None:
    assert tables.summary_lines(report) == [
        "of cuBLAS: geometric mean 0.632, minimum 0.500 (far), of 2; no ratio for alone",
        "over TVM stock: geometric mean 2.000, minimum 2.000 (near), of 2; no ratio for alone",
        "gain of the depth: geometric mean 1.342, minimum 1.200 (far), of 2",
    ]
    assert tables.failure_lines(report) == [
        "alone: TVM stock: no such schedule",
        "alone: cuBLAS: out of luck",
    ]


def test_noise_is_the_interquartile_range_over_the_median() -> None:
    result = bench.Result("p", "c", us=100.0, low_us=98.0, high_us=103.0)
    assert result.noise == pytest.approx(0.05)
    others = [bench.Result("p", "d", us=100.0, low_us=99.0, high_us=100.0)] * 2
    assert Report("", [result, *others]).noise == pytest.approx(0.01)
    assert Report("").noise == 0


def test_conditions_are_stated(report: Report) -> None:
    report.conditions = bench.Conditions("H100", {"torch": "2.11"}, {"power limit, W": "700"})
    report.sm_clocks = {"near": 1980, "far": 1755}
    report.interrupted = True
    lines = tables.condition_lines(report)
    assert lines[0] == "H100; torch 2.11"
    assert lines[1] == "power limit, W 700, SM clock after each workload 1755 to 1980 MHz"
    assert "medians of 4 rounds" in lines[2]
    assert lines[-1] == "interrupted: what was measured so far"
    report.conditions = bench.Conditions("H100")
    report.sm_clocks = {}
    assert tables.condition_lines(report)[1] == "settings unknown: nvidia-smi does not answer"


def bars(text: str) -> list[tuple[str, float]]:
    """Note and width of every bar of an SVG."""
    space = "{http://www.w3.org/2000/svg}"
    found = []
    for box in ElementTree.fromstring(text).iter(f"{space}rect"):
        note = box.find(f"{space}title")
        if note is not None:
            found.append((str(note.text), float(box.get("width", "0"))))
    return found


def test_the_svg_has_a_bar_for_each_ratio(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    bench.check_chart(str(path))
    bench.draw(report, str(path))
    found = dict(bars(path.read_text()))
    assert list(found) == [
        "near, pipeliner: 0.8",
        "near, pipeliner, depth 1: 0.533",
        "near, TVM stock: 0.4",
        "far, pipeliner: 0.5",
        "far, pipeliner, depth 1: 0.417",
        "far, TVM stock: 0.25",
    ]
    near, *_, worst = found.values()
    assert near / worst == pytest.approx(0.8 / 0.25, abs=0.01)
    assert "geometric mean 0.632, minimum 0.500 (far)" in path.read_text()


@pytest.mark.parametrize("ratio", [0.01, 0.33, 1.0, 1.15, 1.2, 2.35, 5.9, 30.0])
def test_the_axis_holds_every_bar_and_one(torch, ratio: float) -> None:
    made = Report("a stand-in", suite="gemm, float16")
    problem = known("it", pipeliner=1.0, cuBLAS=ratio)
    bench.measure([problem], made, rounds=4, say=lambda text: None)
    chart = bench.ratios(made)
    assert chart is not None
    text = chart.svg()
    (bar,) = bars(text)
    lines = ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}line")
    grid = [float(line.get("x1", "0")) for line in lines if line.get("class") is None]
    (one,) = [float(line.get("x1", "0")) for line in lines if line.get("class") == "one"]
    assert grid[0] + bar[1] <= chart.width
    assert (one - grid[0]) * ratio == pytest.approx(bar[1], abs=0.3 * max(1.0, ratio))
    assert 2 <= len(grid) <= 15


def test_the_png_is_one(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "chart.png"
    bench.draw(report, str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_chart_is_refused_before_anything_is_measured(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused("chart.name", WorkloadError):
        bench.check_chart("chart.pdf")
    with refused("file.no_folder", WorkloadError):
        bench.check_chart(str(tmp_path / "no" / "chart.svg"))
    monkeypatch.setattr("pipeliner.bench.chart.find_spec", lambda name: None)
    with refused("chart.matplotlib", ToolError):
        bench.check_chart(str(tmp_path / "chart.png"))
    with refused("chart.empty", WorkloadError):
        bench.draw(Report("", report.results[-3:]), str(tmp_path / "chart.svg"))
    with refused("file.write", WorkloadError):
        bench.draw(report, str(tmp_path))


def test_matplotlib_waits_until_it_is_drawn_with() -> None:
    pytest.importorskip("matplotlib")
    code = "import sys, pipeliner.bench; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
