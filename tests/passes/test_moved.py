"""Accesses of a moved buffer, in every form that an access has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tvm_ffi
from tvm import tirx
from tvm.ir import Range
from tvm.script import tirx as T

from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.ir.moved import MovedTo, MovedWhole, Mover

OLD = ir.buffer([8], "float16", "OLD", "shared.dyn")
NEW = ir.buffer([4, 8], "float16", "NEW", "shared.dyn")
OTHER = ir.buffer([8], "float16", "OTHER", "local")
AT = ir.Var("i", "int32")


class Row(MovedWhole):
    """The elements become row 2."""

    buffer = NEW

    def at(self, indices: Sequence[Any]) -> Sequence[Any]:
        return [2, *indices]

    def region(self, region: Any) -> Any:
        return tirx.BufferRegion(NEW, [Range.from_min_extent(2, 1), *region.region])

    def ahead(self, unit: Any) -> Any:
        return ir.i32(2 * 8 * 2 // ir.dtype_bytes(unit))


def load(buf: Any, *index: Any) -> Any:
    return tirx.BufferLoad(buf, list(index))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (load(OLD, AT) + load(OTHER, AT), load(NEW, 2, AT) + load(OTHER, AT)),
        (
            tirx.BufferStore(OLD, load(OLD, 1), [load(OTHER, 0)]),
            tirx.BufferStore(NEW, load(NEW, 2, 1), [2, load(OTHER, 0)]),
        ),
        (
            T.tvm_access_ptr(T.type_annotation("float16"), OLD.data, AT, 4, 1),
            T.tvm_access_ptr(T.type_annotation("float16"), NEW.data, AT + 16, 4, 1),
        ),
        (
            T.tvm_access_ptr(T.type_annotation("float32"), OLD.data, AT, 2, 1),
            T.tvm_access_ptr(T.type_annotation("float32"), NEW.data, AT + 8, 2, 1),
        ),
        (
            T.call_extern("int32", "f", OLD.data, OTHER.data),
            T.call_extern("int32", "f", T.address_of(load(NEW, 2, 0)), OTHER.data),
        ),
        (tirx.Evaluate(OLD.data), tirx.Evaluate(T.address_of(load(NEW, 2, 0)))),
        (T.address_of(load(OLD, AT)), T.address_of(load(NEW, 2, AT))),
    ],
)
def test_every_form_of_an_access_moves(before: Any, after: Any) -> None:
    assert tvm_ffi.structural_equal(Mover({OLD: Row()}).moved(before), after)


def test_a_block_names_the_region_that_it_uses() -> None:
    rows = [Range.from_min_extent(0, 8)]
    stmt = ir.block(
        "b", tirx.BufferStore(OLD, load(OTHER, 0), [0]), writes=[tirx.BufferRegion(OLD, rows)]
    )
    (written,) = Mover({OLD: Row()}).moved(stmt).block.writes
    assert written.source.same_as(NEW)
    assert [(int(dim.min), int(dim.extent)) for dim in written.region] == [(2, 1), (0, 8)]


def test_pointers_stay_where_only_elements_move() -> None:
    stmt = ir.seq(
        tirx.BufferStore(OLD, load(OLD, AT), [AT]),
        tirx.Evaluate(T.call_extern("int32", "f", OLD.data)),
    )
    moved = Mover({OLD: MovedTo(NEW, lambda at: [0, *at])}).moved(stmt)
    store, call = moved.seq
    assert store.buffer.same_as(NEW)
    assert call.same_as(stmt.seq[1])
