"""The file of records: what goes in comes out, whoever writes, and what is not ours stays as it is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pipeliner.diagnostics import Reason
from pipeliner.errors import PipelinerError
from pipeliner.records import Record, Records
from tests.refusals import refused
from tests.verify import records_stress

KEY = ("gemm", "h100", "tvm 0.27")


def record(candidate: str = "{}", us: float = 10.0, **values) -> Record:
    return Record(*KEY, candidate, samples=(us,), **values)


def test_every_field_comes_back(tmp_path):
    given = Record(
        *KEY,
        '{"tile": [128, 256, 64]}',
        samples=(3.0, 1.0, 2.5),
        beside=(4.0, 4.5),
        predicted_us=2.25,
        source="tune",
        resources={"registers": 168},
        conditions={"gpu": "NVIDIA H100 80GB HBM3"},
        plan='{"version": 1}',
        trace="[[], []]",
    )
    failed = Record(*KEY, "{}", failure="cannot launch: out of registers")
    coded = Record(*KEY, "{}", failure=Reason("worker.timeout", seconds=0.5))
    with Records(tmp_path / "r") as records:
        records.add(given, failed, coded)
    with Records(tmp_path / "r", create=False) as records:
        assert records.find() == [given, failed, coded]
        assert records.find(plans=False)[0].plan == ""
        assert len(records) == 3
        assert records.keys() == [KEY]
    assert given.us == 2.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"code": "of.tomorrow", "args": {}, "text": "what it says"}', "what it says"),
        ('{"code": "worker.died", "args": {"when": 3}, "text": "what it says"}', "what it says"),
        ('{"code": "worker.died", "args": [3], "text": "what it says"}', "what it says"),
        ('{"code": "worker.died"}', '{"code": "worker.died"}'),
        ('{"code": no JSON', '{"code": no JSON'),
    ],
)
def test_a_failure_of_which_the_code_is_not_known_is_words(tmp_path, text, words):
    with Records(tmp_path / "r") as records:
        records.add(Record(*KEY, "{}", failure=text))
        assert [one.failure for one in records.find()] == [words]


def test_the_best_is_the_fastest_of_its_key(tmp_path):
    with Records(tmp_path / "r") as records:
        records.add(record("slow", 20.0), record("fast", 10.0, plan="p"), record("middle", 15.0))
        records.add(Record("gemm", "a100", "tvm 0.27", "other machine", samples=(1.0,)))
        records.add(Record("gemm", "h100", "tvm 0.28", "other version", samples=(2.0,)))
        records.add(Record(*KEY, "broken", failure="wrong"))
        records.add(Record(*KEY, contender="cuBLAS", samples=(0.5,)))
        best = records.best(*KEY)
        assert (best.candidate, best.us, best.plan) == ("fast", 10.0, "p")
        assert records.best("gemm", "h100").candidate == "other version"
        assert records.best("conv", "h100") is None


def test_all_or_none_of_a_transaction(tmp_path):
    with Records(tmp_path / "r") as records:
        with refused("records.write"):
            records.add(record("a"), record(b"no text", plan=b"p"), record(resources={1: {2}}))
        assert len(records) == 0
        records.add(record("b"))
        assert len(records) == 1


@pytest.mark.parametrize(
    ("values", "code", "args"),
    [
        ({}, "record.failure", {}),
        ({"samples": (1.0,), "failure": "no"}, "record.failure", {}),
        ({"samples": (1.0, 0.0)}, "record.samples", {"least": 0.0}),
        ({"samples": (float("nan"),)}, "record.samples", {}),
        ({"samples": (1.0,), "us": float("inf")}, "record.negative", {"name": "us"}),
        ({"samples": (1.0,), "us": -1.0}, "record.negative", {"name": "us", "value": -1.0}),
        (
            {"samples": (1.0,), "predicted_us": float("nan")},
            "record.negative",
            {"name": "predicted_us"},
        ),
        ({"failure": "no", "conditions": {"mhz": 1980}}, "record.condition", {"name": "mhz"}),
    ],
)
def test_a_record_says_something(values, code, args):
    with refused(code, **args):
        Record(*KEY, "{}", **values)


def foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE records (id)")
    connection.commit()
    connection.close()


def newer_version(path: Path) -> None:
    Records(path).close()
    data = bytearray(path.read_bytes())
    data[60:64] = (99).to_bytes(4, "big")
    path.write_bytes(data)


def truncated(path: Path) -> None:
    filled(path)
    path.write_bytes(path.read_bytes()[:5000])


def overwritten(path: Path) -> None:
    filled(path)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def text(path: Path) -> None:
    path.write_text("not a database\n" * 100)


def empty(path: Path) -> None:
    path.touch()


def filled(path: Path) -> None:
    with Records(path) as records:
        records.add(*[record(str(at), plan="p" * 5000) for at in range(100)])


@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (text, ("records.no_sqlite",)),
        (empty, ("records.no_sqlite",)),
        (foreign_database, ("records.other_database",)),
        (newer_version, ("records.version",)),
        (truncated, ("records.open", "records.read", "records.write")),
        (overwritten, ("records.open", "records.read", "records.write")),
    ],
)
def test_what_is_not_ours_is_refused_in_one_line_and_left_untouched(tmp_path, make, codes):
    path = tmp_path / "r"
    make(path)
    before = path.read_bytes()
    for use in (lambda records: records.find(), lambda records: records.add(record())):
        with pytest.raises(PipelinerError) as raised, Records(path) as records:
            use(records)
        assert "\n" not in str(raised.value)
        assert raised.value.reason.code in codes
        assert raised.value.reason["path"] == str(path)
    assert path.read_bytes() == before


def test_no_file_and_no_place_for_one(tmp_path):
    with refused("records.missing"):
        Records(tmp_path / "r", create=False)
    assert not (tmp_path / "r").exists()
    with refused("records.open"):
        Records(tmp_path / "nowhere" / "r")
    with refused("records.open", why="Is a directory"):
        Records(tmp_path)


READ_ONLY = """
import os, sys
from pipeliner.errors import RecordsError
from pipeliner.records import Records
if os.geteuid() == 0:  # whom no mode stops
    os.setgid(65534)
    os.setuid(65534)
try:
    with Records(sys.argv[1], create=sys.argv[2] == "create") as records:
        print(len(records))
except RecordsError as err:
    print(err)
"""


@pytest.fixture
def folder():
    """One that others than its owner reach, as pytest's are not."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        path = Path(made) / "a folder?"
        path.mkdir()
        yield path
        path.chmod(0o755)


def test_a_read_only_folder_is_read_and_not_written(folder):
    name = "r #1.sqlite"
    with Records(folder / name) as records:
        records.add(record("a"), record("b"))

    def opened(how: str) -> str:
        command = [sys.executable, "-c", READ_ONLY, name, how]
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() or done.stderr

    folder.chmod(0o555)
    before = sorted(folder.iterdir())
    assert opened("read") == "2"
    assert opened("create") == str(Reason("records.folder_read_only", path=name))
    assert sorted(folder.iterdir()) == before
    folder.chmod(0o755)
    (folder / f"{name}-wal").write_bytes(b"what is committed and not in the file yet")
    folder.chmod(0o555)
    assert opened("read") == str(Reason("records.log_read_only", path=name, log=f"{name}-wal"))


def test_the_disk_has_what_add_returned_from(tmp_path):
    """WAL and synchronous=FULL (2), as SQLite itself reports them of the connection."""
    with Records(tmp_path / "r") as records:
        ask = records._connection.execute
        assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ask("PRAGMA synchronous").fetchone() == (2,)


def test_ten_thousand_records_open_and_query_at_once(tmp_path):
    path = tmp_path / "r"
    with Records(path) as records:
        records.add(
            *[
                Record(
                    f"gemm {at % 100}",
                    *KEY[1:],
                    f"{at}",
                    samples=tuple(float(at + 1 + turn) for turn in range(30)),
                    plan="p" * 7000,
                )
                for at in range(10_000)
            ]
        )
    took = []
    for _ in range(3):
        started = time.perf_counter()
        with Records(path) as records:
            best = records.best("gemm 42", *KEY[1:])
            summaries = records.find("gemm 42", plans=False)
            count = len(records)
        took.append(time.perf_counter() - started)
    assert (best.candidate, len(summaries), count) == ("42", 100, 10_000)
    assert min(took) < 0.2, took


def test_writers_at_once_lose_nothing(tmp_path):
    count, lost = records_stress.write_at_once(tmp_path / "r", seconds=2.0)
    assert count > records_stress.WRITERS
    assert lost == []


def test_a_killed_writer_loses_nothing_that_it_committed(tmp_path):
    count, lost = records_stress.kill(tmp_path / "r", times=12)
    assert count >= 12
    assert lost == []


def test_records_need_no_tvm():
    code = "import sys, pipeliner.records; print('tvm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
