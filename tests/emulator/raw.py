"""Lower a function as it is written: no pass of this pipeline adds or removes a barrier."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import pipeline as stock
from tvm.target import Target

from pipeliner.emulator import lower_for_emulation

_NAME = "emulator_tests_raw"


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
