"""The plan of a whole kernel, and how it becomes text and is read again."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from typing import Any, Final

from ..diagnostics import Reason
from ..errors import PlanError
from ..markup import element, fragment
from ..values.released import plan as translated
from .decisions import Decisions, SmemPlan, SyncPlan
from .decoding import decode
from .explain import explain
from .lookup import put
from .loops import LoopPlan
from .shown import headline, plan_html, shortened

PLAN_ATTR: Final = "pipeliner.plan"
"""The attribute by which a function carries its plan, as JSON."""

PLAN_VERSION: Final = 2
"""What ``to_json`` writes. It is raised when a field goes, or changes its name or its meaning."""

READ_VERSIONS: Final = (1, PLAN_VERSION)
"""What ``from_json`` reads: this version, and the one before as ``values/released.py`` has it."""


@dataclass(frozen=True, slots=True)
class KernelPlan(Decisions):
    """The decisions about one kernel as a plan: edited, printed, written and read again."""

    def with_loop(self, loop: LoopPlan) -> KernelPlan:
        """This plan with the loop of that name replaced (appended when new)."""
        return dataclasses.replace(self, loops=put(self.loops, loop, "name"))

    def with_depth(self, buffer: str, depth: int) -> KernelPlan:
        """An edited plan that asks for ``depth`` slots of ``buffer``; checked when applied.

        PlanError: fewer than one, or no ring of that name.
        """
        if depth < 1:
            raise PlanError("plan.no_slot", ring=buffer, depth=depth)
        for loop in self.loops:
            if any(ring.buffer == buffer for ring in loop.rings):
                ring = dataclasses.replace(loop.ring(buffer), depth=depth, requested=True)
                rings = put(loop.rings, ring, "buffer")
                # Without edges the loop is scheduled anew.
                edited = dataclasses.replace(loop, rings=rings, edges=(), source="request")
                return self.with_loop(edited).without_derived()
        known = tuple(sorted(ring.buffer for loop in self.loops for ring in loop.rings))
        raise PlanError(
            "plan.no_ring", ring=buffer, kernel=self.kernel, known=known or Reason("plan.nothing")
        )

    def with_op(self, loop: str, name: str, *, stage: int, order: int) -> KernelPlan:
        """An edited plan that runs op ``name`` at ``stage`` and ``order``; checked when applied.

        PlanError: there is no such loop, or no such op in it.
        """
        old = self.loop(loop)
        op = dataclasses.replace(old.op(name), stage=stage, order=order)
        edited = dataclasses.replace(old, ops=put(old.ops, op, "name"), source="edited")
        return self.with_loop(edited).without_derived()

    def without_derived(self) -> KernelPlan:
        """This plan without channels, arena and barriers, which are made anew when it is applied.

        They follow from the rest: a plan that is edited otherwise than by ``with_`` has them as
        they were, and is refused.
        """
        return dataclasses.replace(self, mbarriers=(), smem=SmemPlan(), sync=SyncPlan())

    def to_json(self, *, indent: int | None = None) -> str:
        """This plan as JSON text; ``from_json`` gives an equal value back."""
        return json.dumps({"version": PLAN_VERSION, **_own(self)}, indent=indent, default=_own)

    @staticmethod
    def from_json(text: str) -> KernelPlan:
        """The plan in ``text``; PlanError says what is wrong with it."""
        return _read(text)

    def explain(self) -> str:
        """The plan in plain words and numbers."""
        return explain(self)

    def __repr__(self) -> str:
        """One line; ``str`` has every field, ``explain`` says it in words."""
        return f"KernelPlan({shortened(self.kernel)!r}: {headline(self)})"

    def __str__(self) -> str:
        return Decisions.__repr__(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        title = element("h4", f"Plan of {self.kernel}")
        return fragment(element("div", title, plan_html(self), class_="linked"))


@functools.lru_cache(maxsize=64)
def _read(text: str) -> KernelPlan:
    """``from_json``: a plan is read again by each that meets its function, and never changes."""
    try:
        data = json.loads(text)
    except ValueError as err:  # no JSON, or a number longer than Python reads
        raise PlanError("plan.no_json", why=str(err)) from err
    except RecursionError as err:
        raise PlanError("plan.deep") from err
    version = data.pop("version", None) if isinstance(data, dict) else None
    if type(version) is not int or version not in READ_VERSIONS:
        raise PlanError("plan.version", version=PLAN_VERSION, found=repr(version))
    data = data if version == PLAN_VERSION else translated(data)
    plan: KernelPlan = decode(KernelPlan, data, "plan")
    return plan


def _own(value: Any) -> dict[str, Any]:
    """The fields of a dataclass; json asks for those inside it (``asdict`` would copy them all)."""
    return {
        field.name: _with_codes(getattr(value, field.name)) for field in dataclasses.fields(value)
    }


def _with_codes(value: Any) -> Any:
    """``value``, but reasons with their codes and arguments: to json they are text alone."""
    if isinstance(value, Reason):
        return value.as_dict()
    if isinstance(value, tuple) and any(isinstance(each, Reason) for each in value):
        return [_with_codes(each) for each in value]
    return value
