"""Every defect that is planted in a pipelined attention loop shows."""

from __future__ import annotations

from pipeliner.mutation import mutate

from .tiles import attention


def test_every_mutant_of_the_attention_loop_dies() -> None:
    """None is left to a proof: the wait for V, which that for K makes idle, is not emitted."""
    report = mutate(attention, target="a100")
    assert not report.survivors, [str(fate.mutant) for fate in report.survivors]
    assert {fate.mutant.kind for fate in report.fates} == {"barrier", "wait", "commit", "slot"}
