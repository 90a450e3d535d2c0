"""The page: what it holds, that it is whole, and what a browser makes of it."""

from __future__ import annotations

import csv
import dataclasses
import re
import xml.etree.ElementTree as ElementTree

import pytest

from pipeliner import charts, cli
from pipeliner.errors import WorkloadError
from pipeliner.kernel.building import build_with
from pipeliner.machine import machine_for
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, versions_key, workload_key
from pipeliner.report import report
from pipeliner.report.kernels import view_of
from pipeliner.report.rows import Row
from pipeliner.schedules import Gemm, GemmTile, conv2d
from pipeliner.targets import accelerated, cuda_target
from tests.refusals import refused, told

from .outline import Outline

H100 = accelerated(cuda_target("h100"))
GEMM = Gemm(512, 512, 512)
CONV = conv2d(32, 56, 56, 64, 64, 3, 3, pad=1)
TOO_DEEP = "cannot compile: it needs 294912 bytes of shared memory"
EVIL = "cannot compile: <script>alert(1)</script>"


def made(spec, candidate, us, **values) -> Record:
    plan = build_with(candidate.function(spec), H100, candidate.request).plan
    return Record(
        workload_key(spec),
        "h100",
        versions_key(),
        candidate.to_json(),
        samples=(us, us * 1.01, us * 0.99),
        predicted_us=plan.predicted_us,
        plan=plan.to_json(),
        resources={"registers": 168, "dynamic_shared": plan.smem.bytes},
        conditions={"gpu": "made up in a test", "driver": "580.1"},
        **values,
    )


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    """Depths of a GEMM as an experiment, its peer, a layer of a suite, a failure, an old version."""
    path = tmp_path_factory.mktemp("records") / "r.sqlite"
    key = (workload_key(GEMM), "h100", versions_key())
    with Records(path) as records:
        for depth in (1, 2, 3, 4):
            candidate = Candidate(GemmTile(128, 128, 64), Request(depth=depth, instruction="mma"))
            variant = {"source": "experiment", "experiment": "depths", "label": f"depth {depth}"}
            records.add(made(GEMM, candidate, 20.0 / depth, **variant))
        deep = Candidate(GemmTile(128, 128, 64), Request(depth=9, instruction="mma"))
        variant = {"experiment": "depths", "label": "depth 9", "failure": TOO_DEEP}
        records.add(Record(*key, deep.to_json(), source="experiment", **variant))
        tile = Candidate(GemmTile(128, 128, 64), Request(mechanism="tma", instruction="wgmma"))
        records.add(made(GEMM, tile, 4.5, source="tune"))
        records.add(
            Record(*key, contender="cuBLAS", samples=(4.0,), experiment="depths", label="cuBLAS")
        )
        records.add(Record(*key, "{}", failure=EVIL, source="tune"))
        conv = Candidate.from_json(tile.to_json().replace("GemmTile", "ConvTile"))
        conv = dataclasses.replace(conv, request=Request(instruction="mma"))
        records.add(made(CONV, conv, 30.0, source="tune"))
        old = dataclasses.replace(records.find()[0], versions="pipeliner 0.0.1", made=1.0)
        records.add(dataclasses.replace(old, us=0.001))
    return path


@pytest.fixture(scope="module")
def page(db, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert report(db, path) == [path]
    return path


@pytest.fixture(scope="module")
def outline(page):
    return Outline(page.read_text())


def test_it_is_whole_and_needs_nothing_else(outline):
    assert outline.open == []
    assert outline.count["html"] == outline.count["body"] == 1
    assert all(link.startswith(("#", "data:")) for link in outline.links)
    assert outline.count["script"] == 1
    assert outline.count["meta"] == 3


def test_everything_asked_for_is_on_it(outline, page):
    text = " ".join("".join(outline.text).split())
    for words in (
        "512x512x512 float16 NT",
        "rn50_3x3_56",
        "share of the roofline",
        "Predicted against measured on h100",
        "Time over depth",
        "depths",
        "of cuBLAS",
        "wgmma.m64n128k16.f16.f32",  # an explanation
        'extern "C" __global__',
        "dynamic_shared",
        "What has no time (2)",
        EVIL,
        f"No time:(1) {TOO_DEEP}",
        "0.89 times as fast as cuBLAS over 1 workload",
        "The model's first choice",
        "tile 128x128x64; asked: mechanism tma, instruction wgmma",
        "made up in a test",
        versions_key(),
    ):
        assert words in text, words
    assert "pipeliner 0.0.1" not in text
    rows = re.findall(
        r"<tr><th[^>]*>(depth \d|cuBLAS)</th><td[^>]*>([^<]*)</td></tr>", page.read_text()
    )
    assert dict(rows) == {
        **{f"depth {depth}": f"{20 / depth:.1f}" for depth in (1, 2, 3, 4)},
        "depth 9": "none (1)",
        "cuBLAS": "4.0",
    }
    assert page.read_text().count('<details id="h100-kernel-') == 2
    assert page.read_text().count('class="timeline"') == 2


def test_the_table_of_speed_is_right(outline):
    text = "\n".join(part.strip() for part in outline.text)
    rate = GEMM.flops() / 4.5 * 1e-6
    row = Row("", (), GEMM, machine_for("h100"))
    found = re.search(
        r"512x512x512 float16 NT\n([\d.]+)\n([\d.]+)x\n(\d+)%\n([\d.]+)\n([\d.]+)\n(\d+)\n", text
    )
    assert found.group(1) == "4.5"
    assert float(found.group(2)) == pytest.approx(4.0 / 4.5, abs=0.005)
    assert int(found.group(3)) == round(100 * row.roofline_us / 4.5)
    assert float(found.group(4)) == pytest.approx(rate, abs=0.05)
    assert found.group(6) == "5"


def test_what_is_written_shows_in_a_notebook(db, tmp_path):
    written = report(db, tmp_path / "r & d.html", plots=tmp_path / "p", kernels=0)
    assert str(written) == str(list(written))
    assert repr(written) == (
        f"ReportFiles({str(written[0])!r} and {len(written) - 1} plots: 2 workloads on h100)"
    )
    outline = Outline(written._repr_html_())
    assert outline.open == []
    assert outline.links == [str(written[0])]
    assert "0.89 times as fast as cuBLAS" in "".join(outline.text)


def test_plots_are_files(db, tmp_path):
    pytest.importorskip("matplotlib")
    written = report(db, tmp_path / "r.html", plots=tmp_path / "plots", png=True, kernels=0)
    names = sorted(path.relative_to(tmp_path).as_posix() for path in written)
    stems = ("depth_gemm_512x512x512_float16_nt", "experiment_depths", "predicted", "speed")
    assert names == sorted(
        [
            "r.html",
            *(f"plots/h100/{stem}.{kind}" for stem in stems for kind in ("csv", "png", "svg")),
        ]
    )
    curve = tmp_path / "plots/h100/depth_gemm_512x512x512_float16_nt.csv"
    with curve.open() as file:
        rows = [row for row in csv.DictReader(file) if row["series"] == "measured"]
    assert [(float(row["slots"]), float(row["us"])) for row in rows] == [
        (depth, pytest.approx(20.0 / depth)) for depth in (1, 2, 3, 4)
    ]
    with (tmp_path / "plots/h100/experiment_depths.csv").open() as file:
        rates = {row["variant"]: float(row["TFLOP/s"]) for row in csv.DictReader(file)}
    assert set(rates) == {*(f"depth {depth}" for depth in (1, 2, 3, 4)), "cuBLAS"}
    assert rates["depth 4"] == pytest.approx(GEMM.flops() / 5.0 * 1e-6)
    for path in written:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_reported(db, tmp_path, capsys):
    with refused("file.no_folder", WorkloadError):
        report(db, tmp_path / "none" / "r.html")
    Records(tmp_path / "empty").close()
    with refused("report.empty", WorkloadError):
        report(tmp_path / "empty", tmp_path / "r.html")
    assert cli.main(["report", "--db", str(tmp_path / "missing")]) == 1
    told(capsys.readouterr().err, "records.missing")


def test_why_a_kernel_has_no_timeline_is_said():
    """Of one whose loop is too short to be pipelined."""
    spec = Gemm(128, 128, 64)
    candidate = Candidate(GemmTile(128, 128, 64), Request(instruction="mma"))
    view = view_of(spec, made(spec, candidate, 5.0), "h100", "a")
    assert "No timeline: cannot draw" in view.shown
    assert "<svg" not in view.shown
    assert "__global__" in view.shown


def test_options_that_write_nothing_are_refused(db, tmp_path, capsys, monkeypatch):
    asked = ["report", "--db", str(db), "-o", str(tmp_path / "r.html"), "--kernels"]
    for options, code in (
        (["0", "--png"], "option.png"),
        (["-1"], "option.least"),
    ):
        assert cli.main([*asked, *options]) == 1
        told(capsys.readouterr().err, code)
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    assert cli.main([*asked, "0", "--png", "--plots", str(tmp_path / "p")]) == 1
    told(capsys.readouterr().err, "report.matplotlib")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_it(db, tmp_path, capsys):
    output = tmp_path / "r.html"
    assert cli.main(["report", "--db", str(db), "-o", str(output), "--kernels", "0"]) == 0
    assert capsys.readouterr().out == f"{output}\n"
