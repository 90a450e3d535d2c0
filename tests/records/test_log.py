"""Logs: what is written is what is read, and a file of records in their place."""

from __future__ import annotations

import dataclasses

import pytest

from pipeliner.errors import WorkloadError
from pipeliner.machine import H100
from pipeliner.records import Records
from pipeliner.records.candidate import workload_key
from pipeliner.records.log import SHIPPED, add_to, append, loop_of, read_any, read_log, with_loop
from pipeliner.schedules import Gemm
from pipeliner.toolchain.machine_code import LoopCode
from tests.logs.made import again, record
from tests.refusals import refused

ONE, OTHER = "wgmma/tma 128x256x64 d4 c132", "mma/cp_async 64x64x32 d2 s3"
LOOP = LoopCode(300, 0, 4, 0, 8)
RECORDS = [
    record(ONE, 12.5, resources=with_loop({"registers": 168}, LOOP)),
    again(ONE, 12.75),
    dataclasses.replace(record(OTHER, 20.0), samples=(19.0, 20.0, 21.0)),
    record(OTHER, label="sq2048", failure='wrong, by "much"'),
]


def kept(records):
    """What a log keeps."""
    return [
        (one.workload, one.candidate, one.label, one.us, round(one.spread, 4), one.failure)
        for one in records
    ]


def test_what_is_appended_is_read(tmp_path) -> None:
    path = tmp_path / "log.csv"
    append(path, RECORDS[:2], H100, ("a GPU", "driver 1"))
    append(path, RECORDS[2:], H100)
    found = read_log(path, H100)
    assert kept(found) == kept(RECORDS)
    assert loop_of(found[0]) == LOOP
    assert found[0].conditions == {"log": "a GPU; driver 1"}
    assert path.read_text().splitlines()[:2] == ["# a GPU", "# driver 1"]


def test_what_is_measured_again_replaces_what_was(tmp_path) -> None:
    path = tmp_path / "log.csv"
    append(path, RECORDS, H100)
    later = record(ONE, 11.0)
    append(path, [later], H100)
    assert kept(read_log(path, H100)) == kept([later, *RECORDS[2:]])


def test_a_log_that_is_read_and_written_is_the_same(tmp_path) -> None:
    """Of the one that ships, the workload with most kinds of candidates."""
    lines = SHIPPED["h100"].read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if line.startswith(("workload", "rn50_stem,")))
    first, second = tmp_path / "one.csv", tmp_path / "two.csv"
    first.write_text(text)
    append(second, read_log(first, H100), H100)
    assert second.read_text() == text
    assert text.count("\n") > 20


def test_a_file_of_records_holds_the_same_and_every_sample(tmp_path) -> None:
    path = tmp_path / "log.sqlite"
    add_to(path, RECORDS, H100, ("a GPU",))
    found = read_any(path, H100)
    assert kept(found) == kept(RECORDS)
    assert found[2].samples == RECORDS[2].samples
    assert found[0].conditions == {"log": "a GPU"}
    with Records(path) as records:
        assert len(records) == 4


@pytest.mark.parametrize(
    "line", ["sq1024,float16", "sq1024,float16,mma 1x2,1,,,,,", "s,float16,mma/tma 1x2x3 d1,x,,,,,"]
)
def test_a_line_that_is_none_is_named(tmp_path, line) -> None:
    path = tmp_path / "log.csv"
    append(path, RECORDS[:2], H100)
    with path.open("a") as out:
        out.write(line + "\n")
    with refused("log.line", WorkloadError, line=3):
        read_log(path, H100)


def test_a_workload_of_no_suite_has_no_name(tmp_path) -> None:
    path = tmp_path / "log.csv"
    mine = dataclasses.replace(RECORDS[0], workload=workload_key(Gemm(24, 24, 24)))
    append(path, [mine], H100)
    with refused("log.workload", WorkloadError, value="gemm_24x24x24_float16_nt"):
        read_log(path, H100)


def test_a_candidate_that_no_name_says_is_not_logged(tmp_path) -> None:
    tried = RECORDS[0].candidate.replace('"depth": 4', '"store": "tma", "depth": 4')
    with refused("log.candidate", WorkloadError):
        append(tmp_path / "log.csv", [dataclasses.replace(RECORDS[0], candidate=tried)], H100)


def test_a_log_that_is_missing_is_named(tmp_path) -> None:
    with refused("log.read", WorkloadError, why="No such file or directory"):
        read_log(tmp_path / "none.csv", H100)
