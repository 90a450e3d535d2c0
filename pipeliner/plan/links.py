"""Names for what belongs together in a kernel: a stage, an op, a ring or a slot, wherever shown.

Each thing on a page *is in* some groups, and *lights* those that it is about:

    the row of an op        is in  o3 l0s1 r0      lights  o3 R0
    a line of CUDA          is in  o3 l0s1 r0.2    lights  o3 R0.2
    slot 2 of a ring        is in  R0 R0.2         lights  r0 r0.2

A slot of a ring is written R, who touches it r: a copy lights the slot that it fills, and not all
else that touches this slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ..values.op import Op
from ..values.origin import Origin, Place
from .decisions import Decisions
from .loops import LoopPlan, OpPlan

ANY: Final = "x"
"""In place of the number of a slot that depends on the iteration."""


@dataclass(frozen=True, slots=True)
class Link:
    """``within``: the groups that something is in. ``lights``: those that light with it."""

    within: tuple[str, ...] = ()
    lights: tuple[str, ...] = ()

    def of_iteration(self, iteration: int) -> Link:
        """The same of one iteration, whose ops and data light with it wherever they are drawn."""
        group = f"i{iteration}"
        return Link((group,), (*self.lights, group))

    @property
    def attributes(self) -> dict[str, str]:
        """As attributes of an element of HTML or SVG."""
        found = {"data_in": " ".join(self.within), "data_hit": " ".join(self.lights)}
        return {name: text for name, text in found.items() if text}


class Links:
    """The groups of one plan."""

    def __init__(self, plan: Decisions) -> None:
        loops = [loop for loop in plan.loops if loop.pipelined]
        ops = [(at, op) for at, loop in enumerate(loops) for op in loop.ops]
        self._ops: dict[str, tuple[int, OpPlan]] = {
            op.name: (number, op) for number, (_, op) in enumerate(ops)
        }
        self._loops: dict[str, int] = {op.name: at for at, op in ops}
        self._loops |= {ring.buffer: at for at, loop in enumerate(loops) for ring in loop.rings}
        rings = [ring for loop in loops for ring in loop.rings]
        self._rings = {ring.buffer: at for at, ring in enumerate(rings)}
        self._touched: dict[str, list[str]] = {}
        for ring in rings:
            for name in (*ring.producers, *ring.consumers):
                self._touched.setdefault(name, []).append(ring.buffer)
        self._behind = {
            barrier: tuple(buffer for buffer in pair.rings if buffer in self._rings)
            for pair in plan.mbarriers
            for barrier in (pair.full, pair.empty)
            if barrier
        }

    def op(self, *names: str) -> Link:
        """Of ops of a loop: with their stages and the rings that they touch."""
        found = [one for one in map(self._known, names) if one is not None]
        numbers = [f"o{at}" for at, _ in found]
        rings = [self._rings[ring] for _, op in found for ring in self._touched.get(op.name, [])]
        within = (*numbers, *(self._stage(op) for _, op in found), *(f"r{ring}" for ring in rings))
        lights = (*numbers, *(f"R{ring}" for ring in rings))
        return Link(tuple(dict.fromkeys(within)), tuple(dict.fromkeys(lights)))

    def stage(self, loop: LoopPlan, stage: int) -> Link:
        """Of all ops of one stage."""
        ops = [op for op in loop.ops if op.stage == stage]
        rings = dict.fromkeys(ring for op in ops for ring in self._touched.get(op.name, []))
        groups = dict.fromkeys(self._stage(op) for op in ops)
        return Link(tuple(groups), (*groups, *(f"R{self._rings[ring]}" for ring in rings)))

    def ring(self, buffer: str) -> Link:
        """Of a ring, all its slots."""
        at = self._rings.get(buffer)
        return Link() if at is None else Link((f"R{at}",), (f"r{at}", f"R{at}"))

    def slot(self, buffer: str, index: int) -> Link:
        """Of one slot of a ring."""
        at = self._rings.get(buffer)
        if at is None:
            return Link()
        return Link(
            (f"R{at}", f"R{at}.{index}"), (f"r{at}.{index}", f"r{at}.{ANY}", f"R{at}.{index}")
        )

    def event(self, names: Iterable[str], slots: Iterable[tuple[str, int]]) -> Link:
        """Of ops at one iteration, which use those ``slots`` of rings."""
        found = [one for one in map(self._known, names) if one is not None]
        used = [f"R{self._rings[ring]}.{at}" for ring, at in slots if ring in self._rings]
        return Link((), tuple(dict.fromkeys([*(f"o{at}" for at, _ in found), *used])))

    def origin(self, origin: Origin) -> Link:
        """Of the statements of a kernel that come from there."""
        op = self._known(origin.op)
        used = [
            (ring, place)
            for place in origin.places
            for ring in self._behind.get(place.buffer, (place.buffer,))
            if ring in self._rings
        ]
        within = [] if op is None else [f"o{op[0]}"]
        lights = [*within, *(self._lit(ring, place) for ring, place in used)]
        owner = next(iter([ring for ring, _ in used] if op is None else [op[1].name]), None)
        if owner is not None and origin.stage is not None:
            within.append(f"l{self._loops[owner]}s{origin.stage}")
        within += [name for ring, place in used for name in self._used(ring, place)]
        return Link(tuple(dict.fromkeys(within)), tuple(dict.fromkeys(lights)))

    def _known(self, name: str) -> tuple[int, OpPlan] | None:
        """The op, or the one that it was put beside."""
        op = Op.parse(name)
        plain = Op(op.statement, op.part, k_step=op.k_step, chunk=op.chunk)
        return next((self._ops[one] for one in (plain, op.statement) if one in self._ops), None)

    def _stage(self, op: OpPlan) -> str:
        return f"l{self._loops[op.name]}s{op.stage}"

    def _used(self, ring: str, place: Place) -> Sequence[str]:
        """The slot that it touches, or any of them where that depends on the iteration."""
        at = self._rings[ring]
        return [f"r{at}", f"r{at}.{place.slot if place.slot.isdigit() else ANY}"]

    def _lit(self, ring: str, place: Place) -> str:
        at = self._rings[ring]
        return f"R{at}.{place.slot}" if place.slot.isdigit() else f"R{at}"
