"""Guards of stores are computed without branches, where computing them does nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tvm import tirx

import pipeliner
from pipeliner.passes.device.joined_guards import join_guards
from pipeliner.passes.ir import nodes as ir
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.toolchain import nvcc
from pipeliner.verification.verdict import verify_workload

OUT = tirx.decl_buffer((64,), "int32", "out")
ROW, COLUMN = ir.Var("row", "int32"), ir.Var("column", "int32")


def guarded(condition: Any, otherwise: Any = None) -> Any:
    """The condition of a guarded store when the pass has been over it."""
    store = tirx.BufferStore(OUT, ROW, [COLUMN])
    body = tirx.IfThenElse(condition, store, otherwise)
    func = tirx.PrimFunc([ROW, COLUMN], body)
    return join_guards(func).body.condition


def test_the_terms_of_a_guard_are_joined() -> None:
    terms = ROW < 3, COLUMN < 4, ROW < COLUMN
    joined = guarded(tirx.And(tirx.And(*terms[:2]), terms[2]))
    assert str(joined) == str(tirx.bitwise_and(tirx.bitwise_and(*terms[:2]), terms[2]))


@pytest.mark.parametrize(
    ("condition", "otherwise"),
    [
        (ROW < 3, None),
        (tirx.And(ROW < 64, tirx.BufferLoad(OUT, [ROW]) < 4), None),  # reads only where it may
        (tirx.And(ROW < 3, COLUMN < 4), tirx.BufferStore(OUT, ROW, [0])),
    ],
    ids=["one term", "a read", "two ways"],
)
def test_other_conditions_stay(condition: Any, otherwise: Any) -> None:
    assert str(guarded(condition, otherwise)) == str(condition)


@pytest.mark.nvcc
def test_nvcc_branches_around_few_of_a_tiles_stores() -> None:
    gemm = Gemm(200, 333, 128)
    given = {"instruction": "wgmma", "store": "coalesced", "prove": False}
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(128, 112, 64)), "h200", **given)
    assert verify_workload(kernel, gemm).ok
    code = nvcc.disassemble(nvcc.compile_cuda(kernel.cuda, kernel.arch, "cubin").data)
    opcodes = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_]+)", code)
    first, last = opcodes.index("STG"), len(opcodes) - 1 - opcodes[::-1].index("STG")
    stores = opcodes[first : last + 1]
    assert stores.count("STG") == 128 * 112 // 256
    assert stores.count("BSSY") < stores.count("STG") / 10
