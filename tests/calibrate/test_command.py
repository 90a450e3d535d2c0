"""``pipeliner calibrate`` as far as it goes without a GPU."""

from __future__ import annotations

import pytest

from pipeliner.cli import main
from pipeliner.targets import gpu


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "machine.txt"], "expected --out to name a .json file, not 'machine.txt'"),
        (["--out", "no/such/machine.json"], "cannot write 'no/such/machine.json'"),
        (["--jobs", "0"], "expected --jobs of at least 1, not 0"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, options, said) -> None:
    assert main(["calibrate", *options]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_it_says_so(capsys, tmp_path) -> None:
    assert main(["calibrate", "--out", str(tmp_path / "m.json")]) == 1
    assert capsys.readouterr().err == "pipeliner: cannot time kernels: no GPU is visible\n"
    assert not (tmp_path / "m.json").exists()
