"""Which records a page shows, of whom, and what it says of the others."""

from __future__ import annotations

import dataclasses
import re

import pytest

from pipeliner import cli
from pipeliner.machine import H100 as H100_SXM
from pipeliner.machine import MEASURED, NAMES, MachineFile, write_machine
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, machine_key, versions_key, workload_key
from pipeliner.records.functions import Knobs, function_workload, name_of
from pipeliner.records.log import SHIPPED
from pipeliner.report import report
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.targets import cuda_target
from tests.refusals import told
from tests.tuning.functions import reversing

from .outline import Outline

GEMM = Gemm(512, 512, 512)


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
