"""``pipeliner tune``: what it prints, and how it ends where it cannot search."""

from __future__ import annotations

import json

import pytest

from pipeliner import cli
from pipeliner.commands.lab import tune as command
from pipeliner.diagnostics import Reason
from pipeliner.errors import WorkloadError
from pipeliner.targets import gpu
from pipeliner.tuning import Progress, tune
from tests.refusals import refused, told

from .fakes import Compiler, Fake, Loop, MadeUpGpu
from .functions import ByKnobs, by_rows, knobbed
from .interrupted import SPEC

ARGUMENTS = ["tune", "gemm", "--m", "256", "--n", "256", "--k", "256", "--target", "h100"]


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu(capsys):
    assert cli.main(ARGUMENTS) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "pipeliner: cannot time kernels: no GPU is visible\n")


def test_a_dry_run_ranks(capsys):
    assert cli.main([*ARGUMENTS, "--dry-run", "--trials", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "candidates; the best predicted, nothing is measured" in lines[0]
    times = [float(line.split()[-1]) for line in lines[3:]]
    assert len(times) == 4
    assert times == sorted(times)
    assert cli.main([*ARGUMENTS, "--dry-run", "--trials", "4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["predicted_us"] for one in data["ranked"]] == times
    assert data["points"] > 100


@pytest.mark.parametrize(
    ("options", "code", "args"),
    [
        (["--tile", "64x64x32"], "option.searched", {"option": "tile"}),
        (["--trials", "0"], "option.least", {"option": "trials", "least": 1, "value": 0}),
        (["--jobs", "0"], "option.least", {"option": "jobs", "least": 1, "value": 0}),
        (["--seconds", "-1"], "option.positive", {"option": "seconds", "value": -1}),
        (["--seconds", "nan"], "option.positive", {"option": "seconds"}),
        (["--key", "h100"], "option.key", {}),
        (["--tracker", "here:9190", "--devices", "0"], "option.devices", {}),
    ],
    ids=["tile", "trials", "jobs", "seconds", "nan", "key", "devices"],
)
def test_options_that_make_no_sense(capsys, options, code, args):
    assert cli.main([*ARGUMENTS, *options]) == 1
    told(capsys.readouterr().err, code, **args)


def test_a_gpu_that_is_named_twice_measures_nothing(capsys, tmp_path):
    """Two kernels at once on one GPU: neither time would be its own."""
    with pytest.raises(SystemExit):
        cli.main([*ARGUMENTS, "--devices", "0,1,0"])
    assert Reason("tune.devices", devices=(0, 1, 0)) in capsys.readouterr().err
    with refused("tune.devices", WorkloadError, devices=(0, 0)):
        tune(SPEC, "h100", db=tmp_path / "r", devices=(0, 0))
    with refused("tune.seconds", WorkloadError, value=0):
        tune(SPEC, "h100", db=tmp_path / "r", seconds=0)


@pytest.fixture
def searched(monkeypatch, tmp_path):
    """The command with a search on a made-up GPU; returns the arguments for it."""

    def begin(fake):
        def search(spec, target, **options):
            assert options.pop("measurers") == options.pop("devices") == ()
            return tune(spec, target, measurers=[fake], compiler=Compiler(), prove=False, **options)

        monkeypatch.setattr("pipeliner.tuning.tune", search)
        monkeypatch.setattr("pipeliner.measuring.check_gpu", lambda: None)
        return [*ARGUMENTS, "--trials", "3", "--db", str(tmp_path / "r")]

    return begin


def test_it_tells_how_it_goes_and_what_it_found(capsys, searched):
    arguments = searched(Fake(MadeUpGpu(SPEC)))
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("float16 GEMM 256 x 256 x 256 NT: ")
    assert "3 trials, 0 of them failed" in out
    lines = err.splitlines()
    assert lines[0] == "[0/3] ranking is done"
    assert "TFLOP/s" in lines[-1]
    assert lines[-1].endswith("0 s left")
    assert cli.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 3


def test_where_nothing_ran_it_fails(capsys, searched):
    assert cli.main(searched(Loop())) == 1
    assert "none of 3 candidates ran" in capsys.readouterr().out


def test_a_line_of_progress():
    progress = Progress(12, 64, 1, "190.3 us", 182.1, 754.2, 6.3, 1.9, 27.4)
    assert command.progress_line(progress) == (
        "[12/64] 190.3 us; best 182.1 us, 754.2 TFLOP/s; 1.9 trials/s, 27 s left"
    )


FUNCTION = "tests/tuning/functions.py:knobbed"


def test_a_function_in_a_file_is_ranked(capsys):
    assert cli.main(["tune", FUNCTION, "--target", "a100", "--dry-run", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["workload"], data["points"] > 10) == (FUNCTION, True)
    first = json.loads(data["ranked"][0]["candidate"])
    assert first["tile"]["values"][0][0] == "rows"
    assert cli.main(["tune", FUNCTION, "--target", "a100", "--dry-run", "--trials", "3"]) == 0
    assert "rows 2" in capsys.readouterr().out


def test_settings_that_are_left_out_are_told_with_their_reason(capsys, tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "from tests.tuning.functions import reversing\n\n"
        "def own(rows=[8, 3, 5, 2, 16]):\n"
        "    if rows > 8:\n"
        "        raise ValueError('too many')\n"
        "    return reversing(rows)\n"
    )
    arguments = ["tune", f"{file}:own", "--target", "a100", "--dry-run"]
    assert cli.main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["settings"] == 5
    assert [one["knobs"]["rows"] for one in data["left_out"]] == [3, 5, 16]
    assert data["left_out"][2]["why"] == "too many"
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[0] == "3 of 5 settings of the knobs are left out:"
    assert lines[3] == "  rows 16: too many"


def test_plan_and_inspect_take_the_setting_that_was_tuned(capsys, tmp_path):
    db = str(tmp_path / "r")
    tune(knobbed, "a100", db=db, trials=8, measurers=[ByKnobs(by_rows)], compiler=Compiler())
    assert cli.main(["plan", FUNCTION, "--target", "a100", "--db", db]) == 0
    assert "rows 2; tuned: 10.0 us" in " ".join(capsys.readouterr().out.split())
    emitted = {}
    for given in (["--db", db], []):
        asked = ["inspect", FUNCTION, "--target", "a100", "--emit", "cuda", "--json", *given]
        assert cli.main(asked) == 0
        emitted[len(given)] = capsys.readouterr().out
    assert emitted[0] != emitted[2]
    assert cli.main(["plan", FUNCTION, "--target", "a100"]) == 0
    assert "rows 2" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "options", "code", "args"),
    [
        (FUNCTION, ["--m", "4"], "option.not_of_workload", {"option": "m"}),
        ("tests/tuning/functions.py:reversing", [], "tune.no_value", {"parameter": "rows"}),
        ("tests/tuning/functions.py:nothing", [], "user_file.not_defined", {"name": "nothing"}),
        ("gem", [], "command.workload", {"value": "gem", "near": "gemm"}),
    ],
)
def test_a_function_that_cannot_be_tuned(capsys, what, options, code, args):
    assert cli.main(["tune", what, "--target", "a100", "--dry-run", *options]) == 1
    told(capsys.readouterr().err, code, **args)
