"""Convolutions and fused epilogues on the command line."""

from __future__ import annotations

import pytest

from pipeliner import cli
from pipeliner.diagnostics import Reason
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, versions_key, workload_key
from pipeliner.schedules import Gemm, GemmTile
from tests.refusals import says, the, told

SMALL = ("--h", "6", "--w", "6", "--c", "32", "--k", "16")


def run(capsys, *argv):
    code = cli.main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_convolution_is_planned(capsys):
    code, out, _ = run(capsys, "plan", "conv2d", "--target", "h100")
    assert code == 0
    assert out.startswith("kernel conv2d_32x56x56x64_k64_3x3_p1_float16_nhwc: pipelined")
    assert "zero-filled" in out


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["conv2d", *SMALL, "--stride", "2", "--pad", "0,1,0,1"], "conv2d_1x6x6x32_k16_3x3_s2_"),
        (["conv2d", *SMALL, "--grad", "weight"], "weight_grad_conv2d_1x6x6x32"),
        (["conv2d", *SMALL, "--grad", "input", "--groups", "2"], "input_grad_conv2d_1x6x6x32"),
        (["conv2d", *SMALL, "--layout", "nchw", "--dtype", "fp32"], "conv2d_1x6x6x32"),
        (["conv2d", *SMALL, "--dilation", "2", "--fuse", "bias,relu"], "conv2d_1x6x6x32"),
        (["conv1d", "--w", "12", "--s", "5", "--c", "16", "--k", "16"], "conv1d_1x12x16_k16_5_p2"),
        (["conv3d", "--c", "4", "--k", "8", "--d", "3", "--h", "4", "--w", "4"], "conv3d_1x3x4x4"),
        (["conv2d", *SMALL[:4], "--c", "8", "--k", "8", "--groups", "8"], "conv2d_1x6x6x8_k8"),
        (["gemm", "--m", "32", "--n", "32", "--k", "64", "--fuse", "bias,gelu"], "gemm_32x32x64"),
    ],
)
def test_a_small_one_is_verified(capsys, argv, name):
    one = ("--n", "1") if "--n" not in argv else ()
    code, out, _ = run(capsys, "verify", *argv, *one, "--target", "sm_80", "--timing", "late")
    assert code == 0
    assert out.startswith(f"right: {name}")


@pytest.mark.parametrize(
    ("argv", "code", "args"),
    [
        (["conv2d", "--groups", "3"], "conv.groups", {"channels": 64, "groups": 3}),
        (["conv2d", "--h", "2", "--pad", "0"], "conv.empty", {"name": "h", "size": 2}),
        (["conv2d", "--layout", "HWCN"], "workload.layout", {"value": "HWCN"}),
        (["conv2d", "--m", "3"], "option.not_of_workload", {"option": "m", "workload": "conv2d"}),
        (["gemm", "--stride", "2"], "option.not_of_workload", {"option": "stride"}),
        (["conv1d", "--h", "3"], "option.not_of_workload", {"option": "h"}),
        (["conv2d", "--stride", "1,2,3"], "conv.numbers", {"name": "stride", "found": 3}),
        (["conv2d", "--grad", "input", "--fuse", "relu"], "conv.gradient", {"step": "relu"}),
    ],
)
def test_what_makes_no_sense_is_one_line(capsys, argv, code, args):
    status, out, err = run(capsys, "plan", *argv)
    assert (status, out) == (1, "")
    told(err, code, **args)


SIZES = ("--m", "128", "--n", "128", "--k", "128", "--target", "a100")


TUNED = Reason("recorded.tuned", us=9.0, tried=1, file="with space.sqlite")


@pytest.fixture
def tuned(tmp_path):
    """A record of a tile and a depth that the model would not choose."""
    candidate = Candidate(GemmTile(64, 32, 16), Request(depth=3, mechanism="register"))
    path = tmp_path / "with space.sqlite"
    with Records(path) as records:
        key = (workload_key(Gemm(128, 128, 128)), "a100", versions_key())
        records.add(Record(*key, candidate.to_json(), samples=(9.0,)))
    return path


def test_commands_take_what_was_tuned(capsys, tuned, monkeypatch):
    named = run(capsys, "plan", "gemm", *SIZES, "--json", "--db", str(tuned))
    monkeypatch.setenv("PIPELINER_DB", str(tuned))
    code, out, _ = run(capsys, "plan", "gemm", *SIZES, "--json")
    assert named == (code, out, "") == (0, out, "")
    plan = KernelPlan.from_json(out)
    assert plan.reasons[0] == TUNED
    assert (plan.matmuls[0].m, plan.matmuls[0].n) == (64, 32)
    assert {copy.mechanism for copy in plan.copies} == {"register"}
    _, out, _ = run(capsys, "inspect", "gemm", *SIZES, "--emit", "plan")
    assert str(TUNED) in " ".join(out.split())
    _, out, _ = run(capsys, "plan", "gemm", *SIZES, "--depth", "2", "--json")
    asked = KernelPlan.from_json(out)
    assert says("recorded.not_used", asked.reasons[:1])
    _, out, _ = run(capsys, "plan", "gemm", *SIZES, "--tile", "32x32x32", "--json")
    assert KernelPlan.from_json(out).matmuls[0].m == 32
    code, out, _ = run(capsys, "verify", "gemm", *SIZES, "--timing", "late", "--order", "lockstep")
    assert code == 0


@pytest.mark.nvcc
def test_a_tuned_kernel_is_built_by_the_command(capsys, tuned):
    code, out, _ = run(capsys, "build", "gemm", *SIZES, "--db", str(tuned))
    assert code == 0
    assert out.endswith(f"{TUNED}\n")


def test_records_are_of_functions_too(capsys, tuned):
    """A function with knobs is planned in its first setting."""
    for what in ("examples/streaming.py:add", "tests/tuning/functions.py:knobbed"):
        asked = ("plan", what, "--target", "a100", "--db", str(tuned), "--json")
        code, out, _ = run(capsys, *asked)
        assert code == 0
        assert says("recorded.no_record", KernelPlan.from_json(out).reasons[:1])
    code, _, err = run(capsys, "plan", "gemm", *SIZES, "--db", str(tuned.with_name("none")))
    assert code == 1
    told(err, "records.missing")


def test_a_walk_is_of_gemms(capsys):
    code, _, err = run(capsys, "demo", "conv2d")
    assert code == 1
    told(err, "command.demo", workload="conv2d")


def test_what_hopper_has_can_be_asked_for(capsys):
    small = ("gemm", "--m", "256", "--n", "128", "--k", "128", "--target", "h100")
    code, out, _ = run(capsys, "plan", *small, "--tile", "128x64x64", "--persistent", "2", "--json")
    assert code == 0
    plan = KernelPlan.from_json(out)
    assert plan.matmuls[0].instruction == "wgmma.m64n64k16.f16.f32"
    assert the("choice.taken", plan.reasons[-1:])["what"] == "wgmma"
    assert ([store.mechanism for store in plan.stores], plan.cluster) == (["tma"], 1)
    asked = ("--tile", "128x64x64", "--persistent", "0", "--store", "direct", "--cluster", "2")
    _, out, _ = run(capsys, "plan", *small, *asked, "--json")
    plan = KernelPlan.from_json(out)
    assert ([store.mechanism for store in plan.stores], plan.cluster) == (["direct"], 2)
    _, out, _ = run(capsys, "plan", *small, "--instruction", "mma", "--json")
    plan = KernelPlan.from_json(out)
    assert plan.matmuls[0].instruction.startswith("mma.")
    code, _, err = run(capsys, "plan", *small, "--instruction", "mma", "--store", "tma")
    assert code == 1
    told(err, "store.no_producer")


@pytest.mark.parametrize(
    ("cluster", "shared"), [(1, [1, 1]), (2, [2, 1]), (4, [4, 1]), (8, [8, 1])], ids=str
)
def test_tiles_are_put_in_the_clusters_that_are_asked_for(capsys, cluster, shared):
    """A grid of three by forty tiles: in the default order no neighbours have rows in common."""
    small = ("gemm", "--m", "380", "--n", "5040", "--k", "704", "--target", "h200")
    asked = ("--tile", "128x128x64", "--cluster", str(cluster))
    code, out, err = run(capsys, "plan", *small, *asked, "--json")
    assert code == 0, err
    plan = KernelPlan.from_json(out)
    assert ([copy.multicast for copy in plan.copies], plan.cluster) == (shared, cluster)


def test_a_convolution_says_whether_warpgroups_multiply_it(capsys):
    asked = ("conv2d", "--n", "32", "--h", "56", "--w", "56", "--r", "3", "--s", "3", "--pad", "1")
    asked = (*asked, "--target", "h100", "--json")
    found = {}
    for name, channels in (("layer", ("--c", "64", "--k", "64")), ("stem", ("--c", "3"))):
        code, out, _ = run(capsys, "plan", *asked, *channels)
        assert code == 0
        found[name] = KernelPlan.from_json(out)
    assert found["layer"].matmuls[0].instruction == "wgmma.m64n64k16.f16.f32"
    assert says("choice.taken", found["layer"].reasons[-1:])
    assert found["stem"].matmuls[0].instruction.startswith("mma.")
    assert the("choice.not_taken", found["stem"].reasons[-1:]).why.code == "mechanism.for_wgmma"
    _, out, _ = run(capsys, "plan", *asked, "--c", "64", "--k", "64", "--instruction", "mma")
    assert KernelPlan.from_json(out).matmuls[0].instruction == "mma.m16n8k16.f16.f32"


def test_a_persistent_grid_is_a_matmuls(capsys):
    code, _, _ = run(capsys, "plan", "conv2d", *SMALL, "--persistent", "3", "--target", "sm_80")
    assert code == 0
    small = ("attention", "--queries", "64", "--keys", "64", "--dim", "16", "--heads", "8")
    asked = ("--tile", "16x16", "--persistent", "3", "--target", "sm_80", "--json")
    code, out, _ = run(capsys, "plan", *small, *asked)
    assert code == 0
    assert "tile" in [loop.name for loop in KernelPlan.from_json(out).loops]
    depthwise = ("conv2d", *SMALL[:4], "--c", "8", "--k", "8", "--groups", "8")
    code, _, err = run(capsys, "plan", *depthwise, "--persistent", "3", "--target", "sm_80")
    assert code == 1
    told(err, "option.persistent", count=3)
