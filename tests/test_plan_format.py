"""A version of the plan's format means the same as long as it is written."""

from __future__ import annotations

import json

import pytest

from pipeliner.errors import PlanError
from pipeliner.plan import KernelPlan
from pipeliner.plan.kernel_plan import PLAN_VERSION, READ_VERSIONS

from .plan_format import KEPT, fields_of, today
from .refusals import refused

SAVED = json.loads(KEPT.read_text())


def test_a_version_keeps_its_fields() -> None:
    """Raise PLAN_VERSION, translate the old one in values/released.py, and keep the new fields."""
    assert SAVED["version"] == PLAN_VERSION, "python -m tests.plan_format keeps the new ones"
    found = fields_of()
    assert set(SAVED["fields"]) <= set(found)
    for name, fields in SAVED["fields"].items():
        kept = {field: kind for field, kind in found[name].items() if field in fields}
        assert kept == fields, f"{name} has other fields than version {PLAN_VERSION} had"


def test_what_is_added_to_a_version_may_be_left_out() -> None:
    """Plans that were written before do not have it."""
    for name, fields in fields_of().items():
        added = {
            one: kind for one, kind in fields.items() if one not in SAVED["fields"].get(name, {})
        }
        if name in SAVED["fields"]:
            assert all(kind.endswith("?") for kind in added.values()), (name, added)


def test_the_walk_sees_all_objects() -> None:
    assert {"KernelPlan", "LoopPlan", "RingPlan", "CopyPlan"} <= set(fields_of())
    assert today()["version"] == PLAN_VERSION


@pytest.mark.parametrize("version", [0, PLAN_VERSION + 1, "2", None])
def test_another_version_is_refused_by_its_number(version: object) -> None:
    with refused("plan.version", PlanError, version=PLAN_VERSION, found=repr(version)):
        KernelPlan.from_json(json.dumps({"version": version}))


def test_this_version_and_the_one_before_are_read() -> None:
    assert READ_VERSIONS == (PLAN_VERSION - 1, PLAN_VERSION)
