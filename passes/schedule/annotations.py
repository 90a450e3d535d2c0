"""Read TVM's pipeline annotations of a loop as a plan that the user gave.

``software_pipeline_stage`` and ``software_pipeline_order`` hold one entry for each statement of the
body, ``software_pipeline_async_stages`` the stages whose copies are asynchronous. Statements count
as they do in TVM: an annotated loop inside counts as prologue, steady state and epilogue; a copy
marked for a local stage as a load and a store; a block as its statements. A statement that counts
as several here moves by one of their entries: the steady state's, or else the last.

The plan is checked like any other. What TVM accepts and miscompiles is refused with the reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from ...diagnostics import Reason
from ...errors import InternalError, PlanError, ScheduleRefused
from ...machine import Machine
from ...plan import EdgePlan, LoopPlan, RingPlan
from ...plan.request import Request
from ...values.op import Op
from ..ir.nodes import buffer_bytes, const_int, has, statements, walk
from ..ir.op_form import OpLoop, op_loop
from ..sync.waits import insert_waits
from .modulo import edge_plans, register_unroll
from .modulo_verify import verify, versions_needed
from .op_costs import op_costs

if TYPE_CHECKING:
    import networkx as nx

STAGE: Final = "software_pipeline_stage"
ORDER: Final = "software_pipeline_order"
ASYNC: Final = "software_pipeline_async_stages"

LOCAL_STAGE: Final = "tirx.manifest_shared_memory_local_stage"
"""TVM's annotation of a copy's block: load into registers early, store to shared memory late."""

_PHASES: Final = 3
_STAGED: Final = 2

_HINTS: Final = (
    "pipeliner.depth",
    "pipeliner.mma",
    "pipeliner.warps",
    "pipeliner.thread_tile",
)
"""Annotations by which a schedule asks for something."""

REQUESTS: Final = "pipeliner.requests"
"""Annotation of a function's root block: requests to choose from, as a list in JSON."""

CHOICE: Final = "pipeliner.choice"
"""Annotation beside it: which of them it is; a tuner samples it."""


def annotated_request(func: Any) -> Request:
    """Return the request that a function's root block is annotated with; PlanError if invalid."""
    found: list[Any] = []
    walk(func.body, SBlock, lambda block: found.append(block.annotations))
    given = next((one for one in found if REQUESTS in one), None)
    if given is None:
        return Request()
    try:
        asked = json.loads(str(given[REQUESTS]))[int(given[CHOICE])]
        return Request.from_dict(asked)
    except (ValueError, LookupError, TypeError) as err:
        raise PlanError("annotation.unreadable", key=REQUESTS, error=str(err)) from err


def is_annotated(loop: Any) -> bool:
    """Whether a ``For`` carries TVM's pipeline annotations."""
    return STAGE in loop.annotations or ORDER in loop.annotations


def is_asked(func: Any) -> bool:
    """Whether the schedule of ``func`` asks for stages, a depth, an instruction or a mapping."""
    found: list[tuple[str, str]] = []

    def note(node: Any) -> None:
        found.extend((str(key), str(value)) for key, value in node.annotations.items())

    walk(func.body, (tirx.For, SBlock), note)
    return any(key in (STAGE, ORDER) or (key in _HINTS and value != "auto") for key, value in found)


def async_statements(loop: Any) -> frozenset[str]:
    """Return the statements of an annotated loop in op form whose copies are asynchronous.

    Raises ScheduleRefused if annotations do not fit the loop.
    """
    form = _form(loop)
    wanted = set(_integers(loop, ASYNC)) if ASYNC in loop.annotations else set()
    return frozenset(op for op, (stage, _) in _entries(form)[0].items() if stage in wanted)


def staged_statements(loop: Any) -> frozenset[str]:
    """Return the statements of a loop in op form whose copies are staged through registers."""
    return frozenset(op.statement for op, stmt in _form(loop).ops if _is_staged(stmt))


def annotated_plan(graph: nx.MultiDiGraph, loop: Any, plan: LoopPlan, machine: Machine) -> LoopPlan:
    """Return ``plan`` with the stages and order that ``loop`` (a For in op form) is annotated with.

    ``graph``: the loop's dependence graph. Depths of rings follow from the stages. Raises
    ScheduleRefused if annotations do not fit the loop or break a dependence.
    """
    form = _form(loop)
    entries, reasons = _entries(form)
    first = min(stage for stage, _ in entries.values())
    position = {name: place for place, name in enumerate(form.names)}
    costs = {op.name: op for op in op_costs(graph, plan, machine)}
    names = sorted(form.names, key=lambda name: (_entry(entries, name)[1], position[name]))
    ops = insert_waits(
        graph,
        [
            dataclasses.replace(costs[name], stage=_entry(entries, name)[0] - first, order=order)
            for order, name in enumerate(names)
        ],
    )
    draft = dataclasses.replace(plan, pipelined=True, ops=tuple(ops), rings=(), ii=0)
    rings = tuple(
        RingPlan(
            buffer=name,
            scope=str(buf.scope()) or "global",
            depth=versions_needed(graph, draft, name),
            slot_bytes=buffer_bytes(buf) or 0,
            producers=tuple(n for n, node in graph.nodes(data=True) if name in node["writes"]),
            consumers=tuple(n for n, node in graph.nodes(data=True) if name in node["reads"]),
            requested=True,
            reason=Reason("ring.annotated"),
        )
        for name, buf in graph.graph["rings"].items()
    )
    edges: tuple[EdgePlan, ...] = edge_plans(graph, ops)
    result = dataclasses.replace(
        draft,
        edges=edges,
        rings=rings,
        unroll=register_unroll(rings),
        source="annotation",
        reasons=(*plan.reasons, *reasons),
    )
    verify(graph, result)
    return result


def _form(loop: Any) -> OpLoop:
    form = op_loop(loop)
    if form is None:
        raise InternalError(f"loop '{loop.loop_var.name}' is not in op form")
    return form


def _entries(form: OpLoop) -> tuple[dict[Op, tuple[int, int]], list[Reason]]:
    """Return (stage, order) of statements and of early loads, and what was decided on the way."""
    loop = form.node
    name = str(loop.loop_var.name)
    stages, orders = _integers(loop, STAGE), _integers(loop, ORDER)
    counts = _entry_counts(form, len(stages))
    total = sum(count for count, _ in counts.values())
    for key, found in ((STAGE, stages), (ORDER, orders)):
        if len(found) != total:
            counts_of = {"entries": len(found), "statements": total}
            raise ScheduleRefused("annotation.entries", loop=name, key=key, **counts_of)
    if len(stages) != len(orders):
        raise ScheduleRefused(
            "annotation.lengths",
            loop=name,
            stage_key=STAGE,
            stages=len(stages),
            order_key=ORDER,
            orders=len(orders),
        )
    if len(set(orders)) != len(orders):
        twice = next(order for order in orders if orders.count(order) > 1)
        raise ScheduleRefused("annotation.order_twice", loop=name, key=ORDER, order=twice)
    if stages and min(stages) < 0:
        raise ScheduleRefused("annotation.stage", loop=name, key=STAGE, stage=min(stages))
    entries: dict[Op, tuple[int, int]] = {}
    reasons: list[Reason] = []
    at = 0
    for statement, (count, main) in counts.items():
        own = stages[at : at + count]
        entries[Op(statement)] = (own[main], orders[at + main])
        load = Op(statement, "load")
        if load in form.names and count == _STAGED:
            entries[load] = (own[0], orders[at])
        elif len(set(own)) > 1:
            reasons.append(
                Reason("annotation.whole", statement=statement, stage=own[main], entries=count)
            )
        at += count
    return entries, reasons


def _entry_counts(form: OpLoop, wanted: int) -> dict[str, tuple[int, int]]:
    """Return for each statement of the source how many entries it has, and which one moves it.

    ``wanted``: entries in all. A copy that is already split into load and store has lost its mark;
    it counts as two if that fits. One entry for each statement is accepted too, whatever TVM would
    count.
    """
    counts: dict[str, tuple[int, int]] = {}
    for op, stmt in form.ops:
        known = counts.get(op.statement, (1, 0))
        counts[op.statement] = max(_entry_count(stmt.body), known)
    split = {name: (_STAGED, 1) for name in counts if Op(name, "store") in form.names}
    plain: dict[str, tuple[int, int]] = dict.fromkeys(counts, (1, 0))
    for choice in ({**counts, **split}, counts, plain):
        if sum(count for count, _ in choice.values()) == wanted:
            return choice
    return counts


def _entry_count(stmt: Any) -> tuple[int, int]:
    if isinstance(stmt, tirx.For) and is_annotated(stmt):
        return _PHASES, 1
    if _is_staged(stmt):
        return _STAGED, 1
    if isinstance(stmt, SBlockRealize) and const_int(stmt.predicate) == 1:
        count = len(statements(stmt.block.body))
        return count, count - 1
    return 1, 0


def _is_staged(stmt: Any) -> bool:
    return has(stmt, SBlock, lambda block: LOCAL_STAGE in block.annotations)


def _entry(entries: dict[Op, tuple[int, int]], op: Op) -> tuple[int, int]:
    return entries[op] if op in entries else entries[Op(op.statement)]


def _integers(loop: Any, key: str) -> list[int]:
    name = str(loop.loop_var.name)
    if key not in loop.annotations:
        raise ScheduleRefused("annotation.missing", loop=name, key=key)
    value = loop.annotations[key]
    items: Sequence[Any] = [value] if not hasattr(value, "__iter__") else list(value)
    result = [getattr(item, "value", item) for item in items]
    if any(isinstance(item, bool) or not isinstance(item, int) for item in result):
        raise ScheduleRefused("annotation.integers", loop=name, key=key)
    return result
