"""A plan as HTML: stages, ops and rings of each loop, linked; all of it in words, folded away."""

from __future__ import annotations

from typing import Final

from ..markup import Cell, Column, Html, element, fold, joined, stage_class, table, wide
from .decisions import Decisions
from .explain import explain
from .links import Link, Links
from .loops import LoopPlan, OpPlan, RingPlan

MOST_SLOTS: Final = 16
"""Slots of a ring that are drawn one by one."""

MOST_LETTERS: Final = 60
"""Of a kernel's name in a line with other things."""

_OPS: Final = (
    Column("op", text=True),
    Column("stage", "iterations that it is behind the first op"),
    Column("cycle", "when it is issued in the schedule of one iteration"),
    Column("pipe", text=True),
    Column("latency", "cycles until its result is there"),
    Column("occupancy", "cycles that its pipe is busy"),
)


def plan_html(plan: Decisions, links: Links | None = None) -> Html:
    """What was decided; where there are ``links``, hovering and the Tab key light what belongs."""
    found = links or Links(plan)
    loops = [_loop(loop, found) for loop in plan.loops if loop.pipelined]
    words = wide("the plan in words", element("pre", explain(plan)), class_="words")
    return joined(
        (
            element("p", headline(plan), class_="verdict"),
            *loops,
            fold("The whole plan in words, with the reasons", words, opened=not loops),
        )
    )


def headline(plan: Decisions) -> str:
    """A plan in one sentence."""
    time = f", {plan.predicted}" if plan.predicted else ""
    how = [f"loop {loop.name} in {_stages(loop)}" for loop in plan.loops if loop.pipelined]
    state = ", ".join(how) or "not pipelined"
    means = dict.fromkeys([m.instruction for m in plan.matmuls] + [c.way for c in plan.copies])
    where = f"{plan.threads} threads a CTA on {plan.machine} ({plan.target})"
    return f"{', '.join((state, *means, where))}{time}"


def shortened(name: str) -> str:
    """A name in so few letters that a line has place for it."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 2]}.."


def _loop(loop: LoopPlan, links: Links) -> Html:
    ii = f"; an iteration each {loop.ii} cycles (II), set by {loop.limiter}" if loop.ii else ""
    title = f"Loop {loop.name}: {loop.trip} iterations, {_stages(loop)}{ii}"
    ops = sorted(loop.ops, key=lambda op: op.order)
    stages = sorted({op.stage for op in ops})
    chips = element("ul", *(_chip(loop, stage, links) for stage in stages), class_="chips")
    rings = [ring for ring in loop.rings if ring.depth > 1 or ring.requested]
    return joined(
        (
            element("h4", title),
            chips,
            element("div", _op_table(loop, ops, links), class_="ops") if ops else "",
            element("div", _rings(loop, rings, links), class_="rings") if rings else "",
        )
    )


def _chip(loop: LoopPlan, stage: int, links: Links) -> Html:
    ops = [op.name for op in loop.ops if op.stage == stage]
    names = dict.fromkeys(op if op.part in ("wait", "mma_wait") else op.statement for op in ops)
    link = links.stage(loop, stage)
    name = f"stage {stage}"
    button = _button(f"{name}: {', '.join(names)}", link, f"chip {stage_class(stage)}", name)
    return element("li", button)


def _op_table(loop: LoopPlan, ops: list[OpPlan], links: Links) -> Html:
    rows: list[list[str | Cell]] = [
        [
            Cell(_button(op.name, links.op(op.name), "", f"{op.name}, stage {op.stage}")),
            Cell(str(op.stage), class_=stage_class(op.stage)),
            str(op.cycle),
            op.pipe,
            str(op.latency),
            str(op.occupancy),
        ]
        for op in ops
    ]
    return table(f"Ops of one step of loop {loop.name}, in their order", _OPS, rows)


def _rings(loop: LoopPlan, rings: list[RingPlan], links: Links) -> Html:
    rows: list[list[str | Cell]] = [
        [
            Cell(_button(ring.buffer, links.ring(ring.buffer), "", f"ring {ring.buffer}")),
            Cell(_slots(ring, links), float(ring.depth)),
            f"{ring.slot_bytes}",
            f"{ring.scope}",
        ]
        for ring in rings
    ]
    columns = (
        Column("ring", text=True),
        Column("slots", text=True),
        Column("bytes each"),
        Column("scope", text=True),
    )
    return table(f"Rings of loop {loop.name}", columns, rows)


def _slots(ring: RingPlan, links: Links) -> Html:
    """A box for each slot."""
    boxes = [
        _button(str(at), links.slot(ring.buffer, at), "slot", f"{ring.buffer}[{at}]")
        for at in range(min(ring.depth, MOST_SLOTS))
    ]
    more = f" and {ring.depth - MOST_SLOTS} more" if ring.depth > MOST_SLOTS else ""
    return joined((*boxes, more), "")


def _button(text: str, link: Link, class_: str, name: str) -> Html:
    """What lights what belongs to it; it has no effect where no script runs."""
    attributes = {**link.attributes, "data_name": name}
    return element("button", text, type="button", class_=class_, **attributes)


def _stages(loop: LoopPlan) -> str:
    return f"{loop.stages} stage{'s' * (loop.stages > 1)}"
