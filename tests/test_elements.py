"""The table of element types agrees with TVM, with the GPUs and with the emulator, which has its own."""

from __future__ import annotations

import pytest
import tvm

from pipeliner.emulator.base.dtypes import PTX_TYPES, numpy_dtype
from pipeliner.machine import A100, H100, Machine
from pipeliner.values.elements import ELEMENT_TYPES, ElementType, element, operands_of

by_name = pytest.mark.parametrize("one", ELEMENT_TYPES, ids=lambda one: one.name)


@by_name
def test_sizes_are_those_of_tvm_and_of_the_emulator(one: ElementType) -> None:
    assert one.nbytes == max(tvm.DataType(one.name).bits // 8, 1) == numpy_dtype(one.name).itemsize


@by_name
def test_names_of_ptx_are_those_that_the_emulator_reads(one: ElementType) -> None:
    for name in filter(None, (one.ptx, one.operand)):
        assert PTX_TYPES[name] == one.name


@pytest.mark.parametrize(
    ("instruction", "machine"), [("mma", A100), ("wgmma", H100)], ids=["mma", "wgmma"]
)
def test_a_gpu_has_a_rate_of_each_operand(instruction: str, machine: Machine) -> None:
    rates = machine.mmas if instruction == "mma" else machine.wgmmas
    known = {"float32" if rate.dtype == "tfloat32" else rate.dtype for rate in rates}
    listed = {one.name for one in operands_of(instruction)}
    assert known == listed
    assert all(one.operand and one.sums for one in operands_of(instruction))


def test_a_type_that_is_not_listed_is_no_operand() -> None:
    assert element("handle").nbytes == 4
    assert not element("handle").multiplied_by
