"""Every defect that is planted in a pipelined attention loop shows."""

from __future__ import annotations

from pipeliner.mutation import mutate

from .tiles import attention


def test_every_mutant_of_the_attention_loop_dies() -> None:
    report = mutate(attention, target="a100")
    survivors = {fate.mutant.origin.op for fate in report.unexplained if fate.mutant.origin}
    assert survivors == {"V_shared.wait"}  # K's wait before it leaves no group in flight
    assert {fate.mutant.kind for fate in report.fates} == {"barrier", "wait", "commit", "slot"}
