"""The page: what it holds, that it is whole, and what a browser makes of it."""

from __future__ import annotations

import csv
import dataclasses
import html.parser
import re
import xml.etree.ElementTree as ElementTree

import pytest

from pipeliner import charts, cli
from pipeliner.errors import WorkloadError
from pipeliner.kernel.building import build_with
from pipeliner.machine import H100 as H100_SXM
from pipeliner.machine import MEASURED, NAMES, MachineFile, machine_for, write_machine
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, machine_key, versions_key, workload_key
from pipeliner.records.functions import Knobs, function_workload, name_of
from pipeliner.records.log import SHIPPED
from pipeliner.report import report
from pipeliner.report.headline import facts, headline
from pipeliner.report.kernels import view_of
from pipeliner.report.rows import Row, bytes_of, peak_flops
from pipeliner.report.summary import notable, summary_of
from pipeliner.schedules import Gemm, GemmTile, conv2d
from pipeliner.targets import accelerated, cuda_target
from tests.refusals import refused, told
from tests.tuning.functions import reversing

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


class Outline(html.parser.HTMLParser):
    """Tags that are balanced, what is fetched, and the text."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


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


def test_the_roofline_is_the_data_sheets():
    """H100 SXM: 989 TFLOP/s dense fp16; 67 in fp32, at a clock 8 % higher; of 3.35 TB/s 3.03."""
    h100 = machine_for("h100")
    assert peak_flops(GEMM, h100) == pytest.approx(989e12, rel=0.02)
    assert peak_flops(Gemm(64, 64, 64, dtype="fp32"), h100) == pytest.approx(67e12, rel=0.1)
    assert bytes_of(Gemm(16, 32, 64, dtype="int8")) == 16 * 64 + 64 * 32 + 16 * 32 * 4
    thin = Row("", (), Gemm(16, 4096, 4096), h100)
    assert thin.roofline_us == pytest.approx(2 * 4096 * 4096 / 3.03e12 * 1e6, rel=0.02)


def test_strides_leave_out_what_is_not_read():
    """Of 56 rows and columns, 1x1 at a stride of 2 reads 28 each; 3x3 with padding reads all."""
    narrow, wide = (conv2d(32, 56, 56, 256, 512, r, r, stride=2, pad=r // 2) for r in (1, 3))
    written = 32 * 28 * 28 * 512 * 2
    assert bytes_of(narrow) == 32 * 28 * 28 * 256 * 2 + 256 * 512 * 2 + written
    assert bytes_of(wide) == 32 * 56 * 56 * 256 * 2 + 9 * 256 * 512 * 2 + written
    far = conv2d(1, 9, 9, 64, 64, 3, 3, dilation=4)  # rows 0, 4 and 8, one pixel out
    assert bytes_of(far) == (9 + 9 * 64 + 1) * 64 * 2


def row(us: dict[str, tuple[float, float]], peer: float = 0.0, n: int = 512) -> Row:
    """Candidates by name with the times that they took and were predicted, and one timed again."""
    key = ("{}", "h100", "v")
    ours = [
        Record(*key, name, samples=(took,), predicted_us=said)
        for name, (took, said) in us.items()
        for _ in range(2)
    ]
    peers = [Record(*key, contender="cuBLAS", samples=(peer,))] if peer else []
    return Row(f"n {n}", (*ours, *peers), Gemm(512, n, 512), machine_for("h100"))


def test_what_records_come_to():
    """Kernels count once though timed twice; a choice is wrong by what it takes more."""
    good = row({"a": (4.0, 5.0), "b": (8.0, 9.0)}, peer=8.0, n=256)
    bad = row({"a": (10.0, 4.0), "b": (8.0, 8.0)}, peer=4.0)
    found = summary_of([good, bad])
    assert (found.workloads, found.kernels, found.failures) == (2, 4, 0)
    spread = found.peers["cuBLAS"]
    assert spread.mean == pytest.approx(1.0)
    assert (spread.worst, spread.best) == ((bad, 0.5), (good, 2.0))
    assert [(one.row.label, one.regret) for one in found.choices] == [("n 512", 1.25), ("n 256", 1)]
    assert found.regret.worst == (bad, 0.8)
    assert (found.predictions, found.far_off) == (4, 1)
    assert found.error == pytest.approx((0.125 + 0.25) / 2)
    assert notable(found)[:2] == [bad, good]
    assert headline(found) == (
        "1.00 times as fast as cuBLAS over 2 workloads (geometric mean; 0.50 at worst, 2.00 at best)"
    )
    said = facts(found, "a GPU", lambda row: row.label)
    assert "<dt>Worst against cuBLAS</dt><dd><strong>0.50x</strong> n 512</dd>" in said
    assert "<strong>89.4%</strong> of the best measured speed (geometric mean), 80.0% at" in said
    one = facts(summary_of([bad]), "a GPU", lambda row: row.label)
    assert "<dt>Against cuBLAS</dt><dd><strong>0.50x</strong> n 512</dd>" in one
    assert "est against" not in one
    assert "at worst" not in one
    alone = summary_of([row({"a": (4.0, 0.0)})])
    assert (alone.choices, alone.regret, alone.predictions, alone.peers) == ((), None, 0, {})
    assert "of the roofline (geometric mean)" in headline(alone)


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


@pytest.fixture
def mixed(tmp_path):
    """One record to show, and others that cannot be: of a later library, of a GPU unknown here."""
    path = tmp_path / "mixed, of all sorts.sqlite"
    key = (workload_key(GEMM), "h100", versions_key())
    good = Candidate(GemmTile(128, 128, 64), Request(depth=2, instruction="mma")).to_json()
    values = {"samples": (5.0,), "experiment": "a: b", "label": "one"}
    with Records(path) as records:
        records.add(Record(*key, good, **values))
        records.add(Record(*key, good, **values | {"experiment": "A: B/"}))
        records.add(Record('{"kind": "Sorting", "m": 3}', *key[1:], "{}", samples=(0.1,)))
        records.add(Record(key[0], "b300", key[2], good, samples=(0.1,)))
        records.add(Record(*key, "of another version", samples=(0.1,)))
        records.add(Record(*key[:2], "pipeliner 0.0.1", good, samples=(0.1,), made=1.0))
    return path


def test_what_cannot_be_read_is_told_and_the_rest_is_shown(mixed, tmp_path):
    report(mixed, tmp_path / "r.html", kernels=0)
    outline = Outline((tmp_path / "r.html").read_text())
    text = "".join(outline.text)
    hidden = text[text.index("Records that are not shown:") :]
    for words in (
        '1: cannot read workload \'{"kind": "Sorting", "m": 3}\': expected a kind of Gemm',
        "1: expected a machine of gtx1080ti, v100, t4, a100",
        "or the file of 'b300' (--machine)",
        "1: its candidate cannot be read",
        "1: made by other versions than the newest",
    ):
        assert words in hidden, words
    assert re.search(r"512x512x512 float16 NT\s*5\.0", text)
    assert outline.open == []


def test_records_that_cannot_be_read_at_all_are_one_line(tmp_path, capsys):
    with Records(tmp_path / "r") as records:
        records.add(Record("{}", "b300", versions_key(), "{}", samples=(1.0,)))
    assert cli.main(["report", "--db", str(tmp_path / "r"), "-o", str(tmp_path / "r.html")]) == 1
    err = capsys.readouterr().err
    told(err, "report.unreadable", db=str(tmp_path / "r"), count=1)
    told(err, "report.machine", choices=tuple(NAMES), machine="b300")
    assert not (tmp_path / "r.html").exists()


def test_a_machine_of_ones_own_is_shown_by_its_file(tmp_path):
    """Its roofline is its own: half the SMs, half the rate."""
    file = tmp_path / "my machine.json"
    write_machine(file, MachineFile(dataclasses.replace(H100_SXM, name="My GPU", sms=66)))
    target = cuda_target(str(file))
    candidate = Candidate(GemmTile(128, 128, 64), Request(depth=2, instruction="mma"))
    spec = Gemm(4096, 4096, 4096)
    with Records(tmp_path / "r") as records:
        for key in (machine_key(target), "h100"):
            values = {"samples": (1000.0,), "source": "tune"}
            records.add(
                Record(workload_key(spec), key, versions_key(), candidate.to_json(), **values)
            )
    report(tmp_path / "r", tmp_path / "r.html", machine=file)
    text = (tmp_path / "r.html").read_text()
    shares = dict(re.findall(r'<h2 id="(\w+)">.*?data-key="[^"]*">(\d+)%</td>', text, re.DOTALL))
    assert int(shares["mygpu"]) == pytest.approx(2 * int(shares["h100"]), abs=1)
    assert "on My GPU (sm_90" in text  # the plan
    assert "not shown" not in text


def test_calibrating_does_not_change_whose_records_they_are(tmp_path):
    file = tmp_path / "machine.json"
    made = dataclasses.replace(H100_SXM, name=f"{H100_SXM.name}{MEASURED}", global_latency=700)
    write_machine(file, MachineFile(made))
    assert machine_key(cuda_target(str(file))) == machine_key(cuda_target("h100")) == "h100"


def test_experiments_of_like_names_have_files_of_their_own(mixed, tmp_path):
    written = report(mixed, tmp_path / "r.html", plots=tmp_path / "p", kernels=0)
    assert len(set(written)) == len(written)
    names = {path.name for path in written if path.suffix == ".svg"}
    assert names == {"speed.svg", "experiment_a_b.svg", "experiment_a_b_2.svg"}


def test_why_a_kernel_has_no_timeline_is_said():
    """Of one whose loop is too short to be pipelined."""
    spec = Gemm(128, 128, 64)
    candidate = Candidate(GemmTile(128, 128, 64), Request(instruction="mma"))
    view = view_of(spec, made(spec, candidate, 5.0), "h100", "a")
    assert "No timeline: cannot draw" in view.shown
    assert "<svg" not in view.shown
    assert "__global__" in view.shown


def test_many_failures_are_counted_rather_than_listed(tmp_path):
    key = (workload_key(GEMM), "h100", versions_key())
    with Records(tmp_path / "r") as records:
        records.add(*(Record(*key, "{}", failure=f"cannot compile: {at}") for at in range(500)))
    report(tmp_path / "r", tmp_path / "r.html")
    text = "".join(Outline((tmp_path / "r.html").read_text()).text)
    assert "What has no time (500)" in text
    assert "cannot compile: 199" in text
    assert "cannot compile: 200" not in text
    assert "and 300 more" in text


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


def test_a_log_is_reported_as_records_are(tmp_path, capsys):
    """Its times are those of the log, predicted times today's model's."""
    log, path = tmp_path / "log.csv", tmp_path / "report.html"
    lines = SHIPPED["h100"].read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if line.startswith(("#", "decode16,float16"))))
    assert cli.main(["report", "--log", str(log), "--kernels", "0", "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    text = " ".join("".join(Outline(path.read_text()).text).split())
    for words in ("decode16", "Predicted against measured on h100", "NVIDIA H100 80GB HBM3"):
        assert words in text, words
    assert "measured on 1970" not in text


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--target", "h100"], "option.log_target"),
        (["--log", "--db", "r.sqlite"], "option.log_db"),
        (["--log", "--target", "a100"], "option.log"),
    ],
)
def test_a_log_that_is_not_there_is_said(capsys, options, code):
    assert cli.main(["report", *options]) == 1
    told(capsys.readouterr().err, code)


def test_functions_of_the_user_have_a_table_and_columns(tmp_path):
    """Beside workloads, and alone: nobody counts their operations."""
    workload, request = function_workload(reversing(8)), Request(depth=2)
    key = (
        workload.key,
        "h100",
        versions_key(),
        Candidate(Knobs((("rows", 8),)), request).to_json(),
    )
    variant = {"experiment": "own", "label": "depth 2"}
    both, alone = tmp_path / "both", tmp_path / "alone"
    for path in (both, alone):
        with Records(path) as records:
            records.add(Record(*key, samples=(7.25,), source="experiment", **variant))
            records.add(Record(*key, failure="cannot compile: no", source="tune"))
    with Records(both) as records:
        records.add(Record(workload_key(GEMM), *key[1:3], contender="cuBLAS", samples=(4.0,)))
    for path in (both, alone):
        report(path, tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        cells = " ".join("".join(Outline(text).text).split())
        assert name_of(workload.key) in cells
        assert "<td>7.2</td>" in text
        assert "rows 8" in cells
        assert "What has no time (1)" in cells
        assert "Records that are not shown" not in cells
