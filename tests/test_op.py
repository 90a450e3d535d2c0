"""Ops: their parts, how they print, and that what prints is read again as it was."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeliner.values.op import NO_OP, Op

FIELDS = ("statement", "part", "k_step", "chunk", "added")
SPELLED = [
    (Op("C_update"), "C_update"),
    (Op("C_update", "a", k_step=0), "C_update.k0.a"),
    (Op("C_update", "b", k_step=12), "C_update.k12.b"),
    (Op("C_update", "multiply", k_step=3), "C_update.k3"),
    (Op("C_update", "mma_wait"), "C_update.mma_wait"),
    (Op("A_shared", "load"), "A_shared.load"),
    (Op("A_shared", "store"), "A_shared.store"),
    (Op("A_shared", chunk=1), "A_shared.1"),
    (Op("A_shared", chunk=0).wait(), "A_shared.0.wait"),
    (Op("A_shared").wait().adding("fence").adding("barrier"), "A_shared.wait.fence.barrier"),
    (Op("C_update", "multiply", k_step=3).adding("barrier"), "C_update.k3.barrier"),
    (NO_OP, ""),
]


def fields(op: Op) -> tuple[object, ...]:
    return tuple(getattr(op, name) for name in FIELDS)


@pytest.mark.parametrize(("op", "text"), SPELLED, ids=[text for _, text in SPELLED])
def test_an_op_prints_as_it_is_read(op: Op, text: str) -> None:
    assert str(op) == text
    assert type(str(op)) is str
    assert op == text
    assert json.dumps(op) == json.dumps(text)
    assert fields(Op.parse(text)) == fields(op)


@given(st.text(max_size=12) | st.text(".k0123abloadwit", max_size=16))
def test_any_text_is_read(text: str) -> None:
    op = Op.parse(text)
    assert str(op) == text
    assert fields(Op.parse(str(op))) == fields(op)


@pytest.mark.parametrize("name", ["C.k0", "C.k0.a", "A.load", "A.0", "A.wait", "A.barrier"])
def test_a_statement_is_no_op(name: str) -> None:
    with pytest.raises(ValueError, match="expected the name of a statement"):
        Op(name)
    assert str(Op(name.replace(".", "_"))) == name.replace(".", "_")


def test_only_fragments_and_their_products_have_a_k_step() -> None:
    for wrong in (lambda: Op("C", "a"), lambda: Op("C", "multiply"), lambda: Op("A", k_step=0)):
        with pytest.raises(ValueError, match="expected a k-step"):
            wrong()


def test_an_op_does_not_change() -> None:
    op = Op("C", "a", k_step=1)
    with pytest.raises(AttributeError, match="immutable"):
        op.part = "b"
    for same in (copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert fields(same) == fields(op)


def test_what_a_wait_waits_for() -> None:
    assert Op("A", chunk=2).wait().of == Op("A", chunk=2)
    assert Op("A", "load").of == Op("A", "load")


def test_chunks_are_of_one_copy() -> None:
    first, second = Op("A", chunk=0), Op("A", chunk=1)
    assert first.is_chunk_beside(second)
    assert not first.is_chunk_beside(first)
    assert not first.is_chunk_beside(Op("A"))
    assert not first.is_chunk_beside(Op("B", chunk=1))
    assert Op("A").is_whole
    assert not first.is_whole
    assert not Op("A", "load").is_whole
