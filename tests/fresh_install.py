"""Whether what is published works where nothing else is: the sdist, its wheel, a fresh environment.

    python -m tests.fresh_install

builds both as pip would, the wheel from the sdist, installs it with the command's extra into an
environment of its own, and runs the command there, far from this checkout. It needs PyPI, or a
cache of pip's with TVM, and takes a minute.
"""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PROJECT: Final = dict(
    re.findall(r'^(name|version) = "(.*?)"', (ROOT / "pyproject.toml").read_text(), re.M)
)
FOLDERS: Final = {
    "pipeliner": "pipeliner",
    "passes": "pipeliner/passes",
    "schedules": "pipeliner/schedules",
}
"""Folders of the checkout, and where they are installed."""

SMALL: Final = ("gemm", "--m", "128", "--n", "64", "--k", "96", "--tile", "64x64x32")

PROGRAM: Final = """
import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

fast = pipeliner.pipeline(schedule_gemm(Gemm(128, 64, 96), GemmTile(64, 64, 32)), "a100", depth=3)
assert pipeliner.plan_of(fast).loops
print(pipeliner.__file__)
"""


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    _run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def shipped() -> set[str]:
    """The files of the checkout that an installation has, by their paths there."""
    found = set()
    for source, home in FOLDERS.items():
        for path in (ROOT / source).rglob("*"):
            inner = path.relative_to(ROOT / source)
            if source == "pipeliner" and inner.parts[0] in FOLDERS:
                continue  # links to the folders beside it
            if path.suffix in (".py", ".toml", ".csv", ".css", ".js") or path.name == "py.typed":
                found.add(f"{home}/{inner.as_posix()}")
    return found


def check_files(sdist: Path, wheel: Path) -> None:
    """Both have every file, and the wheel one import name and the metadata of the project."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names
    with zipfile.ZipFile(wheel) as installed:
        listed = set(installed.namelist())
        (info,) = {name.partition("/")[0] for name in listed if ".dist-info/" in name}
        metadata = email.message_from_bytes(installed.read(f"{info}/METADATA"))
    assert {name for name in listed if not name.startswith(info)} == shipped()
    assert (metadata["Name"], metadata["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    print(f"{len(shipped())} files in {wheel.name}")


def check_command(wheel: Path, folder: Path) -> None:
    """The command, in an environment that has the wheel and what it asks for."""
    _run(sys.executable, "-m", "venv", str(folder / "fresh"))
    programs = folder / "fresh" / "bin"
    _run(str(programs / "pip"), "install", "-q", f"{wheel}[cli]")
    _run(str(programs / "pip"), "check")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()

    def command(*words: str) -> str:
        return _run(str(programs / "pipeliner"), *words, cwd=elsewhere)

    found: dict[str, Any] = json.loads(command("doctor", "--json"))
    assert found["usable"], found
    assert found["pipeliner"] == PROJECT["version"]
    assert command("--version").split() == ["pipeliner", found["pipeliner"]]
    (elsewhere / "plan.json").write_text(command("plan", *SMALL, "--target", "a100", "--json"))
    again = command("plan", *SMALL, "--target", "a100", "--json", "--plan", "plan.json")
    assert json.loads(again)["loops"] == json.loads((elsewhere / "plan.json").read_text())["loops"]
    assert command("verify", *SMALL, "--target", "a100").startswith("right: ")
    assert "__global__" in command("inspect", *SMALL, "--target", "h100", "--annotate")
    assert "complete" in command("completion", "bash")
    assert "TVM" in command("constants")
    file = _run(str(programs / "python"), "-c", PROGRAM, cwd=elsewhere).splitlines()[-1]
    assert Path(file).is_relative_to(folder / "fresh"), file
    print(f"doctor, plan, verify, inspect, completion and constants run from {wheel.name}")


def _run(*words: str, cwd: Path | None = None) -> str:
    """What a program prints, without the modules of this checkout; what it says where it fails."""
    environment = {name: one for name, one in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def main() -> None:
    """Build, check, install, run."""
    with tempfile.TemporaryDirectory(prefix="pipeliner-") as name:
        sdist, wheel = built(Path(name))
        check_files(sdist, wheel)
        check_command(wheel, Path(name))


if __name__ == "__main__":
    main()
