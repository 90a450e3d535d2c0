"""From a module as an importer leaves it to one that runs: laid out, converted, folded, built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax

from ..targets import cuda_target
from ..toolchain import nvcc
from .constants import FoldConstants
from .schedule import Schedule

_CUDA_GRAPH: Final = "relax.backend.use_cuda_graph"
"""TVM's option of its pass ``RewriteCUDAGraph``."""


def prepared(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    *,
    dtype: str = "float16",
    half_inputs: bool = False,
) -> Any:
    """``mod`` as ``Schedule`` wants it, by these TVM passes in their order.

    1. ``BindParams``: parameters become constants.
    2. ``FoldBatchnormToConv2D``: a batch norm behind a convolution becomes a factor of its weights
       and a bias.
    3. ``ConvertLayout``: images and filters with channels innermost.
    4. ``ToMixedPrecision``, where ``dtype`` is float16: products and convolutions of halves, and
       with ``half_inputs`` the inputs are halves, too.
    5. ``FoldConstants``: weights are folded, laid out and converted here, once.
    6. ``EliminateCommonSubexpr``: an input of several convolutions is laid out once.
    """
    inputs = [str(var.name) for var in mod["main"].params if str(var.name) not in (params or {})]
    passes = [
        relax.transform.BindParams("main", dict(params or {})),
        relax.transform.FoldBatchnormToConv2D(),
        FoldConstants(),
        relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
    ]
    if dtype == "float16":
        halves = inputs if half_inputs else []
        passes.append(relax.transform.ToMixedPrecision("float16", halves))
    passes += [FoldConstants(), relax.transform.EliminateCommonSubexpr()]
    return tvm.transform.Sequential(passes)(mod)


def compile(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: Any = None,
    *,
    dtype: str = "float16",
    half_inputs: bool = False,
    cuda_graph: bool = True,
    db: str | Path | None = None,
) -> Any:
    """The executable of a relax module for inference, for ``relax.VirtualMachine``.

    ``params``: the values of the parameters of ``main``, by name. ``target``, ``db``: as
    ``Schedule`` has them. ``dtype``, ``half_inputs``: as ``prepared`` has them. ``cuda_graph``:
    the machine captures its kernels at the first call and replays them as one CUDA graph at later
    ones, but for those that read an input or write an output.
    """
    given = cuda_target(target)
    ready = prepared(mod, params, dtype=dtype, half_inputs=half_inputs)
    config = {_CUDA_GRAPH: cuda_graph}
    scheduled = tvm.transform.Sequential([Schedule(given, db=db)])(ready)
    with nvcc.for_tvm(), given, tvm.transform.PassContext(config=config):
        return tvm.compile(scheduled, given, tir_pipeline="pipeliner")
