"""pipeliner.doctor, versions and nvcc: what is found, what is refused, in which order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeliner import doctor, knobs, versions
from pipeliner.errors import ToolError
from pipeliner.toolchain import nvcc
from tests.refusals import refused

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("tvm", "ffi", "code"),
    [
        ("0.27.0.post1", "0.1.14.post0", None),
        ("0.27.0.post1", "0.1.14.post1", None),
        ("0.27.3", "unknown", None),
        ("unknown", "0.1.14.post1", None),
        ("0.27.0.post1", "0.1.15", "versions.ffi_crashes"),
        ("0.27.0.post1", "0.1.15.post2", "versions.ffi_crashes"),
        ("0.27.0.post1", "0.2.0", "versions.ffi_crashes"),
        ("0.27.0.post1", "0.1.13", "versions.ffi_old"),
        ("0.26.0", "0.1.14.post1", "versions.tvm"),
        (None, "0.1.14.post1", "versions.missing"),
        ("0.27.0", None, "versions.missing"),
    ],
)
def test_refusal(tvm: str | None, ffi: str | None, code: str | None) -> None:
    found = versions.refusal(tvm, ffi)
    if code is None:
        assert found is None
        return
    assert found is not None
    assert found.why.code == code
    assert found.count("\n") == 0
    assert found["remedy"] == versions.REMEDY


def test_installed_agrees_with_the_module() -> None:
    import tvm

    assert versions.installed("tvm") == tvm.__version__
    assert versions.installed("surely_not_installed") is None


def fake_ffi(folder: Path, version: str) -> dict[str, str]:
    """An environment in which tvm_ffi has another version."""
    package = folder / "tvm_ffi"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemError('must not be imported')\n")
    (package / "_version.py").write_text(f"__version__ = version = '{version}'\n")
    return {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin"}


def run(env: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], env=env, capture_output=True, text=True)


def test_importing_refuses_before_tvm_loads(tmp_path: Path) -> None:
    done = run(fake_ffi(tmp_path, "0.1.15.post2"), "-c", "import pipeliner")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: cannot use apache-tvm-ffi 0.1.15.post2 with apache-tvm")


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    done = run(fake_ffi(tmp_path, "0.1.15"), "-m", "pipeliner", "plan", "gemm")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "tensorize crashes" in done.stderr


def test_doctor_runs_on_a_refused_pair(tmp_path: Path) -> None:
    done = run(fake_ffi(tmp_path, "0.1.15"), "-m", "pipeliner", "doctor", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["usable"] is False
    tvm = next(found for found in report["findings"] if found["name"] == "TVM")
    assert tvm["status"] == "refused"
    assert "<0.1.15" in tvm["remedy"]


def test_examine_names_remedies() -> None:
    for found in doctor.examine():
        assert found.detail
        assert bool(found.disables) == (found.status != "ok")
        assert bool(found.remedy) == (found.status != "ok")


def test_healthy_only_asks_for_what_is_required() -> None:
    ok = doctor.Finding("TVM", "ok", "", required=True)
    absent = doctor.Finding("nvcc", "missing", "", "x", "y")
    assert doctor.healthy([ok, absent])
    assert not doctor.healthy([doctor.Finding("TVM", "refused", "", "x", "y", required=True)])


def program(folder: Path, name: str, text: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing of CUDA is found."""
    for name in ("PIPELINER_NVCC", "CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(nvcc, "TOOLKIT", tmp_path / "toolkit")
    monkeypatch.setattr(nvcc, "wheel_folders", lambda: [tmp_path / "wheel"])
    return tmp_path


def test_nvcc_is_looked_for_in_order(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("nvcc.missing", ToolError):
        nvcc.find_nvcc()
    for place in ("toolkit/bin", "wheel", "path", "home/bin", "cuda/bin", "named"):
        wanted = program(bare / place, "nvcc")
        if place == "home/bin":
            monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
        if place == "cuda/bin":
            monkeypatch.setenv("CUDA_PATH", str(bare / "cuda"))
        if place == "named":
            monkeypatch.setenv("PIPELINER_NVCC", str(wanted))
        assert nvcc.find_nvcc() == wanted
    assert nvcc.find_nvcc(str(bare / "wheel" / "nvcc")) == bare / "wheel" / "nvcc"


def test_a_named_nvcc_must_exist(bare: Path) -> None:
    with refused("nvcc.not_there", ToolError):
        nvcc.find_nvcc("/nowhere/nvcc")
    other = program(bare / "odd", "nvcc-13")
    with refused("nvcc.name", ToolError):
        nvcc.find_nvcc(str(other))


def test_a_failing_tool_shows_its_last_words(bare: Path) -> None:
    failing = program(bare / "path", "nvcc", "echo first; echo the reason >&2; exit 3")
    with refused("tool.failed", ToolError, code=3, text="first; the reason"):
        nvcc.version(failing)


def test_a_failing_tool_shows_its_errors_and_not_what_follows(bare: Path) -> None:
    script = "echo 'k.cu(3): error: no y'; for i in $(seq 20); do echo warning $i; done; exit 1"
    with refused("tool.failed", ToolError, code=1, text="k.cu(3): error: no y"):
        nvcc.version(program(bare / "path", "nvcc", script))


NEW_NVCC = """\
case "$*" in
--version) echo 'Cuda compilation tools, release 13.0, V13.0.88';;
--list-gpu-arch) echo compute_75; echo compute_90;;
*) echo "nvcc fatal   : Unsupported gpu architecture 'compute_61'"; exit 1;;
esac"""


@pytest.mark.parametrize(
    ("arch", "install"), [("sm_61", nvcc.GET_EARLIER_NVCC), ("sm_121a", nvcc.GET_NVCC)]
)
def test_an_nvcc_that_lacks_an_architecture_names_one_that_has_it(
    bare: Path, arch: str, install: str
) -> None:
    program(bare / "path", "nvcc", NEW_NVCC)
    with refused("nvcc.arch", ToolError, version="13.0", arch=arch, install=install) as caught:
        nvcc.compile_cuda("", arch, "cubin")
    assert "\n" not in str(caught.value)


def test_where_tvm_compiles_it_is_refused_in_the_same_words(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare / "path", "nvcc", NEW_NVCC)
    monkeypatch.setattr(nvcc, "tvm_compiles", lambda: True)
    said = "Command line: nvcc ..\nnvcc fatal   : Unsupported gpu architecture 'compute_61'\n"
    with refused("nvcc.arch", ToolError, arch="sm_61", install=nvcc.GET_EARLIER_NVCC) as caught:
        with nvcc.for_tvm():
            raise RuntimeError(said)
    assert "\n" not in str(caught.value)
    with pytest.raises(RuntimeError, match="no memory"), nvcc.for_tvm():
        raise RuntimeError("no memory")


def test_doctor_says_which_gpus_nvcc_no_longer_compiles_for(bare: Path) -> None:
    path = program(bare / "path", "nvcc", NEW_NVCC)
    assert nvcc.architectures(path) == (75, 90)
    (found,) = (one for one in doctor.examine() if one.name == "earlier GPUs")
    assert (found.status, found.remedy) == ("missing", nvcc.GET_EARLIER_NVCC)
    assert found.detail.startswith("sm_61, sm_70:")
    program(bare / "path", "nvcc", "[ $1 = --list-gpu-arch ] && echo compute_50 compute_120")
    assert "earlier GPUs" not in {one.name for one in doctor.examine()}


def test_tools_are_found_apart_from_nvcc(bare: Path) -> None:
    program(bare / "path", "nvcc")
    wanted = program(bare / "wheel", "nvdisasm")
    assert nvcc.find_tool("nvdisasm") == wanted
    assert nvcc.find_tool("cuobjdump") is None


def test_missing_nvcc_is_a_finding(bare: Path) -> None:
    found = {finding.name: finding for finding in doctor.examine()}
    assert found["nvcc"].status == "missing"
    assert "emulation still work" in found["nvcc"].disables


def test_tvm_flags() -> None:
    """The command is the one that TVM itself runs, but for the program's path."""
    import tvm
    from tvm.support import nvcc as theirs

    seen: list[list[str]] = []

    class Stop(Exception):
        pass

    def spy(command: list[str], **_: object) -> None:
        seen.append(command)
        raise Stop

    with pytest.MonkeyPatch.context() as monkey:
        monkey.setattr(theirs.subprocess, "Popen", spy)
        target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
        with target, pytest.raises(Stop):
            theirs.compile_cuda("", target_format="ptx", compiler="nvcc")
    ours = nvcc.command(Path("nvcc"), "sm_90", "ptx", Path("in"), Path("out"))

    def flags(command: list[str]) -> set[str]:
        return {word for word in command if word.startswith(("-", "arch="))}

    assert flags(ours) == flags(seen[0])


def test_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    with knobs.tvm_uses_nvcc(Path("/tools")):
        assert os.environ["PATH"] == "/tools:/bin"
        assert os.environ["TVM_CUDA_COMPILE_MODE"] == "nvcc"
    assert os.environ["PATH"] == "/bin"
    assert "TVM_CUDA_COMPILE_MODE" not in os.environ
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-w")
    with knobs.tvm_uses_nvcc(Path("/tools"), (nvcc.LINE_INFO,)):
        assert os.environ["NVCC_APPEND_FLAGS"] == "-w -lineinfo"
    assert os.environ["NVCC_APPEND_FLAGS"] == "-w"


PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_resources_of_each_kernel() -> None:
    first, second = nvcc.resources(PTXAS, {"first": 4096, "second": 0}.__getitem__)
    assert (first.kernel, first.registers, first.stack, first.spills) == ("first", 168, 16, 20)
    assert (first.static_shared, first.shared, first.barriers) == (1024, 5120, 2)
    assert (second.registers, second.shared, second.spills) == (10, 0, 0)
