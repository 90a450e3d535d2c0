"""The command, as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeliner import cli
from pipeliner.targets import gpu
from tests.refusals import told

ROOT = Path(__file__).parents[1]

USER_FILE = """
import numpy as np
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def add(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32"), C: T.Buffer((4096,), "float32")):
    T.func_attr({"global_symbol": "add", "tirx.noalias": True})
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            for i in T.serial(8):
                with T.sblock("add"):
                    v = T.axis.spatial(4096, bx * 1024 + i * 128 + tx)
                    C[v] = A[v] + B[v]


def made_here():
    return add


def reference(a, b, c):
    return a + b


not_a_function = 42
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(USER_FILE)
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


SMALL = ("--m", "128", "--n", "128", "--k", "128", "--tile", "64x64x32", "--target", "a100")


@pytest.mark.parametrize("text", ["2", "2x", "x", "2x4x8", "0x2"])
def test_sizes_are_two(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "gemm", "--warps", text]) == cli.EXIT_FAILED
    err = capsys.readouterr().err
    told(err, "request.pair" if text in ("2", "2x4x8", "0x2") else "option.pair")


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["plan"], ["plan", "gemm", "--tile", "3"]])
def test_wrong_usage_is_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        cli.main(argv)
    assert exited.value.code == 2


@pytest.mark.parametrize(
    ("argv", "code", "args"),
    [
        (["plan", "gemm", "--dtype", "fp17"], "workload.dtype", {"value": "fp17"}),
        (["plan", "gemm", "--m", "0"], "workload.extent", {"name": "m", "value": "0"}),
        (["plan", "gemm", "--depth", "x"], "option.depth", {"value": "x"}),
        (["plan", "gemm", "--target", "sm_72"], "machine.unknown", {"arch": "sm_72"}),
        (["plan", "gemm", "--target", "llvm"], "target.unknown", {"value": "'llvm'"}),
        (["plan", "gemm", "--mechanism", "dma"], "request.choice", {"option": "mechanism"}),
        (["plan", "gemm", "--instruction", "hmma"], "request.choice", {"option": "instruction"}),
        (["plan", "gemm", "--epilogue", "none"], "request.choice", {"option": "epilogue"}),
        (["plan", "gemm", "--store", "stg"], "request.choice", {"option": "store"}),
        (["plan", "gemm", "--plan", "/nowhere.json"], "file.read", {"path": "/nowhere.json"}),
        (["plan", "nowhere.py:f"], "user_file.missing", {"path": "nowhere.py"}),
        (["plan", "something"], "command.workload", {"value": "something", "near": ""}),
        (["bench", "--rounds", "1"], "option.least", {"option": "rounds", "least": 2}),
        (["inspect", "gemm", "--emit", "wat"], "option.choice", {"option": "emit"}),
        (["inspect", "gemm", "-o", "/dev/null/x", *SMALL], "file.write", {"path": "/dev/null/x"}),
        (["inspect", "gemm", "--emit", "tir", "--annotate"], "option.annotate", {}),
        (["inspect", "gemm", "--diff", "depth=2"], "option.diff", {"value": "depth=2"}),
        (["inspect", "gemm", "--diff", "depht=2,3"], "option.diff_option", {"near": "depth"}),
        (["inspect", "gemm", "--diff", "depth=2,3", "--passes"], "option.diff_passes", {}),
    ],
)
def test_a_mistake_is_one_line(
    argv: list[str], code: str, args: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *argv)
    assert (status, out) == (1, "")
    told(err, code, **args)


@pytest.mark.parametrize(
    ("depth", "code", "args"),
    [("99", "depth.given", {"depth": 99}), ("Q=2", "depth.unknown_ring", {"ring": "Q"})],
)
def test_a_depth_that_cannot_be_had_is_one_line(
    depth: str, code: str, args: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "plan", "gemm", "--depth", depth)
    assert (status, out) == (1, "")
    told(err, code, **args)


def test_verbose_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "plan", "gemm", "--dtype", "fp17", "-v")
    assert "Traceback (most recent call last)" in err
    told(f"{err.splitlines()[-1]}\n", "workload.dtype")


def test_an_unexpected_error_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("first\nlast")

    monkeypatch.setattr(cli.doctor, "run", broken)
    code, _, err = run(capsys, "doctor")
    assert code == 1
    assert err == "pipeliner: unexpected ZeroDivisionError: last (-v shows the traceback)\n"


def test_interrupt_is_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.doctor, "run", interrupted)
    code, _, err = run(capsys, "doctor")
    assert (code, err) == (130, "pipeliner: interrupted\n")


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m pipeliner inspect gemm --emit tir | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert "apache-tvm 0.27" in out
    code, out, _ = run(capsys, "doctor", "--json")
    assert json.loads(out)["usable"] is True


def test_nvcc_can_be_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINER_NVCC", "")  # restored afterwards
    argv = ("inspect", "gemm", "--emit", "ptx", "--nvcc", "/nowhere/nvcc", *SMALL)
    code, _, err = run(capsys, *argv)
    assert code == 1
    told(err, "nvcc.not_there", path="/nowhere/nvcc")


def test_plan_explains_and_round_trips(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, words, _ = run(capsys, "plan", "gemm", *SMALL)
    assert code == 0
    assert "cp_async" in words
    _, text, _ = run(capsys, "plan", "gemm", "--json", *SMALL)
    file = tmp_path / "plan.json"
    file.write_text(text)
    code, again, _ = run(capsys, "plan", "gemm", "--json", "--plan", str(file), *SMALL)
    assert code == 0
    assert json.loads(again) == json.loads(text)


def test_inspect_writes_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(
        capsys, "inspect", "gemm", "--emit", "tir,plan,cuda", "-o", str(tmp_path), *SMALL
    )
    assert code == 0
    files = [Path(line) for line in out.splitlines()]
    assert [file.suffixes[-1] for file in files] == [".py", ".txt", ".cu"]
    assert "__global__" in files[2].read_text()


@pytest.mark.deep("test_cuda_lines.py; test_inspect_resources")
def test_inspect_annotates_cuda(capsys: pytest.CaptureFixture[str]) -> None:
    code, plain, _ = run(capsys, "inspect", "gemm", *SMALL)
    assert code == 0
    code, out, _ = run(capsys, "inspect", "gemm", "--annotate", *SMALL)
    assert code == 0
    lines = out.splitlines()
    comments = [line.strip() for line in lines if line.strip().startswith("//")]
    code_of = [
        [line for line in text.splitlines() if not line.strip().startswith("//")]
        for text in (out, plain)
    ]
    assert code_of[0] == code_of[1]
    for phase in ("prologue", "steady state"):
        assert f"// region {phase}" in comments
        assert any(f"stage 0, {phase}, iteration" in comment for comment in comments)


@pytest.mark.parametrize("given", ["tile=64,64x64x64", "m=x,2"])
def test_a_value_that_an_option_cannot_have_is_wrong_usage(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        cli.main(["inspect", "gemm", "--diff", given])
    assert exited.value.code == 2
    assert "argument --diff" in capsys.readouterr().err


def test_inspect_compares_tiles_and_targets(capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--m", "64", "--n", "64", "--k", "64", "--emit", "plan")
    for given in ("tile=64x64x32,64x32x32", "target=a100,h100"):
        code, out, _ = run(capsys, "inspect", "gemm", *size, "--diff", given, "--target", "a100")
        name, _, values = given.partition("=")
        one, two = values.split(",")
        assert code == 0
        assert out.splitlines()[:2] == [f"--- {name}={one}", f"+++ {name}={two}"]


def test_inspect_compares_two_values_of_an_option(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ("inspect", "gemm", *SMALL, "--diff", "depth=2,3", "--condense")
    code, out, _ = run(capsys, *options)
    assert code == 0
    assert out.startswith("--- depth=2\n+++ depth=3\n")
    assert "+  cp_async_commit_group();" in out.splitlines()
    code, out, _ = run(capsys, *options, "--emit", "cuda,tir", "-o", str(tmp_path))
    assert [Path(line).suffixes for line in out.splitlines()] == [
        [".cuda", ".diff"],
        [".tir", ".diff"],
    ]


def test_inspect_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "inspect", "gemm", "--passes", "Expand", *SMALL)
    assert code == 0
    assert "pipeliner.Expand" in out
    assert "\n+" in out
    assert err == "1 pass changed the IR\n"
    code, out, _ = run(capsys, "inspect", "gemm", "--passes", "-o", str(tmp_path), *SMALL)
    names = {Path(line).name.split("-")[1].split(".")[1] for line in out.splitlines()}
    assert {"Recognise", "MapTiles", "LowerCopies", "Expand", "Synchronise"} <= names


@pytest.mark.nvcc
def test_inspect_resources(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", "gemm", "--emit", "resources,ptx", *SMALL)
    assert code == 0
    assert "registers a thread" in out
    assert ".target sm_80" in out


def test_verify(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", "gemm", *SMALL)
    assert code == 0
    assert out.startswith("right: gemm_128x128x128")
    code, out, _ = run(capsys, "verify", "gemm", "--json", *SMALL)
    assert json.loads(out)["ok"] is True


def test_verify_says_when_it_is_wrong(capsys: pytest.CaptureFixture[str], user_file: Path) -> None:
    user_file.write_text(USER_FILE.replace("return a + b", "return a - b"))
    code, out, _ = run(
        capsys, "verify", f"{user_file}:add", "--target", "a100", "--save", str(user_file) + "_"
    )
    assert code == 1
    assert out.startswith("WRONG: add")


@pytest.mark.parametrize("name", ["add", "made_here"])
def test_a_function_of_the_users_own(
    name: str, capsys: pytest.CaptureFixture[str], user_file: Path
) -> None:
    spec = f"{user_file}:{name}"
    code, out, _ = run(capsys, "plan", spec, "--target", "a100")
    assert code == 0
    assert out.startswith("kernel add: ")
    code, out, _ = run(
        capsys, "verify", spec, "--target", "a100", "--save", spec.split(":")[0] + "_"
    )
    assert (code, out.split()[0]) == (0, "right:")


def test_what_a_users_file_prints_stays_out_of_the_output(
    capsys: pytest.CaptureFixture[str], user_file: Path
) -> None:
    user_file.write_text(f"{USER_FILE}\nprint('loaded')\n")
    _, out, err = run(capsys, "plan", f"{user_file}:add", "--target", "a100", "--json")
    assert json.loads(out)["kernel"] == "add"
    assert "loaded" in err


@pytest.mark.parametrize(
    ("text", "name", "code", "args"),
    [
        (USER_FILE, "absent", "user_file.not_defined", {"name": "absent"}),
        (USER_FILE, "not_a_function", "function.type", {"type": "int"}),
        (
            "import nosuchmodule",
            "f",
            "user_file.failed",
            {"error": "ModuleNotFoundError", "text": "No module named 'nosuchmodule'"},
        ),
        ("def f(:", "f", "user_file.failed", {"error": "SyntaxError"}),
    ],
)
def test_a_wrong_file_is_one_line(
    text: str,
    name: str,
    code: str,
    args: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    user_file: Path,
) -> None:
    user_file.write_text(text)
    status, _, err = run(capsys, "plan", f"{user_file}:{name}", "--target", "a100")
    assert status == 1
    told(err, code, **args)


@pytest.mark.skipif(gpu() is not None, reason="a GPU is here")
def test_bench_needs_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "bench") == (1, "", "pipeliner: cannot time kernels: no GPU is visible\n")


@pytest.mark.parametrize(
    ("instruction", "waits"), [("mma", "__syncthreads();"), ("wgmma", "mbarrier_wait(")]
)
def test_demo(capsys: pytest.CaptureFixture[str], instruction: str, waits: str) -> None:
    size = ("--m", "256", "--n", "256", "--k", "256", "--target", "h100")
    code, out, _ = run(capsys, "demo", "gemm", *size, "--instruction", instruction)
    assert code == 0
    for step in range(1, 7):
        assert f"\n{step}. " in out
    assert waits in out
    assert "right: gemm_" in out
