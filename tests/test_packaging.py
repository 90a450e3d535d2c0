"""What is shipped is what is in the tree, under one import name, and speaks of the project alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="tomllib comes with Python 3.11")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {
    "pipeliner": "pipeliner",
    "passes": "pipeliner.passes",
    "schedules": "pipeliner.schedules",
}


def packages_in_tree() -> set[str]:
    found = set()
    for folder, name in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder)
            if folder == "pipeliner" and inner.parts[:1] in (("passes",), ("schedules",)):
                continue
            found.add(".".join([name, *inner.parts]))
    return found


def test_every_package_is_listed() -> None:
    assert set(SETUPTOOLS["packages"]) == packages_in_tree()


def test_no_module_outside_a_package() -> None:
    loose = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    ]
    assert loose == []


def test_links() -> None:
    for name in ("passes", "schedules"):
        link = ROOT / "pipeliner" / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / name


@pytest.mark.parametrize("name", ["passes", "schedules"])
def test_folders_have_no_second_name(name: str) -> None:
    """``import passes.ir`` from the root would make a second copy of every module."""
    module = {"passes": "passes.sync.ordering", "schedules": "schedules.gemm"}[name]
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "relative import" in done.stderr


def test_import_loads_no_tvm() -> None:
    code = "import sys, pipeliner; print('tvm' in sys.modules, 'networkx' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_facade() -> None:
    import pipeliner

    for name in pipeliner.__all__:
        assert getattr(pipeliner, name) is not None
    assert callable(pipeliner.build)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        pipeliner.nonsense


def test_typed_and_licensed() -> None:
    assert (ROOT / "pipeliner" / "py.typed").exists()
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["version"] == __import__("pipeliner").__version__


def test_metadata() -> None:
    """An index shows the words; a licence expression replaces classifiers of licences."""
    project = PROJECT["project"]
    assert {"tvm", "cuda", "software pipelining"} <= set(project["keywords"])
    assert {"Typing :: Typed", "Environment :: GPU :: NVIDIA CUDA"} <= set(project["classifiers"])
    assert not [one for one in project["classifiers"] if one.startswith("License ::")]
    assert not {"authors", "maintainers", "urls"} & set(project)


def test_release_notes_are_of_this_version() -> None:
    text = (ROOT / ".github" / "CHANGELOG.md").read_text()
    titles = re.findall(r"^## (.*)", text, re.M)
    assert titles[0] == "Unreleased"
    assert titles[1].split()[0] == PROJECT["project"]["version"]


@pytest.mark.parametrize("extra", ["cli", "plot", "test", "dev", "nvcc", "nvrtc", "z3"])
def test_extras(extra: str) -> None:
    assert PROJECT["project"]["optional-dependencies"][extra]


def test_the_crashing_pair_is_excluded() -> None:
    wanted = next(d for d in PROJECT["project"]["dependencies"] if "apache-tvm-ffi" in d)
    assert "<0.1.15" in wanted


TEXT = (".py", ".toml", ".md", ".yaml")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|home|root)/")
THEIR_DEPTH = re.compile(r"\bnum_stages\b")
"""What others call the depth; only READMEs name it, to say so."""


def test_readmes_of_folders_are_of_the_repository_alone() -> None:
    """They speak of tests and of make; what an installation needs stands in --help."""
    patterns = [one for given in SETUPTOOLS["package-data"].values() for one in given]
    assert patterns
    assert not [one for one in patterns if one.endswith(".md") or one in ("*", "**")]
    assert not (ROOT / "MANIFEST.in").exists()
    assert PROJECT["project"]["readme"] == "README.md"


def test_no_machine_paths_and_one_word_for_depth() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    here = Path(__file__).name
    for name in tracked.stdout.split():
        path = ROOT / name
        if path.suffix in TEXT and path.name != here and path.exists():
            text = path.read_text()
            assert not MACHINE_PATH.search(text), name
            assert path.suffix == ".md" or not THEIR_DEPTH.search(text), name
