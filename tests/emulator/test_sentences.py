"""The sentences of the emulator's reasons, each kind of them once; elsewhere codes are asked for."""

from __future__ import annotations

import json

import pytest

from pipeliner.diagnostics import Reason
from pipeliner.emulator import Hazard, Site

PHASE = Reason("hazard.phase", phase=2, arrived=1, expected=4)
FULL = Reason("hazard.mbarrier", buffer="full", offset=8)
SENTENCES = [
    (
        Reason("emulator.argument_names", expected=("A", "C"), missing=("C",), unknown=()),
        "expected arguments A, C: missing (C), unknown ()",
    ),
    (
        Reason("emulator.argument_strides", name="A", expected=(40, 1), strides=(48, 1)),
        "expected strides (40, 1) for parameter 'A', got (48, 1)",
    ),
    (
        Reason("ptx.modifier", instruction="prmt", modifier="f4e"),
        "cannot emulate PTX instruction 'prmt' with '.f4e'",
    ),
    (
        Reason("tensor_map.range", field="box size 1", low=1, high=256, value=257),
        "cannot encode a tensor map: its box size 1 is 257, expected 1 to 256",
    ),
    (
        Reason("tensor_map.lengths", rank=2, strides=1, box=1, element_strides=2),
        "cannot encode a tensor map of rank 2: got 1 stride, 1 box size and 2 element strides",
    ),
    (
        Reason("hazard.surplus_arrivals", count=1, state=PHASE),
        "1 arrival too many: phase 2 has 1 of 4 arrivals",
    ),
    (
        Reason(
            "hazard.deadlock",
            waits=(
                Reason(
                    "hazard.waits_for",
                    who="threads 0-31",
                    what=Reason(
                        "hazard.parity",
                        parity=0,
                        mbarrier=Reason("hazard.of_cta", what=FULL, block=(1, 0, 0)),
                        state=Reason("hazard.phase_lacks", phase=PHASE, nbytes=16),
                    ),
                ),
                Reason("hazard.waits_at", who="threads 32-63", barrier=1, arrived=32, expected=64),
                Reason("hazard.more_waits", count=2),
            ),
        ),
        (
            "threads 0-31 wait for parity 0 of mbarrier full at byte 8 of CTA (1, 0, 0): phase 2 has "
            "1 of 4 arrivals, 16 bytes missing; threads 32-63 wait at barrier 1: 32 of 64 threads; "
            "and 2 more"
        ),
    ),
    (
        Reason("hazard.aliased", buffers=("U", "V")),
        "U and V share these bytes, and nothing orders their uses",
    ),
    (
        Reason("mutation.hazard", hazard="race", where=" on A, byte 8"),
        "race on A, byte 8",
    ),
    (
        Reason("mutation.unneeded", why=Reason("mutation.unrolled")),
        (
            "TVM unrolled the loop that needs it; no data decides what is accessed, and a run without "
            "it has no unordered accesses"
        ),
    ),
    (
        Reason("verification.no_cta", block=(9, 0, 0)),
        "cannot run CTA (9, 0, 0): the grid has no such",
    ),
]


@pytest.mark.parametrize(
    ("reason", "sentence"), SENTENCES, ids=lambda value: getattr(value, "code", "")
)
def test_a_reason_says(reason: Reason, sentence: str) -> None:
    assert str(reason) == sentence


def test_a_hazard_has_its_reason_as_words_and_as_json() -> None:
    detail = Reason("hazard.unordered_cta", block=(1, 0, 0))
    hazard = Hazard("race", Site("A[0] = 1"), detail, buffer="A", offset=8)
    assert hazard.title == (
        "race on A, byte 8: a thread of CTA (1, 0, 0), and nothing orders the two"
    )
    data = json.loads(json.dumps(hazard.as_dict()))
    assert Reason.from_dict(data["detail"]) == detail
    assert data["detail"]["text"] == str(detail)
    assert Hazard("race", Site("A[0] = 1")).as_dict()["detail"] == ""
