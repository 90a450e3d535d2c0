"""Relax modules: products and convolutions as our workloads, everything else as TVM has it.

    target = pipeliner.meta.target("h100")
    mod = pipeliner.relax.Schedule(target, db="tuned.sqlite")(mod)
    executable = tvm.compile(mod, target, tir_pipeline="pipeliner")

``relax.matmul`` of a matrix, or of as many pairs, with any number of rows, and ``relax.nn.conv2d``
with channels innermost become kernels of this library: the fastest recorded one, or the model's
choice; the plan on each function says which. What is no workload of ours (another operator, type or
layout, a symbolic batch of images) is legalised by TVM and scheduled by its dlight rules.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.s_tir import dlight

from .errors import PipelinerError, WorkloadError
from .kernel.compiled import as_module, only_function
from .passes.software_pipeline import SoftwarePipeline
from .records.candidate import NOTHING_ASKED
from .records.recorded import recorded, with_reason
from .schedules import Gemm, conv2d
from .schedules.workloads import Spec
from .targets import cuda_target

IS_SCHEDULED: Final = "tirx.is_scheduled"
"""TVM's attribute of functions that its schedule rules leave alone."""

_log = logging.getLogger(__name__)


@tvm.transform.module_pass(opt_level=0, name="pipeliner.relax.Schedule")
class Schedule:
    """A TVM pass that legalises and schedules a relax module for ``target``.

    ``db``: the file of records, as for ``pipeliner.build``. The target decides what may be used:
    ``sm_90a``, as ``pipeliner.meta.target`` gives it, has wgmma.
    """

    def __init__(self, target: Any = None, db: str | Path | None = None) -> None:
        self._target = cuda_target(target)
        self._db = db

    def transform_module(self, mod: Any, ctx: Any) -> Any:
        legalisers = {
            name: _legaliser(make, self._target, self._db) for name, make in _WORKLOADS.items()
        }
        rules = (dlight.gpu.Matmul(), dlight.gpu.GeneralReduction(), dlight.gpu.Fallback())
        with self._target:
            legal = relax.transform.LegalizeOps(legalisers)(mod)
            return dlight.ApplyDefaultSchedule(*rules)(legal)


def matmul_of(call: Any) -> Gemm:
    """The product that a call of ``relax.matmul`` is; WorkloadError: it is none of ours."""
    a, b, out = (_tensor(arg) for arg in (*call.args, call))
    if a.ndim not in (2, 3) or b.ndim != a.ndim:
        raise WorkloadError("relax.axes", a=a.ndim, b=b.ndim)
    *batch_axes, m, k = _extents(a, open_at=a.ndim - 2)
    *others, _, n = _extents(b)
    if batch_axes != others or None in (*batch_axes, k, n):
        raise WorkloadError("relax.batches")
    if a.dtype != b.dtype:
        raise WorkloadError("relax.types", a=str(a.dtype), b=str(b.dtype))
    assert k is not None
    assert n is not None
    batch = batch_axes[0] if batch_axes else None
    return Gemm(m, n, k, batch, dtype=str(a.dtype), layout="NN", out=str(out.dtype))


def conv2d_of(call: Any) -> Spec:
    """The convolution that a call of ``relax.nn.conv2d`` is; WorkloadError: it is none of ours."""
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if layouts not in (("NHWC", "OHWI", "NHWC"), ("NHWC", "OHWI", "")):
        raise WorkloadError("relax.layouts", layouts=layouts)
    x, w, out = (_tensor(arg) for arg in (*call.args, call))
    n, height, width, c = _extents(x)
    k, r, s, _ = _extents(w)
    extents = (n, height, width, c, k, r, s)
    if None in extents:
        raise WorkloadError("relax.extents")
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    known = [extent for extent in extents if extent is not None]
    return conv2d(
        *known,
        stride=tuple(int(step) for step in attrs.strides),
        pad=(top, bottom, left, right),
        dilation=tuple(int(step) for step in attrs.dilation),
        groups=int(attrs.groups),
        dtype=str(x.dtype),
        out=str(out.dtype),
    )


_WORKLOADS: Final[dict[str, Callable[[Any], Spec]]] = {
    "relax.matmul": matmul_of,
    "relax.nn.conv2d": conv2d_of,
}


def _legaliser(make: Callable[[Any], Spec], target: Any, db: Any) -> Callable[[Any, Any], Any]:
    """What ``LegalizeOps`` does with a call: ours where ``make`` finds a workload, else TVM's."""

    def legalise(builder: Any, call: Any) -> Any:
        try:
            spec = make(call)
            function = _scheduled(spec, target, db)
        except PipelinerError as err:
            _log.info("leave %s to TVM: %s", call.op.name, err)
            return call.op.get_attr("FLegalize")(builder, call)
        where = builder.add_func(function, spec.name)
        return relax.call_tir(where, list(call.args), call.ty)

    return legalise


def _scheduled(spec: Spec, target: Any, db: Any) -> Any:
    """The workload's function, pipelined for ``target`` and marked so that TVM leaves it alone."""
    choice = recorded(spec, target, NOTHING_ASKED, db)
    function = only_function(as_module(choice.candidate.function(spec)))
    request = choice.candidate.request
    options = {one.name: getattr(request, one.name) for one in dataclasses.fields(request)}
    with target:
        done = only_function(SoftwarePipeline(**options)(as_module(function)))
    return with_reason(done, choice.why).with_attr(IS_SCHEDULED, 1).without_attr("global_symbol")


def _tensor(value: Any) -> Any:
    """The type of a tensor; WorkloadError: its shape is not known."""
    if not isinstance(value.ty, relax.TensorType) or value.ty.shape is None:
        raise WorkloadError("relax.shape")
    return value.ty


def _extents(tensor: Any, open_at: int | None = None) -> list[int | None]:
    """Extents of a tensor; None: symbolic, which only axis ``open_at`` may be."""
    return list(_each_extent(tensor, open_at))


def _each_extent(tensor: Any, open_at: int | None) -> Iterator[int | None]:
    for at, extent in enumerate(tensor.shape.values):
        value = getattr(extent, "value", None)
        if value is None and at != open_at:
            raise WorkloadError("relax.axis", axis=at)
        yield None if value is None else int(value)
