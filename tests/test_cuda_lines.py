"""The CUDA line of each statement, compared with the text that TVM prints."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.api import build
from pipeliner.emulator.lower import is_device_function
from pipeliner.kernel.building import pipeline_with
from pipeliner.kernel.compiled import Kernel, compile_kernel
from pipeliner.kernel.cuda_lines import CudaLines
from pipeliner.passes.ir.kernels import bodies
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, schedule_gemm
from pipeliner.schedules.tiles import GemmTile
from pipeliner.targets import cuda_target


@T.prim_func(s_tir=True)
def branches(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        S[tx] = A[tx]
        T.tvm_storage_sync("shared")
        if tx < 32:
            C[tx] = S[63 - tx]
        else:
            for k in T.serial(3):
                C[tx] = C[tx] + A[k]


@T.prim_func(s_tir=True)
def two_kernels(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        B[tx] = A[tx] + T.float32(1)
    for ty in T.thread_binding(64, thread="threadIdx.x"):
        A[ty] = B[ty] * T.float32(2)


@cache
def gemm(dtype: str, epilogue: str = "auto") -> Kernel:
    func = schedule_gemm(Gemm(m=64, n=64, k=160, dtype=dtype), GemmTile(32, 32, 16))
    return build(pipeline_with(func, "sm_80", Request(depth=3, epilogue=epilogue)), "sm_80")


KERNELS: dict[str, Any] = {
    "branches": lambda: build(branches, "sm_80"),
    "two kernels": lambda: build(two_kernels, "sm_80"),
    "mma": lambda: gemm("float16"),
    "mma peeled": lambda: gemm("float16", "peeled"),
    "simt": lambda: gemm("float32"),
    "stock": lambda: compile_kernel(branches, cuda_target("sm_80"), "s_tir"),
}


def device_statements(kernel: Kernel) -> dict[tuple[str, int], Any]:
    """Every statement of the device functions by its number."""
    found: dict[tuple[str, int], Any] = {}

    def visit(name: str, stmt: Any, count: int) -> int:
        if not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt):
            found[name, count] = stmt
            count += 1
        for body in bodies(stmt):
            count = visit(name, body, count)
        return count

    for func in kernel.lowered.functions.values():
        if is_device_function(func):
            visit(str(func.attrs["global_symbol"]), func.body, 0)
    return found


def expected(stmt: Any) -> str | None:
    """What a line of the statement must look like, by the kind of the statement."""
    if isinstance(stmt, tirx.For):
        return rf"for \(\w+ {re.escape(stmt.loop_var.name)}\w* = "
    if isinstance(stmt, tirx.IfThenElse):
        return r"if \("
    if isinstance(stmt, tirx.Bind):
        return rf"\b{re.escape(stmt.var.name)}\w* = "
    if isinstance(stmt, tirx.BufferStore):
        return r"[\])] = |\.[xyzw] = "
    name = str(getattr(getattr(getattr(stmt, "value", None), "op", None), "name", ""))
    known = {
        "tirx.tvm_storage_sync": r"__syncthreads\(\);",
        "tirx.ptx.cp_async_commit_group": "commit_group",
        "tirx.ptx.cp_async_wait_group": "wait_group",
        "tirx.ptx.ldmatrix": "ldmatrix",
        "tirx.ptx.mma": "mma_sync",
        "tirx.ptx.cp_async_cg": "cp_async_cg",
    }
    return known.get(name)


@pytest.mark.part(6)
@pytest.mark.parametrize("name", KERNELS)
def test_each_statement_has_the_line_that_is_printed_for_it(name: str) -> None:
    kernel = KERNELS[name]()
    lines: CudaLines = kernel.cuda_lines
    assert lines.source == kernel.cuda
    source = kernel.cuda.splitlines()
    statements = device_statements(kernel)
    assert [(s.kernel, s.number) for s in lines.statements] == list(statements)
    checked = 0
    for (function, number), stmt in statements.items():
        pattern, found = expected(stmt), lines.find(function, number)
        if pattern is None:
            continue
        assert found is not None, stmt
        assert found.code.splitlines() == source[found.first - 1 : found.last]
        assert re.search(pattern, found.code), (stmt, found)
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.part(6)
def test_no_line_belongs_to_two_statements_and_none_is_forgotten(name: str) -> None:
    kernel = KERNELS[name]()
    taken = [
        line
        for statement in kernel.cuda_lines.statements
        if statement.cuda is not None
        for line in range(statement.cuda.first, statement.cuda.last + 1)
    ]
    assert len(taken) == len(set(taken))
    inside = False
    for at, line in enumerate(kernel.cuda.splitlines(), 1):
        if inside and line.endswith(";") and at not in taken:
            raise AssertionError(f"line {at} belongs to no statement: {line}")
        if "__global__" in line and line.endswith("{"):
            inside = True
        elif line == "}":
            inside = False
