"""The list of passes: each has a name, a file and a docstring of its own that draws."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

from pipeliner.passes.ir.named_pass import ARROW, Pass, named_pass
from pipeliner.passes.listed import PASSES, SITES, site_of
from pipeliner.passes.steps import Steps

from . import ring_kernels

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("one", PASSES, ids=lambda one: one.name)
def test_a_pass_says_what_it_does_and_draws_it(one: Pass) -> None:
    assert (ROOT / one.file).exists()
    assert one.summary == one.doc.splitlines()[0]
    assert one.summary.endswith(".")
    assert ARROW in one.doc


def test_each_pass_has_a_name_and_a_first_line_of_its_own() -> None:
    assert len({one.name for one in PASSES}) == len(PASSES)
    assert len({one.summary for one in PASSES}) == len(PASSES)
    assert [one for site in SITES for one in site.passes] == list(PASSES)
    assert all(one in site_of(one).passes for one in PASSES)


def test_the_file_of_a_site_runs_its_passes() -> None:
    for site in SITES:
        text = (ROOT / site.file).read_text() + (ROOT / "passes/pipeline.py").read_text()
        assert all(one.rewrite.__name__ in text for one in site.passes), site.name


def test_a_pass_is_called_like_its_function_and_timed_by_its_name() -> None:
    @named_pass("Renamed")
    def renamed(func: tvm.tirx.PrimFunc, name: str) -> tvm.tirx.PrimFunc:
        return func.with_attr("global_symbol", name)

    func = ring_kernels.one_slot
    assert renamed(func, "a").attrs["global_symbol"] == "a"
    timing = tvm.ir.instrument.PassTimingInstrument()
    with tvm.transform.PassContext(instruments=[timing]):
        steps = Steps(func)
        steps.rewrite(renamed, "b")
        assert "pipeliner.Renamed" in timing.render()
    assert steps.func.attrs["global_symbol"] == "b"
