"""``pipeliner calibrate`` as far as it goes without a GPU."""

from __future__ import annotations

import pytest

from pipeliner.cli import main
from pipeliner.targets import gpu
from tests.refusals import told


@pytest.mark.parametrize(
    ("options", "code", "args"),
    [
        (["--out", "machine.txt"], "option.json_file", {"value": "machine.txt"}),
        (["--out", "no/such/machine.json"], "file.no_folder", {"folder": "no/such"}),
        (["--jobs", "0"], "option.least", {"option": "jobs", "value": 0}),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, options, code, args) -> None:
    assert main(["calibrate", *options]) == 1
    told(capsys.readouterr().err, code, **args)


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_it_says_so(capsys, tmp_path) -> None:
    assert main(["calibrate", "--out", str(tmp_path / "m.json")]) == 1
    told(capsys.readouterr().err, "gpu.none")
    assert not (tmp_path / "m.json").exists()
