"""``pipeliner record`` as far as it goes without a GPU."""

from __future__ import annotations

import pytest

from pipeliner.cli import main
from pipeliner.targets import gpu


def test_the_grid_is_listed(capsys, tmp_path) -> None:
    log = str(tmp_path / "log.csv")
    asked = ["record", "--list", "--target", "h100", "--log", log, "--only", "decode16,rn50_3x3_7"]
    assert main([*asked, "--dtype", "float16", "--limit", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0] == "decode16 float16 wgmma/tma 16x256x64 d1"
    assert {line.split()[0] for line in lines} == {"decode16", "rn50_3x3_7"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "sq4096,no"], "not 'no'"),
        (["--limit", "0"], "expected --limit of at least 1, not 0"),
        (["--jobs", "0"], "expected --jobs of at least 1, not 0"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, tmp_path, options, said) -> None:
    asked = ["record", "--list", "--target", "h100", "--log", str(tmp_path / "log.csv")]
    assert main([*asked, *options]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.skipif(gpu() is not None, reason="a GPU is visible")
def test_without_a_gpu_it_says_so(capsys, tmp_path) -> None:
    assert main(["record", "--log", str(tmp_path / "log.csv")]) == 1
    assert capsys.readouterr().err == "pipeliner: cannot time kernels: no GPU is visible\n"
