"""Every copy mechanism, to ask for its properties (``pipeliner/plan/kinds.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..plan import CopyPlan
from ..plan.kinds import CopyMechanism
from .cp_async import CP_ASYNC
from .register import DIRECT, REGISTER
from .tma import TMA

COPY_MECHANISMS: Final[Mapping[str, CopyMechanism]] = {
    one.name: one for one in (TMA, CP_ASYNC, REGISTER, DIRECT)
}


PRODUCED: Final = frozenset(
    name for name, mechanism in COPY_MECHANISMS.items() if mechanism.by_producer
)
"""The names of those that a producer warp issues."""


def moved_by(plan: CopyPlan) -> CopyMechanism:
    """The mechanism of a copy."""
    return COPY_MECHANISMS[plan.mechanism]


def have_producer(plans: Iterable[CopyPlan]) -> bool:
    """Whether a producer warp issues any of these copies."""
    return any(moved_by(plan).by_producer for plan in plans)
