"""Schedules are plain: pipelining, threads and instructions belong to the passes."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest
from tvm.tirx import AttrStmt

from pipeliner.passes.ir.nodes import Call, walk
from pipeliner.schedules.gemm import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm

ROOT = Path(__file__).parents[2]
SCHEDULES = sorted((ROOT / "schedules").rglob("*.py"))
SOURCES = sorted(
    path
    for folder in ("pipeliner", "passes", "schedules")
    for path in (ROOT / folder).rglob("*.py")
)

MECHANISMS = re.compile(
    r"cp[._]?async|wait_group|commit_group|mbarrier(?!s\b)|storage_sync|syncthreads|setmaxnreg|wgmma"
    r"|ldmatrix|ptx|tensorize|software_pipeline|threadIdx|vthread|\bslot\b|access_ptr",
    re.IGNORECASE,
)
CUDA = re.compile(r"__global__|__device__|__shared__")
LOOP_OR_BARRIER = re.compile(
    r"\b(for|while)\s*\(|__syncthreads|__syncwarp|\bbar\.|barrier|cp\.async|asm\s+volatile"
)


def code(path):
    """The file's tokens without comments and docstrings, which may say what is left out and why."""
    text = path.read_text()
    docs = {
        node.body[0].value.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node) is not None
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(
        token.string
        for token in tokens
        if token.type != tokenize.COMMENT
        and not (token.type == tokenize.STRING and token.start[0] in docs)
    )


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_schedule_names_a_mechanism(path):
    """Threads are named where there is no matmul whose mapping could say which thread has what."""
    bound = ("depthwise.py", "regions.py", "planes.py", "weights.py", "function.py", "naive.py")
    allowed = {"threadIdx"} if path.name in bound else set()
    assert set(MECHANISMS.findall(code(path))) <= allowed


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_cuda_text_stands_in_the_package(path):
    strings = [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert not [text for text in strings if CUDA.search(text) and LOOP_OR_BARRIER.search(text)]


@pytest.mark.parametrize("m", [100, 128, None])
@pytest.mark.parametrize("dtype", ["fp16", "fp32", "tf32", "int8"])
def test_a_scheduled_function_has_no_call_but_its_own_arithmetic(dtype, m):
    func = schedule_gemm(Gemm(m, 72, 52, dtype=dtype), GemmTile(64, 64, 32)).mod["main"]
    calls, attrs = [], []
    walk(func.body, Call, lambda call: calls.append(str(getattr(call.op, "name", call.op))))
    walk(func.body, AttrStmt, attrs.append)
    assert {name.rsplit(".", 1)[-1] for name in calls} <= {"if_then_else"}
    assert not attrs
    assert "threadIdx" not in func.script()
