"""Wrong executions, drawn: peers' mistakes, with both statements and the order of the ops."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pipeliner
from pipeliner.cli import main
from pipeliner.mutation.mutants import mutants, mutated
from pipeliner.proof.prove import prove
from pipeliner.proof.running.drawn import COLUMNS, Moment, drawing
from pipeliner.proof.running.refuted import Refuted
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

from ..emulator.raw import lower
from ..emulator.ring import DEPTH, reversing_ring
from .rings import ring


def refuted(lowered: Any) -> Refuted:
    found = prove(lowered).refuted
    assert found is not None
    return found


def test_a_drawing_has_a_row_for_each_op_and_a_column_for_each_moment() -> None:
    order = (Moment("copy", 0), Moment("copy", 1), Moment("use", 0, "?"), Moment("copy", 2, "!"))
    assert drawing(order) == ["copy |  0  1  . 2!", "use  |  .  . 0?  ."]
    assert drawing(()) == []


@pytest.mark.parametrize(
    "lowered",
    [
        lower(ring(mistake="parity")),
        lower(ring(mistake="early release")),
        lower(reversing_ring(8, wait=DEPTH - 1)),
    ],
    ids=["parity lost", "released before it is read", "waited before the commit"],
)
def test_mistakes_of_peers_are_drawn(lowered: Any) -> None:
    wrong = refuted(lowered)
    marks = [moment.mark for moment in wrong.order]
    assert marks[-1] == "!"
    assert marks.count("!") == 1
    assert (marks.count("?") == 1) == (wrong.hazard.other is not None)
    assert len(wrong.order) <= COLUMNS
    rows = drawing(wrong.order)
    assert sum("!" in row for row in rows) == 1


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("lost_parity", "C = S", ""),
        ("waited_before_commit", "C = S", "S.cp"),
        ("released_before_read", "A_shared", "matmul_update_o"),
    ],
)
def test_the_command_draws_them(
    name: str, first: str, second: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", f"examples/known_bugs.py:{name}", "--target", "h100", "--prove", "--json"]
    assert main([*words, "--timing", "late", "--order", "lockstep"]) == 1
    (kernel,) = json.loads(capsys.readouterr().out)["proof"]["kernels"]
    assert not kernel["ok"]
    marked = {mark: row for row in kernel["drawn"] for mark in "!?" if mark in row}
    assert marked["!"].startswith(first)
    assert marked.get("?", "").startswith(second)


def test_a_slot_that_is_copied_over_while_the_tensor_cores_read_it_is_drawn() -> None:
    schedule = schedule_gemm(Gemm(m=64, n=16, k=256), GemmTile(64, 16, 64))
    options = {"instruction": "wgmma", "roles": 1, "mechanism": "tma", "store": "direct"}
    lowered = pipeliner.build(schedule, "h100", depth=2, **options).lowered
    (wait, *_) = (one for one in mutants(lowered) if one.what == "wgmma_wait_group")
    wrong = refuted(mutated(lowered, wait))
    by_mark = {moment.mark: moment for moment in wrong.order if moment.mark}
    assert by_mark["!"].op.startswith(("A_shared", "B_shared"))
    assert by_mark["?"].op == "matmul_update_o"
    copied, multiplied = by_mark["!"].iteration, by_mark["?"].iteration
    assert copied is not None
    assert multiplied is not None
    assert copied - multiplied == 2  # the same slot of a ring of two
