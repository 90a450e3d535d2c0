"""What a statement reads and writes."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx
from tvm.ir import Range
from tvm.script import tirx as T

from pipeliner.passes.analysis.accesses import accesses
from pipeliner.passes.analysis.effects import BOTH, READ, WRITE, effects
from pipeliner.passes.analysis.op_kinds import classify
from pipeliner.passes.ir import nodes as ir

A = ir.buffer([16, 64], "float16", "A", "global")
S = ir.buffer([16, 64], "float16", "S", "shared.dyn")
F = ir.buffer([8], "uint32", "F", "local")
ACC = ir.buffer([4], "float32", "ACC", "local")
HALF = ir.buffer([8], "float16", "HALF", "local")
LANE = ir.Var("i", "int32")
load = tirx.BufferLoad


def names(stmt: Any) -> tuple[set[str], set[str]]:
    found = effects(stmt)
    return (
        {str(b.name) for b in found.buffers(READ)},
        {str(b.name) for b in found.buffers(WRITE)},
    )


def evaluate(call: Any) -> Any:
    return tirx.Evaluate(call)


def at(buf: Any, *index: int) -> Any:
    return load(buf, list(index))


def ldmatrix() -> Any:
    op = T.ptx["ldmatrix.sync.aligned.m8n8.x4.shared.b16"]
    return evaluate(op(*[at(F, q) for q in range(4)], T.address_of(at(S, 0, 8))))


def mma() -> Any:
    op = T.ptx["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    acc = [at(ACC, q) for q in range(4)]
    return evaluate(op(*acc, *[at(F, q) for q in range(6)], *acc))


def cp_async(*src_bytes: Any, **predicate: Any) -> Any:
    op, to = T.ptx["cp.async.cg.shared.global.L2::128B"], T.address_of(at(S, 1, 0))
    return evaluate(op(to, T.address_of(at(A, 0, 0)), 16, *src_bytes, **predicate))


@pytest.mark.parametrize(
    ("stmt", "reads", "writes", "kind"),
    [
        (tirx.BufferStore(S, at(A, 0, 0), [0, 0]), {"A"}, {"S"}, "copy"),
        (tirx.BufferStore(HALF, at(A, 0, 0), [0]), {"A"}, {"HALF"}, "load"),
        (tirx.BufferStore(S, at(HALF, 0), [0, 0]), {"HALF"}, {"S"}, "store"),
        (tirx.BufferStore(S, at(A, 0, 0) * at(A, 0, 1), [0, 0]), {"A"}, {"S"}, "compute"),
        (cp_async(), {"A"}, {"S"}, "copy"),
        (cp_async(8), {"A"}, {"S"}, "copy"),
        (cp_async(pred=LANE < 3), {"A"}, {"S"}, "copy"),
        (ldmatrix(), {"S"}, {"F"}, "load"),
        (mma(), {"ACC", "F"}, {"ACC"}, "mma"),
        (evaluate(T.call_extern("int32", "f", S.access_ptr("r"))), {"S"}, set(), "opaque"),
        (evaluate(T.call_extern("int32", "f", S.access_ptr("w"))), set(), {"S"}, "opaque"),
        (evaluate(T.call_extern("int32", "f", S.data)), {"S"}, {"S"}, "opaque"),
        (evaluate(T.call_extern("int32", "f", T.address_of(at(A, 0, 0)))), {"A"}, {"A"}, "opaque"),
    ],
)
def test_reads_writes_and_kind(stmt: Any, reads: set[str], writes: set[str], kind: str) -> None:
    assert names(stmt) == (reads, writes)
    assert classify(effects(stmt)) == kind


def test_a_masked_copy_is_a_copy() -> None:
    masked = tirx.if_then_else(tirx.const(True, "bool"), at(A, 0, 0), tirx.const(0, "float16"))
    assert classify(effects(tirx.BufferStore(S, masked, [0, 0]))) == "copy"


def test_block_signature_is_trusted_for_opaque_calls() -> None:
    call = evaluate(T.call_extern("int32", "f", S.data, A.data))
    rows = [Range.from_min_extent(0, 16), Range.from_min_extent(0, 64)]
    block = ir.block("b", call, writes=[tirx.BufferRegion(S, rows)])
    assert names(block) == ({"A"}, {"A", "S"})


def test_what_touches_no_buffer_is_a_fence() -> None:
    for call in (T.tvm_storage_sync("shared"), T.call_extern("int32", "f"), T.cuda.cta_sync()):
        assert effects(evaluate(call)).is_fence
    assert not effects(cp_async()).is_fence
    assert not effects(mma()).is_fence
    assert effects(evaluate(T.ptx.cp.async_.wait_group(0))).is_fence


def test_a_shuffle_reads_its_registers_alone() -> None:
    word = at(F, 0)
    mask = tirx.const(0xFFFFFFFF, "uint32")
    for shuffled in (
        T.tvm_warp_shuffle_xor(mask, word, 1, 32, 32),
        T.tvm_warp_shuffle(mask, word, 1, 32, 32),
        T.cuda.__shfl_xor_sync(mask, word, 1, 32),
    ):
        found = effects(tirx.BufferStore(ACC, tirx.Cast("float32", shuffled), [0]))
        assert [(str(a.buffer.name), a.mode) for a in found.accesses] == [
            ("F", READ),
            ("ACC", WRITE),
        ]
        assert not found.is_fence
        assert not found.is_opaque


def test_atomics_read_and_write() -> None:
    call = T.cuda.atomic_add(T.address_of(at(A, 0, 0)), tirx.const(1, "float16"))
    assert names(evaluate(call)) == ({"A"}, {"A"})


def test_an_accumulator_is_read_before_it_is_written() -> None:
    found = effects(mma())
    modes = [a.mode for a in found.accesses if a.buffer == ACC]
    assert modes.index(READ) < modes.index(WRITE)


def test_guards_are_those_of_the_branch() -> None:
    flag = ir.Var("flag", "bool")
    one, other = (tirx.BufferStore(HALF, at(A, 0, i), [i]) for i in range(2))
    found = effects(tirx.IfThenElse(flag, one, other))
    guards = [a.guards[0] for a in found.accesses if a.writes]
    assert guards[0].same_as(flag)
    assert isinstance(guards[1], tirx.Not)


def test_a_predicate_is_a_guard() -> None:
    flag = ir.Var("flag", "bool")
    found = effects(cp_async(pred=flag))
    assert [(str(a.buffer.name), a.mode) for a in found.accesses] == [("A", READ), ("S", WRITE)]
    assert all(a.guards[0].same_as(flag) for a in found.accesses)
    (counted,) = {str(a.guards[0]) for a in effects(cp_async(pred=LANE)).accesses}
    assert counted == "i != 0"


def test_a_register_that_may_keep_its_value_is_read() -> None:
    op = T.ptx["ld.shared.b32"]
    for predicate, mode in (({}, WRITE), ({"pred": LANE < 3}, BOTH)):
        stmt = evaluate(op(at(F, 0), T.address_of(at(S, 1, 0)), **predicate))
        assert [(str(a.buffer.name), a.mode) for a in effects(stmt).accesses] == [
            ("S", READ),
            ("F", mode),
        ]


@pytest.mark.parametrize(
    ("stmt", "mode", "index", "facts"),
    [
        (tirx.BufferStore(S, at(HALF, 0), [1, LANE]), "write", (1, "i"), {"own"}),
        (cp_async(), "write", (1, 0), {"own", "issue"}),
        (cp_async(pred=LANE < 3), "write", (1, 0), {"own", "issue"}),
        (ldmatrix(), "read", (0, None), set()),
        (
            evaluate(T.cuda.atomic_add(T.address_of(at(S, 0, 1)), tirx.const(1, "float16"))),
            "atomic",
            (0, 1),
            set(),
        ),
        (evaluate(T.call_extern("int32", "f", S.access_ptr("r"))), "read", (None, None), set()),
        (evaluate(T.call_extern("int32", "f", S.data)), "update", (None, None), set()),
        (evaluate(T.call_extern("int32", "f", at(S, 1, 2))), "read", (1, 2), {"own"}),
    ],
)
def test_what_barriers_are_placed_from(
    stmt: Any, mode: str, index: tuple[Any, ...], facts: set[str]
) -> None:
    (access,) = accesses(stmt)
    assert access.mode == mode
    assert [None if at is None else str(at) for at in access.index] == [
        None if at is None else str(at) for at in index
    ]
    assert {name for name in ("own", "issue") if getattr(access, name)} == facts


def test_a_fragment_of_wmma_is_loaded_from_many_rows() -> None:
    fragment = ir.buffer([256], "float16", "W", "wmma.matrix_a")
    call = T.tvm_load_matrix_sync(
        fragment.data, 16, 16, 16, 0, T.address_of(at(S, 0, 0)), 64, "row_major"
    )
    (access,) = accesses(evaluate(call))
    assert (access.mode, access.index) == ("read", (None, None))


def test_own_allocations_do_not_show() -> None:
    inner = ir.block("b", tirx.BufferStore(HALF, at(A, 0, 0), [0]), allocs=[HALF])
    assert names(inner) == ({"A"}, set())
