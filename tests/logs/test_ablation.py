"""Constants left out of the model, on a part of the shipped log."""

from __future__ import annotations

import json
import sys

import pytest

from pipeliner.cli import main
from pipeliner.cost import busy, power
from pipeliner.cost.constants import constants
from pipeliner.logs.ablation import FACTORS, Ablation, constant_as, folds, judged, selected
from pipeliner.logs.cases import cases
from pipeliner.logs.neutral import NEUTRAL, OTHERWISE
from pipeliner.machine import H100
from pipeliner.records.log import SHIPPED, read_log
from tests.refusals import told

LABELS = ("decode16,float16", "bert_fc2,float16", "sq1024,float16")


def some(tmp_path, labels=LABELS, count=8):
    """A log of the first rows of some workloads."""
    lines = SHIPPED["h100"].read_text().splitlines()
    kept = [[row for row in lines if row.startswith(f"{label},")][:count] for label in labels]
    log = tmp_path / "log.csv"
    log.write_text("\n".join([*lines[:4], *(row for rows in kept for row in rows)]) + "\n")
    return log


@pytest.fixture(scope="module")
def ablation(tmp_path_factory):
    found = cases(read_log(some(tmp_path_factory.mktemp("log")), H100), H100)
    assert len(found) == 3
    return Ablation(found)


def test_every_constant_from_measurements_has_a_neutral_value_or_a_reason_for_none():
    known = {one.name for one in constants() if one.source.kind in ("fitted", "measured")}
    assert NEUTRAL.keys() | OTHERWISE.keys() == known
    assert not NEUTRAL.keys() & OTHERWISE.keys()


def test_a_constant_is_another_everywhere_and_then_itself_again():
    before = busy.PIPE_NORM
    with constant_as("PIPE_NORM", 3.0):
        assert busy.PIPE_NORM == power.PIPE_NORM == 3.0
    assert busy.PIPE_NORM == power.PIPE_NORM == before
    named = [
        key
        for key, one in sys.modules.items()
        if key.startswith("pipeliner.") and vars(one).get("PIPE_NORM", before) != before
    ]
    assert named == []


def test_what_a_constant_says_is_gone_with_it(ablation):
    found = ablation.of("HANDSHAKE_CYCLES")
    assert found.workloads == 3
    assert found.without.error != ablation.means(ablation.base).error
    assert found.refitted is None
    lone = ablation.of("LONE_WARP_CYCLES", refit=True)  # of products in float32
    assert (lone.workloads, lone.refitted) == (0, None)
    assert lone.without == ablation.means(ablation.base)


def test_each_fold_is_judged_by_what_the_others_choose(ablation, monkeypatch):
    """The value with the least loss of the other groups, whatever the fold's own would be."""
    base = ablation.base
    each = {group: judged(ablation._found[group]) for group in base}
    assert each == base
    left = {group: at for at, group in enumerate(base)}

    def better_for_one_group_alone(name, value, groups):
        worse = {
            group: type(one)(one.first, one.top, 0.0, one.error + 1) for group, one in base.items()
        }
        if value == 480 * FACTORS[0]:
            lucky = next(iter(left))
            worse[lucky] = type(base[lucky])(1.0, 1.0, 1.0, -10.0)
        return {group: worse[group] for group in groups}

    monkeypatch.setattr(ablation, "_with", better_for_one_group_alone)
    found = ablation._refitted("HANDSHAKE_CYCLES", 480, list(base))
    # The lucky group's own fold keeps the shipped value; the two others take what it alone likes.
    lucky = next(iter(left))
    expected = [
        base[group].error + (0 if group == lucky else 1) for group in ablation.out_of_sample or base
    ]
    assert found.error == pytest.approx(sum(expected) / len(expected))


def test_types_of_one_name_are_in_one_fold():
    groups = {(label, dtype): 0 for label in "abcdefg" for dtype in ("float16", "float32")}
    found = folds(groups)
    assert set().union(*found) == groups.keys()
    assert sum(map(len, found)) == len(groups)
    for fold in found:
        assert {(label, "float16") for label, _ in fold} <= fold


def test_the_command_prints_a_table(capsys, tmp_path):
    log = str(some(tmp_path))
    assert main(["ablate", "restart", "producer", "--log", log, "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert {line.split(" | ")[0] for line in lines[2:]} == {
        "| as it is",
        "| RESTART_CYCLES",
        "| PRODUCER_CYCLES",
    }
    assert main(["ablate", "restart", "--log", log, "--json", "--refit"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["constants"]
    assert (one["name"], one["neutral"]) == ("RESTART_CYCLES", 0)
    assert one["refitted"] is not None


def test_a_name_that_nothing_has_is_refused(capsys):
    assert selected(["lone"]) == ["LONE_WARP_CYCLES"]
    assert main(["ablate", "vatmin"]) == 1
    told(capsys.readouterr().err, "constant.unknown", part="vatmin")
