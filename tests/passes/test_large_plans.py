"""A number that no kernel can have, wherever it stands in a plan, is refused before any work."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pipeliner
from pipeliner import KernelPlan
from pipeliner.errors import PlanError
from pipeliner.plan.comparing import FREE as UNCOMPARED

from ..verify.edited_plans import SUBJECTS, ready

LARGE = 10**9
SECONDS = 5
"""Of the processor, for one edit: hundreds of times what it takes to refuse it."""

FREE = {"order", "version", *UNCOMPARED}
"""Numbers that may be anything: ops are told apart by their order, estimates are made anew, and
those of reasons are only said."""


def numbers(at: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers stand in a plan; of lists, in the first part and in the last."""
    items = list(at.items() if isinstance(at, dict) else enumerate(at))
    for key, value in items if isinstance(at, dict) else dict(items[:1] + items[-1:]).items():
        if key in FREE:
            continue
        if isinstance(value, (dict, list)):
            yield from numbers(value, (*path, key))
        elif type(value) is int:
            yield (*path, key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mma.sync", "through registers", "ping-pong", "streaming"])
@pytest.mark.part(6)
def test_a_large_number_is_refused_at_once(name: str) -> None:
    known, target = ready(name), SUBJECTS[name].target
    whole = {part: known.plan[part] for part in known.plan if part not in ("smem", "sync")}
    for *path, last in numbers(whole):
        for anew in (False, True):
            plan = copy.deepcopy(whole)
            at: Any = plan
            for key in path:
                at = at[key]
            at[last] = LARGE
            if anew:
                for loop in plan["loops"]:
                    loop["edges"] = []
            if anew and ("edges" in path or last == "slot_bytes"):
                continue  # made anew with the schedule
            before = time.process_time()
            with pytest.raises(PlanError) as err:
                pipeliner.pipeline(known.func, target, plan=KernelPlan.from_json(json.dumps(plan)))
            assert len(str(err.value).splitlines()) == 1
            assert time.process_time() - before < SECONDS, (path, last)
