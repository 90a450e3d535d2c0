"""What the released version wrote, and its names of options, mean the same today."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any, Final

import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.experiments.file import read_experiment
from pipeliner.plan import KernelPlan
from pipeliner.plan.comparing import difference
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate
from pipeliner.schedules import ConvTile, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import Gemm

SAVED: Final = json.loads(
    gzip.decompress((Path(__file__).parent / "released" / "version_1.json.gz").read_bytes())
)
"""Plans and candidates as version 1 wrote them; most plans without the edges of their loops."""

RENAMED: Final = Reason("request.renamed", option="parts", now="reduction")

NOT_OBEYED: Final = frozenset({"edges", "reason", "reasons", "predicted_us", "predicted_within"})
"""What a plan says of itself: the model predicts what it predicts today."""

KERNELS: Final = {
    "ping-pong": lambda: schedule_gemm(Gemm(512, 256, 256), GemmTile(64, 128, 64, persistent=4)),
    "split-K added": lambda: schedule_gemm(Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=2)),
    "in flight": lambda: schedule_gemm(Gemm(128, 64, 512), GemmTile(128, 64, 64)),
    "pixels": lambda: schedule_conv(conv2d(1, 8, 8, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64)),
    "tf32 turned": lambda: schedule_gemm(
        Gemm(128, 64, 192, dtype="tf32", layout="TT"), GemmTile(128, 64, 32)
    ),
}


@pytest.mark.parametrize("name", SAVED["plans"])
def test_its_plans_are_obeyed(name: str) -> None:
    given = KernelPlan.from_json(json.dumps(SAVED["plans"][name]))
    made = pipeliner.plan_of(pipeliner.pipeline(KERNELS[name](), "h100", plan=given))
    again = difference(made, given, "plan", NOT_OBEYED)
    assert not again


def said(one: warnings.WarningMessage) -> tuple[Reason, str]:
    """What a warning says, and of which file."""
    assert isinstance(one.message, FutureWarning)
    return one.message.args[0], one.filename


def test_its_records_are_read() -> None:
    split = Candidate(GemmTile(128, 64, 64, splits=2), Request(reduction="atomic"))
    assert Candidate.from_json(SAVED["candidate"]) == split
    tile = GemmTile(128, 64, 64, persistent=132, stationary=True, raster_group=4)
    assert Candidate.from_json(SAVED["persistent"]) == Candidate(tile)


def test_old_options_work_with_a_note() -> None:
    func = KERNELS["split-K added"]()
    with pytest.warns(FutureWarning) as told:
        old = pipeliner.pipeline(func, "h100", parts="reduce_add")
    assert [said(one) for one in told] == [(RENAMED, __file__)]
    new = pipeliner.pipeline(func, "h100", reduction="atomic")
    assert pipeliner.plan_of(old) == pipeliner.plan_of(new)
    with pytest.raises(TypeError) as raised:
        pipeliner.pipeline(func, "h100", part="reduce_add")
    assert raised.value.args == (Reason("function.option", option="part"),)


def test_old_options_of_an_experiment_are_named_with_their_file(tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    path.write_text(
        """
        [[workload]]
        kind = "gemm"
        square = 512

        [[variant]]
        name = "today"
        reduction = "atomic"

        [[variant]]
        name = "as it was"
        "parts" = "reduce_add"
        """
    )
    with pytest.warns(FutureWarning) as told:
        found = read_experiment(path)
    assert [said(one) for one in told] == [(RENAMED, str(path))]
    assert path.read_text().splitlines()[told[0].lineno - 1].strip() == '"parts" = "reduce_add"'
    assert [one.request for one in found.variants] == [Request(reduction="atomic")] * 2


def test_an_inline_variant_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "inline.toml"
    variant = '{ name = "as it was", parts = "reduce_add" }'
    path.write_text(f'variant = [{variant}]\n[[workload]]\nkind = "gemm"\nsquare = 512\n')
    with pytest.warns(FutureWarning) as told:
        read_experiment(path)
    assert [(said(one), one.lineno) for one in told] == [((RENAMED, str(path)), 1)]


def test_old_options_of_the_command_work_with_a_note(capsys: Any) -> None:
    from pipeliner.cli import main

    asked = ["plan", "gemm", "--m", "512", "--n", "256", "--k", "256", "--target", "h100"]
    told = []
    for name in ("--ctas", "--persistent"):
        assert main([*asked, "--tile", "64x128x64", name, "4", "--json"]) == 0
        told.append(capsys.readouterr())
    assert told[0].out == told[1].out
    note = Reason("usage.renamed", option="--ctas", now="persistent")
    assert told[0].err == f"pipeliner plan: note: {note}\n"
    assert told[1].err == ""
