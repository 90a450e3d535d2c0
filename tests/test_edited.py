"""Edit and recompile, and failing cases that save themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pipeliner
from pipeliner import cli
from pipeliner.commands.kernels.build import measurable, verdict
from pipeliner.commands.shared.workload import ScheduledFunction
from pipeliner.errors import ToolError, WorkloadError
from pipeliner.kernel.edited import EditedKernel
from pipeliner.kernel.postproc import POSTPROC
from pipeliner.measuring import Measurement
from pipeliner.plan.request import Request
from pipeliner.records.functions import function_workload
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.reproducer import reproducer
from tests.refusals import printed, refused, the, told
from tests.tuning.functions import reversing

ROOT = Path(__file__).parents[1]
SPEC = Gemm(64, 64, 64)
OPTIONS = ["gemm", "--m", "64", "--n", "64", "--k", "64", "--tile", "64x64x32", "--target", "a100"]


@pytest.fixture(scope="module")
def kernel():
    return pipeliner.build(schedule_gemm(SPEC, GemmTile(64, 64, 32)), "a100")


@pytest.mark.nvcc
@pytest.mark.deep("test_the_round_trip_by_the_command")
def test_an_edited_kernel_is_compiled_in_place_of_the_printed_one(kernel):
    edited = EditedKernel(kernel, kernel.cuda.replace("__syncthreads();", "/* none */", 1))
    assert "/* none */" in edited.cuda
    assert edited.resources.shared == kernel.resources.shared
    again = pipeliner.build(schedule_gemm(SPEC, GemmTile(64, 64, 32)), "a100")
    assert again.cuda == kernel.cuda  # the hook is gone


def test_what_the_host_does_not_launch_is_refused(kernel):
    for change in (("half* __restrict__ A_ptr", "float* A_ptr"), ("gemm_64", "gemm_65")):
        changed = kernel.cuda.replace(*change)
        assert changed != kernel.cuda
        with refused("kernel.signature", WorkloadError) as raised:
            EditedKernel(kernel, changed)
        assert raised.value.reason["expected"].startswith("void __launch_bounds__")
        assert raised.value.reason["found"][0].startswith("void __launch_bounds__")
    with refused("kernel.no_signature", WorkloadError):
        EditedKernel(kernel, "// nothing")


@pytest.mark.nvcc
def test_what_does_not_compile_is_told_by_the_name_of_its_file(tmp_path, capsys):
    file = tmp_path / "with space" / "k.cu"
    file.parent.mkdir()
    assert cli.main(["inspect", *OPTIONS, "--emit", "cuda", "-o", str(file)]) == 0
    lines = file.read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if "__syncthreads();" in line)
    lines[at] = lines[at].replace("__syncthreads", "__sink")
    file.write_text("\n".join(lines))
    capsys.readouterr()
    assert cli.main(["build", *OPTIONS, "--from", str(file)]) == 1
    err = capsys.readouterr().err
    assert f'{file}({at + 1}): error: identifier "__sink" is undefined' in err


@pytest.mark.nvcc
def test_where_a_library_cannot_be_written(tmp_path, capsys):
    missing = tmp_path / "none" / "k.so"
    assert cli.main(["build", *OPTIONS, "-o", str(missing)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    told(err, "file.no_folder", path=str(missing), folder=str(missing.parent))
    assert cli.main(["build", *OPTIONS, "-o", str(tmp_path)]) == 1
    reason = printed(capsys.readouterr().err)
    assert (reason.code, reason["path"]) == ("kernel.export", str(tmp_path))
    assert "directory" in str(reason["why"]).lower()
    assert "g++" not in str(reason["why"])


def test_anothers_hook_is_left_alone(kernel):
    import tvm_ffi

    tvm_ffi.register_global_func(POSTPROC, lambda code, target: code)
    try:
        with refused("nvcc.postproc", ToolError):
            _ = EditedKernel(kernel, kernel.cuda).executable
    finally:
        tvm_ffi.registry.remove_global_func(POSTPROC)


@pytest.mark.nvcc
def test_the_round_trip_by_the_command(tmp_path, capsys):
    file = tmp_path / "k.cu"
    assert cli.main(["inspect", *OPTIONS, "--emit", "cuda", "-o", str(file)]) == 0
    file.write_text(file.read_text().replace("__syncthreads();", "__syncthreads(); /* mine */"))
    library = tmp_path / "k.so"
    assert cli.main(["build", *OPTIONS, "--from", str(file), "-o", str(library)]) == 0
    out = capsys.readouterr().out
    assert "edited" in out
    assert library.stat().st_size > 0
    file.write_text(file.read_text().replace("/* mine */", "mine"))
    assert cli.main(["build", *OPTIONS, "--from", str(file)]) == 1
    assert "error" in capsys.readouterr().err


def test_files_that_cannot_be_read(tmp_path, capsys):
    assert cli.main(["build", *OPTIONS, "--from", str(tmp_path / "none.cu")]) == 1
    told(capsys.readouterr().err, "file.read", why="No such file or directory")


def test_the_verdict_in_one_line():
    found = Measurement((10.0, 10.0, 11.0), (12.0, 12.0, 12.0))
    assert verdict(found) == "edited: right, 10.00 us; original 12.00 us: 1.200 times as fast"
    assert verdict(Measurement(failure="wrong: x")) == "edited: wrong: x"


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path)],
        cwd=path.parent,
        env={**__import__("os").environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_a_saved_case_runs_and_says_right_where_it_is(kernel, tmp_path):
    path = tmp_path / "case.py"
    path.write_text(
        reproducer(kernel, path.name, seed=3, timings=("late",), orders=("random",), spec=SPEC)
    )
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("right error / bound")


USER = """
from pipeliner.commands.kernels.build import measurable
from pipeliner.commands.shared.workload import ScheduledFunction
from pipeliner.plan.request import Request
from pipeliner.records.functions import function_workload
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

product = schedule_gemm(Gemm(64, 64, 32), GemmTile(64, 64, 32))


def reference(a, b, c):
    return a.astype("float64") @ b.astype("float64").T + 1
"""


@pytest.mark.deep("test_a_saved_case_runs_and_says_right_where_it_is")
def test_a_wrong_kernel_saves_itself_and_stays_wrong(tmp_path, capsys):
    source, saved = tmp_path / "mine.py", tmp_path / "sa ved.py"
    source.write_text(USER)
    arguments = [f"{source}:product", "--target", "a100", "--save", str(saved)]
    assert cli.main(["verify", *arguments, "--timing", "late", "--order", "lockstep"]) == 1
    assert str(saved) in capsys.readouterr().err
    source.unlink()
    assert "`python 'sa ved.py'`" in saved.read_text()
    done = run(saved)
    assert (done.returncode, done.stdout[:5]) == (1, "WRONG"), done.stderr


def test_what_can_be_compared_is_a_workload_or_a_function_of_known_extents():
    def work(function, spec=None):
        return ScheduledFunction(function, None, Request(), spec)

    assert measurable(work(None, SPEC)) == (SPEC, "")
    found, why = measurable(work(reversing(8)))
    assert (found, why) == (function_workload(reversing(8)), "")
    open_m = schedule_gemm(Gemm(None, 64, 64), GemmTile(64, 64, 32)).mod["main"]
    found, why = measurable(work(open_m))
    assert (found, the("function.symbolic", [why])["parameter"]) == (None, "A")
