"""What compute-sanitizer says, read kernel by kernel."""

from __future__ import annotations

from pipeliner.mutation import mutants

from ..gpu.planted import planted_with
from .proof_sample import FORMS, Drawn
from .sanitizer_sample import TARGET, blind_spot, forms, objections, sample, verdict_of

SAID = """========= COMPUTE-SANITIZER
KERNEL 0_mutant
========= Error: Race reported between Write access at 0x1 and Read access at 0x2 [64 hazards]
=========
KERNEL 0_whole
KERNEL 1_mutant
========= Warning: Race reported between Write access at 0x1 and Write access at 0x2
KERNEL end
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""


def test_objections_belong_to_the_kernel_whose_line_is_before_them() -> None:
    found = {"0_mutant": True, "0_whole": False, "1_mutant": True, "end": False}
    assert objections(SAID) == found


def test_a_run_that_stopped_has_no_end() -> None:
    assert "end" not in objections(SAID.partition("KERNEL end")[0])


def test_only_forms_that_racecheck_can_judge_are_drawn() -> None:
    assert {sample(7, number).form for number in range(50)} == set(forms())
    assert all(FORMS[form][2]["mechanism"] != "tma" for form in forms())


def test_what_racecheck_looks_past_has_a_reason_or_none() -> None:
    assert "one thread" in blind_spot([{"threads": [5, 5]}, {"threads": [7]}])
    assert blind_spot([{"threads": [31, 32]}, {"threads": [5, 5]}]) == ""


def test_a_defect_is_planted_in_what_is_compiled() -> None:
    kernel = Drawn(4, 2, 2, 1, 0).built(TARGET)
    barrier = next(one for one in mutants(kernel.lowered) if one.kind == "barrier")
    whole, broken = kernel.cuda, planted_with(kernel, barrier).cuda
    assert broken.count("__syncthreads") == whole.count("__syncthreads") - 1


def test_a_verdict_needs_a_run_and_both_sides() -> None:
    wrong, right = {"objects": True}, {"objects": False}
    assert [verdict_of(wrong, True), verdict_of(right, False)] == ["both object", "both accept"]
    assert {verdict_of(wrong, False), verdict_of(right, True)} == {"DISAGREE"}
    assert verdict_of(wrong, None) == "not run"
