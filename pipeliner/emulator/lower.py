"""Lower a scheduled module to the form the emulator runs.

The device functions are those CUDA is printed from: after the whole pipeline and the device
finalisation passes.  The host functions are taken after SplitHostDevice, before MakePackedAPI
turns their arguments into packed handles, so that launch dimensions and kernel arguments can be
read off ``T.call_ffi_kernel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.target import Target

from ..errors import EmulatorError

_SPLIT: Final = "SplitHostDevice"
"""Last name of the pass of TVM that parts host and device functions."""

_CHECKS: Final = "pipeliner.CheckArguments"
"""The pass of ours that adds the checks of arguments to host functions."""

_KERNEL_LAUNCH: Final = 2
"""Calling convention of device functions, ``tvm::CallingConv::kDeviceKernelLaunch``."""


@tvm.ir.instrument.pass_instrument
class Lowering:
    """Keeps what ``emulate`` runs of a compilation that it watches.

    The host functions as SplitHostDevice leaves them, with the checks that our pipeline puts there,
    and the kernels after the last pass.
    """

    def __init__(self) -> None:
        self._split: Any = None
        self._kernels: Any = None

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if str(info.name).endswith((_SPLIT, _CHECKS)):
            self._split = mod
        elif self._split is not None and all(map(is_device_function, mod.functions.values())):
            self._kernels = mod

    @property
    def module(self) -> Any:
        """An IRModule for ``emulate``; EmulatorError where the pipeline has no SplitHostDevice."""
        if self._split is None:
            raise EmulatorError("emulator.pipeline", missing=_SPLIT)
        host = {gv: f for gv, f in self._split.functions.items() if not is_device_function(f)}
        return tvm.IRModule({**host, **dict(self._kernels.functions.items())})


def lower_for_emulation(
    mod: Any,
    target: Any,
    tir_pipeline: str = "s_tir",
    config: Mapping[str, Any] | None = None,
) -> Any:
    """Host functions after SplitHostDevice and device functions as CUDA sees them.

    Parameters
    ----------
    mod
        PrimFunc, Schedule or IRModule, scheduled for CUDA.
    target
        CUDA target (or what ``Target`` accepts).
    tir_pipeline
        Name of a registered TIR pipeline, as for ``tvm.compile``.
    config
        PassContext options, such as ``{"tirx.use_async_copy": True}``.

    Returns
    -------
    An IRModule for ``emulate``.
    """
    mod = getattr(mod, "mod", mod)
    if isinstance(mod, tirx.PrimFunc):
        mod = tvm.IRModule.from_expr(mod)
    target = Target(target)
    host_kind = "llvm" if tvm.runtime.enabled("llvm") else "c"
    bound = target if target.host is not None else target.with_host(host_kind)
    pipeline, _, finalize_device = tirx.get_tir_pipeline(tir_pipeline)
    seen = Lowering()
    with target, tvm.transform.PassContext(config=dict(config or {}), instruments=[seen]):
        lowered = pipeline(tirx.transform.BindTarget(bound)(mod))
        finalize_device()(tirx.transform.Filter(is_device_function)(lowered))
    return seen.module


def is_device_function(func: Any) -> bool:
    """Whether a lowered function is a kernel; a host function may carry the CUDA target too."""
    return func.attrs is not None and int(func.attrs.get("calling_conv", 0)) == _KERNEL_LAUNCH
