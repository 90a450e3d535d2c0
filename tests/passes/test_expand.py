"""The emitted form: phases, guards, slots, pointers, renewed definitions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Var
from tvm.s_tir import SBlock
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError, PlanError
from pipeliner.passes.expand.rewrite import expand
from pipeliner.passes.expand.rings import instantiate, make_ring
from pipeliner.passes.ir import nodes as ir
from pipeliner.plan import KernelPlan, LoopPlan
from pipeliner.values.origin import PHASE, Origin

from ..refusals import refused
from .core_ops import compiled, expand_loop, graph_of, manual_plan, op_form, run


@T.prim_func(s_tir=True)
def scale(A: T.Buffer((32, 4), "float32"), C: T.Buffer((32, 4), "float32")):
    with T.sblock("root"):
        for k in T.serial(16):
            with T.sblock(""):
                X = T.sblock_alloc_buffer((4,), "float32")
                for i in range(4):
                    X[i] = A[k, i]
                for i in range(4):
                    C[k, i] = X[i] * T.float32(2)


def expanded(func: Any, stages: list[int], order: list[int], epilogue: Any = "rolled") -> Any:
    func = op_form(func)
    return expand_loop(func, manual_plan(graph_of(func), stages, order, epilogue))


def origins(func: Any) -> list[list[str]]:
    """[op, stage, phase, iteration, slots] of every emitted instance, in program order."""
    found: list[list[str]] = []

    def visit(stmt: Any) -> None:
        if stmt.attr_key == ir.ORIGIN_ATTR:
            origin = Origin.parse(str(stmt.value.value))
            places = " ".join(map(str, origin.places))
            found.append([origin.op, str(origin.stage), origin.phase, origin.iteration, places])

    ir.walk(func.body, tirx.AttrStmt, visit)
    return found


def steady_loops(func: Any) -> list[Any]:
    found: list[Any] = []
    ir.walk(func.body, tirx.For, lambda f: found.append(f) if PHASE in f.annotations else None)
    return found


def test_rolled_form() -> None:
    func = expanded(scale, [0, 2], [0, 1])
    assert origins(func) == [
        ["op0", "0", "prologue", "0", "X[0]"],
        ["op0", "0", "prologue", "1", "X[1]"],
        ["op0", "0", "steady", "k + 2", "X[(k + 2) % 3]"],
        ["op1", "2", "steady", "k", "X[k % 3]"],
    ]
    (loop,) = steady_loops(func)
    assert loop.extent.value == 16
    guarded, plain = ir.statements(loop.body)
    assert isinstance(guarded, tirx.IfThenElse)
    assert isinstance(plain, tirx.AttrStmt)


def test_peeled_form() -> None:
    func = expanded(scale, [0, 2], [0, 1], "peeled")
    (loop,) = steady_loops(func)
    assert loop.extent.value == 14
    assert [o[:4] for o in origins(func) if o[2] == "epilogue"] == [
        ["op1", "2", "epilogue", "14"],
        ["op1", "2", "epilogue", "15"],
    ]
    branches: list[Any] = []
    ir.walk(func.body, tirx.IfThenElse, branches.append)
    assert not branches


def test_nothing_to_do_gives_the_same_object() -> None:
    func = op_form(scale)
    plan = manual_plan(graph_of(func), [0, 1], [0, 1])
    done = expand_loop(func, plan)
    assert expand_loop(done, plan).same_as(done)
    assert expand(func, KernelPlan("f", "llvm", "H100")).same_as(func)
    assert expand_loop(scale, plan).same_as(scale)


def test_copies_define_their_own_variables() -> None:
    func = expanded(scale, [0, 2], [0, 1])
    defined: list[Any] = []

    def visit(var: Any, kind: Any) -> None:
        if kind != tvm_ffi.DefRegionKind.NONE and var.name:
            defined.append(var)

    tvm_ffi.structural_walk(func.body, [], with_def_region_kind=(Var, visit))
    assert len(defined) == len(set(defined))
    assert tvm.s_tir.analysis.verify_well_formed(func, False)


def test_nested_allocations_are_renewed() -> None:
    inner = ir.buffer([4], "float32", "tmp", "local")
    A, C = (ir.buffer([16, 4], "float32", name, "global") for name in "AC")
    X = ir.buffer([4], "float32", "X", "global")
    k = ir.Var("k", "int32")

    def row(dst: Any, src: Any, *index: Any) -> Any:
        return ir.loop("i", 4, lambda i: tirx.BufferStore(dst, src(i), [*index, i]))

    fill = ir.seq(
        row(inner, lambda i: tirx.BufferLoad(A, [k, i])),
        row(X, lambda i: tirx.BufferLoad(inner, [i])),
    )
    ops = [
        ir.op_stmt("fill", ir.block("tmp", fill, [inner])),
        ir.op_stmt("use", row(C, lambda i: tirx.BufferLoad(X, [i]), k)),
    ]
    node = tirx.For(k, ir.i32(0), ir.i32(16), ir.ForKind.SERIAL, ir.block("", ir.seq(*ops), [X]))
    func = tirx.PrimFunc([A, C], ir.block("root", node), None, None)
    done = expand_loop(func, manual_plan(graph_of(func), [0, 2], [0, 1]))
    allocated: list[Any] = []
    ir.walk(done.body, SBlock, lambda block: allocated.extend(block.alloc_buffers))
    assert len([b for b in allocated if b.name == "tmp"]) == 3
    assert len(allocated) == len(set(allocated))


def test_register_rings_have_constant_slots() -> None:
    k, n = ir.Var("k", "int32"), ir.Var("n", "int32")
    A, C = (ir.buffer([32], "float32", name, "global") for name in "AC")
    X = ir.buffer([1], "float32", "X", "local")
    zero = ir.i32(0)
    ops = [
        ir.op_stmt("load", tirx.BufferStore(X, tirx.BufferLoad(A, [k]), [zero])),
        ir.op_stmt("use", tirx.BufferStore(C, tirx.BufferLoad(X, [zero]), [k])),
    ]
    node = tirx.For(k, zero, n, ir.ForKind.SERIAL, ir.block("", ir.seq(*ops), [X]))
    func = tirx.PrimFunc([A, C, n], ir.block("root", node), None, None)
    plan = manual_plan(graph_of(func), [0, 2], [0, 1])
    assert plan.unroll == 3
    done = expand_loop(func, plan)

    def check(node: Any) -> None:
        buf = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        if buf.name == "X":
            assert isinstance(node.indices[0], tirx.IntImm)

    ir.walk(done.body, (tirx.BufferStore, ir.TensorLoad), check)
    peeled = manual_plan(graph_of(func), [0, 2], [0, 1], "peeled")
    with refused("schedule.peeled", PlanError, loop="k", unroll=3):
        expand_loop(func, peeled)


def test_uniform_if_around_the_loop() -> None:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32"), flag: T.int32):
        with T.sblock("root"):
            for outer in range(2):
                if flag > outer:
                    for k in T.serial(3, 13):
                        with T.sblock(""):
                            X = T.sblock_alloc_buffer((1,), "float32")
                            X[0] = A[outer * 16 + k]
                            C[outer * 16 + k] = X[0] + T.float32(1)

    done = expanded(func, [0, 3], [1, 0])
    a = np.arange(32, dtype="float32")
    before, after = compiled(func), compiled(done)
    for flag in range(3):
        x, y = run(before, a, a * 0, flag)[1], run(after, a, a * 0, flag)[1]
        np.testing.assert_array_equal(x, y)


def test_64_bit_loop() -> None:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32"), n: T.int64):
        with T.sblock("root"):
            for k in T.serial(T.int64(2), n):
                with T.sblock(""):
                    X = T.sblock_alloc_buffer((1,), "float32")
                    X[0] = A[k]
                    C[k] = X[0] + T.float32(1)

    done = expanded(func, [0, 2], [0, 1])
    (loop,) = steady_loops(done)
    assert str(loop.loop_var.ty.dtype) == "int64"
    a = np.arange(32, dtype="float32")
    before, after = compiled(func), compiled(done)
    for n in (2, 3, 4, 9):
        np.testing.assert_array_equal(run(before, a, a * 0, n)[1], run(after, a, a * 0, n)[1])


def test_the_plan_must_fit_the_loop() -> None:
    func = op_form(scale)
    plan = manual_plan(graph_of(func), [0, 1], [0, 1])
    ring = dataclasses.replace(plan.rings[0], buffer="A")
    wrong = dataclasses.replace(plan, rings=(ring,))
    outside = Reason("version.outside")
    with refused("ring.slots", PlanError, buffer="A", slots=2, loop="k", why=outside):
        expand_loop(func, wrong)
    assert isinstance(wrong, LoopPlan)


SHARED = ir.buffer([16, 64], "float16", "S", "shared")
WARP = ir.buffer([32, 8], "float16", "W", "warp")
WMMA = ir.buffer([2, 16, 16], "float16", "F", "wmma.matrix_a")
SLOT = ir.Var("slot", "int32")


def at_slot(buf: Any, call: Any) -> Any:
    """The only call of ``call`` after ``buf`` got three slots, at ``SLOT``."""
    stmt = tirx.Evaluate(call)
    ring = make_ring(buf, 3, stmt)
    done = instantiate(stmt, {}, (), {buf: (ring, SLOT)})
    return ring, done.value


def same(expr: Any, expected: Any) -> bool:
    return tvm.sym.Analyzer().can_prove_equal(expr, expected)


def test_access_ptr_moves_by_the_slot() -> None:
    ring, call = at_slot(SHARED, T.call_extern("int32", "f", SHARED.access_ptr("r", offset=5)))
    pointer = call.args[1]
    assert pointer.args[1].args[0].same_as(ring.slots)
    assert same(pointer.args[2], SLOT * 1024 + 5)


def test_pointer_and_offset_pairs_move_by_the_slot() -> None:
    pointer = SHARED.access_ptr("r")
    ldmatrix = T.ptx_legacy.ldmatrix(False, 4, ".b16", WARP.data, 8, pointer, 16)
    ring, call = at_slot(WARP, ldmatrix)
    assert call.args[3].args[0].same_as(ring.slots)
    assert same(call.args[4], SLOT * 256 + 8)
    assert same(call.args[6], 16)
    fill = Call("tirx.mma_fill_legacy", [ir.i32(8), WARP.data, ir.i32(3)], ret_ty="handle")
    assert same(at_slot(WARP, fill)[1].args[2], SLOT * 256 + 3)


def test_wmma_offsets_count_fragments() -> None:
    fill = T.tvm_fill_fragment(WMMA.data, 16, 16, 16, 1, T.float32(0))
    assert same(at_slot(WMMA, fill)[1].args[4], SLOT * 2 + 1)


def test_any_other_pointer_becomes_the_address_of_the_slot() -> None:
    ring, call = at_slot(SHARED, T.call_extern("int32", "f", SHARED.data))
    target = call.args[1].args[0]
    assert call.args[1].op.name == "tirx.address_of"
    assert target.source.same_as(ring.slots)
    assert same(target.indices[0], SLOT)


def test_block_signatures_follow() -> None:
    region = tirx.BufferRegion(SHARED, [tvm.ir.Range(0, 16), tvm.ir.Range(0, 64)])
    stmt = ir.block("b", tirx.Evaluate(T.call_extern("int32", "f", SHARED.data)), writes=[region])
    ring = make_ring(SHARED, 3, stmt)
    done = instantiate(stmt, {}, (), {SHARED: (ring, SLOT)})
    (write,) = done.block.writes
    assert write.source.same_as(ring.slots)
    assert [int(r.extent.value) for r in write.region] == [1, 16, 64]


def test_strided_slots_keep_the_strides() -> None:
    padded = tirx.decl_buffer([4, 8], "float32", "P", strides=[9, 1], scope="shared", layout=None)
    ring = make_ring(padded, 2, tirx.Evaluate(ir.i32(0)))
    assert [int(s.value) for s in ring.slots.strides] == [36, 9, 1]


def test_a_dynamic_shape_cannot_have_slots() -> None:
    dynamic = ir.buffer([ir.Var("m", "int32")], "float32", "D", "shared")
    with refused("ring.shape", LoweringError, buffer="D", slots=2):
        make_ring(dynamic, 2, tirx.Evaluate(ir.i32(0)))
