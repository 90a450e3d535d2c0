"""What is the idea, in one sitting?

One loop that loads a tile and uses it, pipelined in this file with TVM and numpy alone: recognised,
its dependences, a modulo schedule, two slots, prologue / steady state / epilogue, cp.async and its
waits, the CUDA. The library's emulator has the last word. The library does the same with more
cases; each step names the files where those live.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir import pipeline as stock
from tvm.script import tirx as T

SHAPE = CTAS, STEPS, THREADS = 2, 24, 64
TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})

# 1. A loop that nobody pipelined: each step waits for its tile.


@T.prim_func(s_tir=True)
def reverse(X: T.Buffer(SHAPE, "float32"), Y: T.Buffer(SHAPE, "float32")):
    T.func_attr({"global_symbol": "reverse", "tirx.noalias": True})
    for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            for t in T.serial(STEPS):
                with T.sblock("step"):
                    S = T.sblock_alloc_buffer((THREADS,), "float32", scope="shared")
                    with T.sblock("load"):
                        S[tx] = X[bx, t, tx]
                    with T.sblock("use"):
                        Y[bx, t, tx] = S[THREADS - 1 - tx]


# 2. Recognise: the loop, its ops in program order, what each reads and writes.
#    The library: passes/recognise/facts.py, passes/analysis/effects.py.


class Op(NamedTuple):
    """One statement of the loop's body, and the names of the buffers that it touches."""

    name: str
    stmt: tirx.BufferStore
    reads: list[str]
    writes: str


def recognise(func: tirx.PrimFunc) -> tuple[tirx.For, tirx.Var, list[Op]]:
    """The serial loop, the tile that its body allocates, and its ops."""
    loops, tiles, ops = [], [], []

    def block(node: SBlock) -> None:
        tiles.extend(node.alloc_buffers)
        if isinstance(node.body, tirx.BufferStore):
            reads: list[str] = []
            note = (TensorLoad, lambda load: reads.append(str(load.source.name)))
            tvm_ffi.structural_walk(node.body.value, [note])
            ops.append(Op(str(node.name_hint), node.body, reads, str(node.body.buffer.name)))

    tvm_ffi.structural_walk(func.body, [(tirx.For, loops.append), (SBlock, block)], order="pre")
    (loop,) = (found for found in loops if found.kind == tirx.ForKind.SERIAL)
    return loop, tiles[0], ops


# 3. Dependences: who must come after whom, how many iterations later.
#    The library: passes/dependence/, graph.py (index forms, any distance) and privatisation.py.


class Edge(NamedTuple):
    """``after`` of iteration i + ``distance`` must come after ``before`` of iteration i."""

    before: str
    after: str
    kind: str
    distance: int


def dependences(ops: list[Op], tile: str) -> list[Edge]:
    """The edges through ``tile``, which is written before it is read in every iteration."""
    edges = []
    for (i, first), (j, second) in itertools.product(enumerate(ops), repeat=2):
        if first.writes == tile and tile in second.reads:
            edges.append(Edge(first.name, second.name, "RAW", int(i >= j)))
        if tile in first.reads and second.writes == tile:
            edges.append(Edge(first.name, second.name, "WAR", int(i >= j)))
    return edges


# 4. Schedule: when each op of an iteration starts, if one begins every II cycles.
#    The library: passes/schedule/modulo_search.py (Rau's modulo scheduling), cost/ (cycles).

LATENCY = {"load": 450, "use": 40}  # cycles from an op's start to when its result may be used
BUSY = {"load": 300, "use": 40}  # cycles for which it keeps its pipe: memory; the threads


class Plan(NamedTuple):
    """The initiation interval in cycles, the stage of each op, and the slots of the tile."""

    ii: int
    stage: dict[str, int]
    depth: int


def schedule(ops: list[Op], edges: list[Edge]) -> Plan:
    """Start each op as early as its operands allow; what is late belongs to a later stage.

    With several slots a WAR edge to the next iteration says only when a slot is free again: it
    decides the depth, not the order.
    """
    ii = max(BUSY.values())  # ResMII; no cycle of dependences is left, so RecMII is 0
    start = {op.name: 0 for op in ops}
    for edge in (e for e in edges if e.distance == 0):
        landed = start[edge.before] + LATENCY[edge.before]
        start[edge.after] = max(start[edge.after], landed)
    written = min(start[e.before] for e in edges if e.kind == "RAW")
    read = max(start[e.after] + BUSY[e.after] for e in edges if e.kind == "RAW")
    return Plan(ii, {name: at // ii for name, at in start.items()}, -(-(read - written) // ii))


# 5. Expand: prologue, steady state, epilogue; the tile becomes a ring of slots.
#    The library: passes/expand/rewrite.py, rings.py, for any number of stages and any trip count.


def at_iteration(stmt: tirx.Stmt, i: tirx.Expr, loop: tirx.For, tile: tirx.Var, ring: tirx.Var):
    """``stmt`` of iteration ``i``, in slot ``i mod depth`` of ``ring``."""
    slot = tirx.floormod(i, ring.shape[0])

    def store(node: tirx.BufferStore):
        own = node.buffer.same_as(tile)
        return tirx.BufferStore(ring, node.value, [slot, *node.indices]) if own else node

    def load(node: TensorLoad):
        return T.BufferLoad(ring, [slot, *node.indices]) if node.source.same_as(tile) else node

    var = (tirx.Var, lambda node: i if node.same_as(loop.loop_var) else node)
    moved = tvm_ffi.structural_map(stmt, [var], order="post")
    return tvm_ffi.structural_map(moved, [(tirx.BufferStore, store), (TensorLoad, load)])


def expand(func: tirx.PrimFunc, plan: Plan) -> tirx.PrimFunc:
    """``func`` with its loop pipelined, copies asynchronous, and every wait and barrier in place.

    prologue       for p in range(s):      load(p); commit
    steady state   for t in range(n - s):  wait; barrier; load(t + s); commit; use(t)
    epilogue       for e in range(s):      wait; barrier; use(n - s + e)

    A thread may read a tile once its own copies have landed (wait) and all others' have (barrier).
    That barrier also says that all have read the slot that the next load overwrites: with s stages
    between load and use and s + 1 slots, its slot had iteration t - 1.
    """
    loop, tile, (load, use) = recognise(func)
    ahead, trip = plan.stage[use.name] - plan.stage[load.name], loop.extent
    assert plan.depth > ahead, "a slot would be overwritten before the barrier that frees it"
    ring = tirx.decl_buffer([plan.depth, *tile.shape], tile.dtype, "ring", scope="shared")

    def copy(i):  # what a thread has copied since its last commit is one group
        issued = at_iteration(load.stmt, i, loop, tile, ring)
        commit = tirx.Evaluate(T.ptx.cp.async_.commit_group())
        return [tirx.AttrStmt(0, "async_scope", tirx.IntImm("int32", 1), issued), commit]

    def consume(i):
        return at_iteration(use.stmt, i, loop, tile, ring)

    def arrived(in_flight: int):
        waited = tirx.Evaluate(T.ptx.cp.async_.wait_group(in_flight))
        return [waited, tirx.Evaluate(T.tvm_storage_sync("shared"))]

    def for_each(name, extent, body):
        var = tirx.Var(name, "int32")
        return tirx.For(var, 0, extent, tirx.ForKind.SERIAL, tirx.SeqStmt(body(var)))

    prologue = for_each("p", ahead, copy)
    steady = for_each(
        "t", trip - ahead, lambda t: [*arrived(ahead - 1), *copy(t + ahead), consume(t)]
    )
    epilogue = for_each("e", ahead, lambda e: [*arrived(0), consume(trip - ahead + e)])
    parts = tirx.SeqStmt([prologue, steady, epilogue])
    pipelined = SBlockRealize([], True, SBlock([], [], [], "pipelined", parts, None, [ring]))
    replace = (tirx.For, lambda node: pipelined if node.same_as(loop) else node)
    body = tvm_ffi.structural_map(func.body, [replace], order="post")
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


# 6. Lower to CUDA: TVM's passes, less those that would place barriers a second time.
#    The library: passes/lower.py; passes/sync/synchronise.py decides which barriers are needed.


def lowering():
    """What TVM asks of a registered pipeline: its passes, and those for host and device."""
    s, t = s_tir.transform, tirx.transform
    passes = [
        s.CanonicalizeLoop(), s.PlanAndUpdateBufferAllocationLocation(),
        s.ConvertBlocksToOpaque(), s.LiftThreadBinding(), s.UnifyThreadBinding(),
        s.LowerOpaqueBlock(), t.FlattenBuffer(), t.NarrowDataType(32), t.VectorizeLoop(True),
        t.StorageRewrite(), t.StmtSimplify(), t.RemoveNoOp(), t.AnnotateEntryFunc(),
        s.InjectPTXAsyncCopy(), t.SplitHostDevice(), t.MakePackedAPI(),
    ]  # fmt: skip

    @tvm.transform.module_pass(opt_level=0, name="the_idea")
    def run(mod, ctx):
        return tvm.transform.Sequential(passes)(mod)

    return run, stock.finalize_host_passes, stock.finalize_device_passes


tirx.register_tir_pipeline("the_idea", lowering)


def cuda(func: tirx.PrimFunc) -> str:
    """The kernel that TVM prints for ``func``, from its signature on."""
    with TARGET:
        source = tvm.compile(func, TARGET, tir_pipeline="the_idea").mod.imports[0].inspect_source()
    return source[source.rindex('extern "C" __global__') :]


# 7. Judge: run every thread of it, copies landing as late as the waits allow.
#    The library: pipeliner/emulator/, which objects to every race; pipeliner/mutation/, which
#    deletes each wait and barrier in turn and asks whether it would have noticed.


def judge(func: tirx.PrimFunc):
    """The emulator's verdict, on inputs of this minute."""
    from pipeliner.emulator import emulate, lower_for_emulation

    x = np.random.default_rng().standard_normal(SHAPE).astype("float32")
    lowered = lower_for_emulation(func, TARGET, "the_idea")
    result = emulate(lowered, [x, np.full_like(x, np.nan)])
    return np.array_equal(result.outputs["Y"], x[..., ::-1]), result.hazards


if __name__ == "__main__":
    loop, tile, ops = recognise(reverse)
    for op in ops:
        print(f"op {op.name}: reads {', '.join(op.reads)}, writes {op.writes}")
    edges = dependences(ops, str(tile.name))
    for edge in edges:
        print(
            f"{edge.kind} on {tile.name}: {edge.before} -> {edge.after}, distance {edge.distance}"
        )
    plan = schedule(ops, edges)
    print(f"II {plan.ii} cycles, stages {plan.stage}, {plan.depth} slots")
    print(cuda(expand(reverse, plan)))
    right, hazards = judge(expand(reverse, plan))
    print("right" if right else "wrong", f"{len(hazards)} hazards", sep=", ")
