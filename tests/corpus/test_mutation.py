"""Every defect that is planted in a pipelined attention loop shows."""

from __future__ import annotations

from pipeliner.mutation import mutate

from .tiles import attention


def test_every_mutant_of_the_attention_loop_dies() -> None:
    report = mutate(attention, target="a100")
    assert report.ok, [str(fate.mutant) for fate in report.unexplained]
    proved = {fate.mutant.origin.op: fate.reason for fate in report.survivors if fate.mutant.origin}
    # The wait for K, just before in every step, leaves no group in flight.
    assert set(proved) <= {"V_shared.wait"}
    assert all("so it never waits" in reason for reason in proved.values())
    assert {fate.mutant.kind for fate in report.fates} == {"barrier", "wait", "commit", "slot"}
