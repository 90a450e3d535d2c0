"""The scripts that complete the command in a shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pipeliner import cli
from pipeliner.commands.kernels import completion
from pipeliner.errors import ToolError
from tests.refusals import refused

pytest.importorskip("shtab")

ASKED = {
    "pipeliner ins": ["inspect"],
    "pipeliner inspect ''": [
        "gemm",
        "gated",
        "attention",
        "rows",
        "scaled",
        "grouped",
        "packed",
        "back_to_back",
        "conv1d",
        "conv2d",
        "conv3d",
    ],
    "pipeliner inspect gemm --mechanism ''": ["auto", "tma", "cp_async", "register", "direct"],
    "pipeliner plan gemm --thread": ["--thread-tile"],  # a rare one
    "pipeliner plan gemm --target h": ["h100", "h200"],
}


def test_bash_completes_commands_options_and_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is missing")
    assert cli.main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    lines = [f"source {script}", "complete -p pipeliner >&2"]
    for words in ASKED:
        lines += [
            f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()",
            '_shtab_pipeliner; echo "${COMPREPLY[@]}"',
        ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert [line.split() for line in done.stdout.splitlines()] == list(ASKED.values())


@pytest.mark.parametrize("shell", completion.SHELLS[1:])
def test_other_shells_know_the_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "inspect" in script
    assert "thread-tile" in script or shell == "tcsh"


def test_without_shtab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "find_spec", lambda name: None)
    with refused("completion.missing", ToolError):
        completion.run(cli.parser().parse_args(["completion", "bash"]))
