"""Lower a function as it is written: no pass of this pipeline adds or removes a barrier."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.s_tir import pipeline as stock
from tvm.target import Target

from pipeliner.emulator import lower_for_emulation

_NAME = "emulator_tests_raw"
SYNCHRONISING = (
    "tirx.tvm_storage_sync",
    "tirx.ptx.cp_async_wait_group",
    "tirx.ptx.cp_async_commit_group",
)


def _raw() -> tuple[Any, Any, Any]:
    @tvm.transform.module_pass(opt_level=0)
    def run(mod: Any, _ctx: Any) -> Any:
        return tvm.ir.transform.Sequential(
            [
                s_tir.transform.LowerOpaqueBlock(),
                tirx.transform.FlattenBuffer(),
                tirx.transform.NarrowDataType(32),
                tirx.transform.VectorizeLoop(True),
                tirx.transform.UnrollLoop(),
                tirx.transform.StmtSimplify(),
                tirx.transform.AnnotateEntryFunc(),
                s_tir.transform.MergeSharedMemoryAllocations(),
                tirx.transform.SplitHostDevice(),
                tirx.transform.MakePackedAPI(),
                tirx.transform.FP8StorageLegalize(),
                tirx.transform.BF16StorageLegalize(),
            ]
        )(mod)

    return run, stock.finalize_host_passes, stock.finalize_device_passes


tirx.register_tir_pipeline(_NAME, _raw)
CUDA = Target({"kind": "cuda", "arch": "sm_80"})


def lower(func: Any) -> Any:
    return lower_for_emulation(func, CUDA, _NAME)


def sync_sites(mod: Any) -> list[str]:
    """Names of the synchronising calls of the kernels, in program order."""
    names: list[str] = []

    def visit(call: Any) -> None:
        if call.op.name in SYNCHRONISING:
            names.append(str(call.op.name))

    for func in mod.functions.values():
        tvm_ffi.structural_walk(func.body, [(Call, visit)])
    return names


def without(mod: Any, number: int) -> Any:
    """The module with its ``number``-th synchronising statement deleted."""
    return _rewritten(mod, number, lambda _call: tirx.Evaluate(0))


def weakened(mod: Any, number: int) -> Any:
    """The module in which the ``number``-th synchronising call, a wait, lets one group more fly."""

    def more(call: Any) -> Any:
        args = [tirx.const(int(call.args[0].value) + 1, "int32"), *call.args[1:]]
        return tirx.Evaluate(tirx.call_intrin("", call.op.name, *args))

    return _rewritten(mod, number, more)


def _rewritten(mod: Any, number: int, change: Callable[[Any], Any]) -> Any:
    numbers = itertools.count()

    def visit(stmt: Any) -> Any:
        call = stmt.value
        if not isinstance(call, Call) or call.op.name not in SYNCHRONISING:
            return stmt
        return change(call) if next(numbers) == number else stmt

    return tvm.IRModule({gv: _with_body(f, visit) for gv, f in mod.functions.items()})


def _with_body(func: Any, visit: Callable[[Any], Any]) -> Any:
    body = tvm_ffi.structural_map(func.body, [(tirx.Evaluate, visit)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
