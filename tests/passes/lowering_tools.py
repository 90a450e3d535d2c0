"""What the tests of smem, sync and lower share: a function through place and synchronise alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from pipeliner.emulator import Emulation, emulate, lower_for_emulation
from pipeliner.passes.ir.nodes import Call, seq, walk
from pipeliner.passes.lower import PIPELINE, prefix
from pipeliner.passes.smem.place import place
from pipeliner.passes.sync.synchronise import synchronise
from pipeliner.plan import PLAN_ATTR, KernelPlan, SmemPlan, SyncPlan
from pipeliner.targets import cuda_target

TARGET = cuda_target("sm_80")
BUDGET = 160 * 1024


def prepared(func: Any, target: Any = TARGET) -> Any:
    """``func`` bound to the target, after TVM's prefix passes."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    mod = tirx.transform.BindTarget(target.with_host("llvm"))(mod)
    return tvm.transform.Sequential(prefix(ours=True))(mod)["main"]


def ordered(func: Any, budget: int = BUDGET) -> tuple[Any, SmemPlan, SyncPlan]:
    """``func`` with its shared memory placed and its barriers, and the two plans."""
    placed, smem = place(prepared(func), budget)
    done, sync = synchronise(placed, smem)
    return done, smem, sync


def marked(func: Any, smem: SmemPlan) -> Any:
    """``func`` as the slot would leave it."""
    return func.with_attr(PLAN_ATTR, KernelPlan("main", "sm_80", "", smem=smem).to_json())


def run(func: Any, args: Any, timing: str = "late") -> Emulation:
    """Emulate what our pipeline makes of ``func``."""
    with TARGET:
        return emulate(lower_for_emulation(func, TARGET, PIPELINE), args, timing=timing)


def barriers(func: Any) -> int:
    """Barriers in the text of ``func``."""
    found: list[Any] = []
    walk(func.body, Call, lambda call: found.append(call) if is_barrier(call) else None)
    return len(found)


def is_barrier(call: Any) -> bool:
    return getattr(call.op, "name", "") == "tirx.tvm_storage_sync"


def without_barrier(func: Any, number: int) -> Any:
    """``func`` without the ``number``-th barrier of its text."""
    count = 0

    def drop(stmt: Any) -> Any:
        nonlocal count
        if not isinstance(stmt.value, Call) or not is_barrier(stmt.value):
            return stmt
        count += 1
        return seq() if count == number + 1 else stmt

    body = tvm_ffi.structural_map(func.body, [(tirx.Evaluate, drop)], order="post")
    assert count > number
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def text(func: Any) -> list[str]:
    """The lines of ``func`` without indentation, regions and attributes."""
    skip = ("T.reads", "T.writes", "T.func_attr", "T.attr", "#", "with T.sblock", "with T.attr")
    lines = (line.strip() for line in func.script().splitlines())
    return [line for line in lines if line and not line.startswith(skip)]


def cuda(mod: Any, pipeline: str = PIPELINE, target: Any = TARGET) -> str:
    """The CUDA that ``pipeline`` makes of a function or module."""
    with target:
        return str(tvm.compile(mod, target, tir_pipeline=pipeline).mod.imports[0].inspect_source())


def data(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")
