"""Modulo schedules: the search on numbers, the forms that kernels need, and the verifier."""

from __future__ import annotations

import dataclasses
from typing import Any

import networkx as nx
import pytest

from pipeliner.diagnostics import Reason
from pipeliner.errors import ScheduleRefused
from pipeliner.machine import H100
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.schedule.modulo import schedule_loop
from pipeliner.passes.schedule.modulo_verify import verify, versions_needed
from pipeliner.plan import LoopPlan, OpKind, OpPlan, Pipe, RingPlan
from pipeliner.values.op import Op as LoopOp

from ..refusals import refused, the


@dataclasses.dataclass(frozen=True)
class Op:
    """One op of a hand-made graph: what it touches and costs."""

    name: LoopOp
    kind: OpKind
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    pipe: Pipe
    latency: int
    occupancy: int
    is_async: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", LoopOp.parse(self.name))

    @property
    def is_global_load(self) -> bool:
        return self.pipe == "l2"


def graph_of(ops: list[Op], rings: dict[str, str]) -> Any:
    """The dependence graph of ``ops``; ``rings``: scope by name; all other buffers carry values."""
    graph = nx.MultiDiGraph()
    buffers = {name: ir.buffer([64], "float16", name, scope) for name, scope in rings.items()}
    graph.graph.update(trip=16, rings=buffers, carried={}, outer=("acc",), threads=128)
    for index, op in enumerate(ops):
        graph.add_node(
            op.name,
            index=index,
            kind=op.kind,
            reads=op.reads,
            writes=op.writes,
            is_async=op.is_async,
            is_global_load=op.is_global_load,
        )
    for i, u in enumerate(ops):
        for j, v in enumerate(ops):
            pairs = (
                ("RAW", u.writes, v.reads),
                ("WAR", u.reads, v.writes),
                ("WAW", u.writes, v.writes),
            )
            for kind, one, other in pairs:
                for buffer in set(one) & set(other):
                    if i < j:
                        graph.add_edge(u.name, v.name, kind=kind, buffer=buffer, distance=0)
                    if buffer not in rings:
                        graph.add_edge(u.name, v.name, kind=kind, buffer=buffer, distance=1)
    return graph


def scheduled(ops: list[Op], rings: dict[str, str], depths: dict[str, int], **fields: Any) -> Any:
    """(graph, plan) of a loop with these ops and planned depths."""
    graph = graph_of(ops, rings)
    requested = fields.pop("requested", False)
    plan = LoopPlan(
        "k",
        "16",
        True,
        ops=tuple(
            OpPlan(op.name, op.kind, op.name, op.pipe, op.latency, op.occupancy) for op in ops
        ),
        rings=tuple(
            RingPlan(name, rings.get(name, ""), depth, 0, (), (), requested=requested)
            for name, depth in depths.items()
        ),
        **fields,
    )
    return graph, schedule_loop(graph, plan, H100)


def copies(latency: int = 600) -> list[Op]:
    return [
        Op("A_shared", "copy", ("A",), ("As",), "l2", latency, 50, is_async=True),
        Op("B_shared", "copy", ("B",), ("Bs",), "l2", latency, 50, is_async=True),
    ]


def tile(steps: int, latency: int = 100) -> tuple[list[Op], dict[str, str]]:
    """Two async copies and ``steps`` k-steps of fragment loads and mma."""
    ops, rings = copies(latency), {"As": "shared", "Bs": "shared"}
    for j in range(steps):
        ops += [
            Op(f"mma.k{j}.a", "load", ("As",), (f"a{j}",), "lsu", 61, 32),
            Op(f"mma.k{j}.b", "load", ("Bs",), (f"b{j}",), "lsu", 61, 32),
            Op(f"mma.k{j}", "mma", (f"a{j}", f"b{j}", "acc"), ("acc",), "tensor", 160, 128),
        ]
        rings |= {f"a{j}": "local", f"b{j}": "local"}
    return ops, rings


def names(plan: LoopPlan) -> list[str]:
    return [f"{op.name}@{op.stage}" for op in sorted(plan.ops, key=lambda op: op.order)]


@pytest.mark.parametrize("steps", [2, 3, 4, 8])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_fragments_are_prefetched_across_tiles(steps: int, depth: int) -> None:
    ops, rings = tile(steps)
    _, plan = scheduled(ops, rings, {"As": depth, "Bs": depth})
    last = depth - 1
    # Copies go one by one behind the loads of an mma, while a later load still needs the last slot.
    copied = {3: {1: [0, 1]}, 4: {1: [0], 2: [1]}, 8: {1: [0], 2: [1]}}.get(steps, {})
    names_of = ["A_shared@0", "B_shared@0"]
    expected = [] if copied else list(names_of)
    for j in range(1, steps):
        expected += [f"mma.k{j}.a@{last}", f"mma.k{j}.b@{last}"]
        expected += [names_of[n] for n in copied.get(j, [])]
        expected.append(f"mma.k{j - 1}@{last}")
    expected += [f"A_shared.wait@{last - 1}", f"mma.k0.a@{last - 1}", f"mma.k0.b@{last - 1}"]
    assert names(plan) == [*expected, f"mma.k{steps - 1}@{last}"]
    assert plan.ii == plan.res_mii == 128 * steps
    assert plan.limiter == "pipe tensor"
    assert plan.unroll == 1
    assert plan.ring("As").depth == plan.ring("Bs").depth == depth


def test_a_load_bound_tile_keeps_the_order() -> None:
    ops, rings = tile(4)
    slow, _ = tile(4, latency=4000)
    _, bound = scheduled(slow, rings, {"As": 3, "Bs": 3})
    assert names(bound) == names(scheduled(ops, rings, {"As": 3, "Bs": 3})[1])
    assert bound.ii == bound.rec_mii > 4000 // 3
    assert bound.limiter == "depth of the rings"


def test_one_step_needs_two_versions_of_its_fragments() -> None:
    ops, rings = tile(1)
    _, plan = scheduled(ops, rings, {"As": 3, "Bs": 3})
    assert plan.ii == 128
    assert plan.ring("a0").depth == plan.ring("b0").depth == plan.unroll == 2


def test_without_fragments_one_wait_starts_the_step() -> None:
    ops = [*copies(), Op("C", "compute", ("As", "Bs", "acc"), ("acc",), "fma", 1004, 1000)]
    _, plan = scheduled(ops, {"As": "shared", "Bs": "shared"}, {"As": 4, "Bs": 4})
    assert names(plan) == ["A_shared.wait@3", "A_shared@0", "B_shared@0", "C@3"]


def test_rings_may_differ_in_depth() -> None:
    ops = [*copies(), Op("C", "compute", ("As", "Bs", "acc"), ("acc",), "fma", 1004, 1000)]
    _, plan = scheduled(ops, {"As": "shared", "Bs": "shared"}, {"As": 4, "Bs": 2})
    # What is due first is issued first: copies land in that order.
    assert names(plan) == ["A_shared.wait@3", "B_shared@2", "A_shared@0", "C@3"]
    assert (plan.ring("As").depth, plan.ring("Bs").depth) == (4, 2)


def test_depth_one_is_program_order() -> None:
    ops, rings = tile(2)
    _, plan = scheduled(ops, rings, {"As": 1, "Bs": 1})
    order = [name.split("@")[0] for name in names(plan)]
    assert order == ["A_shared", "B_shared", "A_shared.wait", *[op.name for op in ops[2:]]]
    assert plan.stages == 1


def test_copy_through_registers_loads_early_and_stores_late() -> None:
    ops = [
        Op("A_shared.load", "load", ("A",), ("Al",), "l2", 600, 100),
        Op("A_shared.store", "store", ("Al",), ("As",), "lsu", 61, 32),
        Op("C", "compute", ("As", "acc"), ("acc",), "fma", 1004, 1000),
    ]
    _, plan = scheduled(ops, {"As": "shared", "Al": "local"}, {"As": 2})
    assert names(plan) == ["A_shared.load@0", "C@1", "A_shared.store@0"]
    assert (plan.ring("As").depth, plan.ring("Al").depth, plan.unroll) == (2, 1, 1)


def test_a_slow_copy_through_registers_does_not_unroll_the_loop() -> None:
    ops = [
        Op("A_shared.load", "load", ("A",), ("Al",), "l2", 600, 20),
        Op("A_shared.store", "store", ("Al",), ("As",), "lsu", 40, 5),
        Op("C", "compute", ("As", "acc"), ("acc",), "fma", 24, 20),
    ]
    _, plan = scheduled(ops, {"As": "shared", "Al": "local"}, {"As": 2})
    assert (plan.ring("Al").depth, plan.unroll) == (1, 1)
    assert plan.ii == plan.rec_mii > 600
    limited = the("schedule.registers", plan.reasons[:1])
    assert (limited["versions"], limited["buffers"]) == (1, ("Al",))


def test_a_streaming_loop_loads_iterations_ahead() -> None:
    ops = [
        Op("x.load", "load", ("A",), ("x",), "l2", 600, 10),
        Op("x", "compute", ("x",), ("C",), "fma", 14, 10),
    ]
    graph = graph_of(ops, {"x": "local"})
    graph.remove_edges_from(
        [(u, v, key) for u, v, key, e in graph.edges(keys=True, data=True) if e["buffer"] == "C"]
    )
    rings = (RingPlan("x", "local", 4, 0, (), ()),)
    costs = tuple(OpPlan(o.name, o.kind, o.name, o.pipe, o.latency, o.occupancy) for o in ops)
    plan = schedule_loop(graph, LoopPlan("k", "n", True, ops=costs, rings=rings), H100)
    assert names(plan) == ["x.load@0", "x@3"]
    assert plan.limiter == "depth of the rings"
    assert plan.unroll == 4
    assert plan.ii == -(-(600 + 10) // 4)


def attention(softmax: int) -> tuple[list[Op], dict[str, str]]:
    """S = Q K^T, softmax with running maximum and sum, O = O * scale + P V."""
    ops = [
        Op("K_shared", "copy", ("K",), ("Ks",), "l2", 600, 100, is_async=True),
        Op("V_shared", "copy", ("V",), ("Vs",), "l2", 600, 100, is_async=True),
        Op("S", "mma", ("Ks", "Q"), ("s",), "tensor", 545, 512),
        Op("softmax", "compute", ("s", "m"), ("p", "m", "scale"), "sfu", softmax + 20, softmax),
        Op("rescale", "compute", ("scale", "O"), ("O",), "fma", 68, 64),
        Op("O_update", "mma", ("p", "Vs", "O"), ("O",), "tensor", 545, 512),
    ]
    rings = {"Ks": "shared", "Vs": "shared"} | dict.fromkeys(("s", "p", "scale"), "local")
    return ops, rings


@pytest.mark.parametrize("softmax", [100, 500, 900])
def test_attention_overlaps_softmax_with_the_matmuls(softmax: int) -> None:
    """Sequentially 545 + softmax + 20 + 68 + 545 cycles an iteration; the tensor pipe needs 1024."""
    ops, rings = attention(softmax)
    _, plan = scheduled(ops, rings, {"Ks": 2, "Vs": 2})
    assert plan.ii == max(plan.res_mii, plan.rec_mii) == 1024
    assert plan.op("S").stage < plan.op("O_update").stage
    waits = [op.name for op in plan.ops if op.kind == "wait"]
    assert sorted(waits) == ["K_shared.wait", "V_shared.wait"]


def test_softmax_that_dominates_sets_the_interval() -> None:
    ops, rings = attention(3000)
    _, plan = scheduled(ops, rings, {"Ks": 2, "Vs": 2})
    assert plan.ii <= 3000 * 1.125
    assert plan.ii == plan.res_mii or plan.reasons


def test_requested_depth_that_dependences_forbid_is_refused() -> None:
    """The index of the next tile comes out of the compute: nothing can be loaded ahead."""
    ops = [
        Op("A_shared", "copy", ("A", "next"), ("As",), "l2", 600, 100, is_async=True),
        Op("C", "compute", ("As", "acc"), ("acc", "next"), "fma", 104, 100),
    ]
    with refused("ring.unused", ScheduleRefused) as caught:
        scheduled(ops, {"As": "shared"}, {"As": 3}, requested=True)
    reason = caught.value.reason
    assert (reason["buffer"], reason["slots"], reason["loop"]) == ("As", 3, "k")


def test_ring_from_outside_is_refused() -> None:
    ops = [*copies(), Op("C", "compute", ("As", "Bs", "acc"), ("acc",), "fma", 104, 100)]
    outside = Reason("version.outside")
    with refused("ring.slots", ScheduleRefused, buffer="As", slots=2, why=outside):
        scheduled(ops, {"Bs": "shared"}, {"As": 2, "Bs": 2}, requested=True)


@pytest.mark.parametrize(
    ("change", "code", "args"),
    [
        (
            ("C", {"stage": 0}),
            "schedule.read_before_wait",
            {"op": "C", "iteration": "i", "buffer": "As", "copy": "A_shared"},
        ),
        (
            ("A_shared", {"stage": 5}),
            "schedule.dependence",
            {
                "op": "C",
                "iteration": "i",
                "after": "A_shared",
                "why": Reason("edge.RAW", buffer="As"),
                "kind": "RAW",
                "stage": 2,
                "order": 3,
                "late": Reason("schedule.steps_earlier", steps=3),
            },
        ),
        (
            ("A_shared", {"order": 99}),
            "",
            {},
        ),
    ],
)
def test_verifier_names_what_breaks(
    change: tuple[str, dict[str, int]], code: str, args: dict[str, Any]
) -> None:
    ops = [*copies(), Op("C", "compute", ("As", "Bs", "acc"), ("acc",), "fma", 1004, 1000)]
    graph, plan = scheduled(ops, {"As": "shared", "Bs": "shared"}, {"As": 3, "Bs": 3})
    edited = dataclasses.replace(
        plan,
        ops=tuple(
            dataclasses.replace(op, **change[1]) if op.name == change[0] else op for op in plan.ops
        ),
    )
    if not code:
        verify(graph, edited)
        return
    with refused(code, ScheduleRefused, **args):
        verify(graph, edited)


def test_what_a_copy_reads_is_not_overwritten_before_it_has_landed() -> None:
    ops = [
        Op("A_shared", "copy", ("A",), ("As",), "l2", 600, 50, is_async=True),
        Op("C", "compute", (), ("A",), "lsu", 30, 10),
        Op("D", "compute", ("As",), ("acc",), "fma", 30, 10),
    ]
    graph, plan = scheduled(ops, {"As": "shared"}, {"As": 1})
    wait = plan.op("A_shared.wait")
    assert (wait.stage, wait.order) < (plan.op("C").stage, plan.op("C").order)
    last = max(op.order for op in plan.ops) + 1
    late = tuple(dataclasses.replace(op, order=last) if op is wait else op for op in plan.ops)
    where = {"op": "C", "iteration": "i", "buffer": "A", "copy": "A_shared"}
    with refused("schedule.overwrite_before_wait", ScheduleRefused, **where):
        verify(graph, dataclasses.replace(plan, ops=late))


def test_who_overwrites_the_source_of_an_overrunning_load_does_not_put_off_its_wait() -> None:
    ops = [
        Op("A_shared", "copy", ("A",), ("As",), "l2", 600, 50, is_async=True),
        Op("C", "compute", ("As",), ("G",), "lsu", 30, 10),
        Op("refill", "copy", ("G",), ("As",), "l2", 600, 50, is_async=True),
    ]
    _, plan = scheduled(ops, {"As": "shared"}, {"As": 2})
    refill, wait = plan.op("refill"), plan.op("refill.wait")
    assert (wait.stage, wait.order) == (refill.stage, refill.order + 1)


def test_verifier_recounts_slots_and_pipes() -> None:
    ops = [*copies(), Op("C", "compute", ("As", "Bs", "acc"), ("acc",), "fma", 1004, 1000)]
    graph, plan = scheduled(ops, {"As": "shared", "Bs": "shared"}, {"As": 3, "Bs": 3})
    assert versions_needed(graph, plan, "As") == 3
    shallow = tuple(dataclasses.replace(ring, depth=2) for ring in plan.rings)
    with refused("ring.overwritten", ScheduleRefused, buffer="As", depth=2, needed=3):
        verify(graph, dataclasses.replace(plan, rings=shallow))
    with refused("schedule.pipe", ScheduleRefused, pipe="fma", cycles=1000, ii=999):
        verify(graph, dataclasses.replace(plan, ii=999))


@pytest.mark.parametrize("steps", [2, 4, 8])
def test_fma_steps_share_the_last_stage_too(steps: int) -> None:
    ops, rings = tile(steps)
    ops = [
        dataclasses.replace(op, kind="compute", pipe="fma") if op.kind == "mma" else op
        for op in ops
    ]
    _, plan = scheduled(ops, rings, {"As": 2, "Bs": 2})
    assert set(names(plan)) == set(names(scheduled(*tile(steps), {"As": 2, "Bs": 2})[1]))
    assert {plan.op(f"mma.k{j}").stage for j in range(steps)} == {1}


@pytest.mark.parametrize(("kind", "masked"), [("compute", True), ("load", False)])
def test_masked_tiles_are_stored_before_more_is_loaded(kind, masked) -> None:
    """A store behind a load of the next tile would wait for that, too; ptxas moves plain loads."""
    ops = [
        Op("A_shared.load", kind, ("A",), ("Al",), "l2", 600, 100),
        Op("A_shared.store", "store", ("Al",), ("As",), "lsu", 61, 32),
        Op("B_shared.load", "load", ("B",), ("Bl",), "l2", 600, 100),
        Op("B_shared.store", "store", ("Bl",), ("Bs",), "lsu", 61, 32),
        Op("C", "compute", ("As", "Bs", "acc"), ("acc",), "fma", 104, 100),
    ]
    rings = {"As": "shared", "Bs": "shared", "Al": "local", "Bl": "local"}
    _, plan = scheduled(ops, rings, {"As": 2, "Bs": 2})
    order = [op.name for op in sorted(plan.ops, key=lambda op: op.order)]
    stages = {op.name: op.stage for op in plan.ops}
    assert stages["A_shared.load"] < stages["A_shared.store"]
    stores = [order.index(name) for name in ("A_shared.store", "B_shared.store")]
    loads = [order.index(name) for name in ("A_shared.load", "B_shared.load")]
    assert (max(stores) < min(loads)) == masked
