"""The pass that makes kernels of a relax module: ours with their epilogues, the rest as TVM's."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.s_tir import dlight

from ..errors import PipelinerError
from ..kernel.compiled import as_module, only_function
from ..passes.software_pipeline import SoftwarePipeline
from ..records.candidate import NOTHING_ASKED
from ..records.recorded import recorded, with_reason
from ..schedules.workloads import Gemm, Spec
from ..targets import cuda_target
from .attention import attentions
from .calls import Fused
from .constants import array_of, constant
from .epilogues import chains
from .gating import gated_products
from .reductions import reduce_by_thread
from .workloads import WORKLOADS, Workload

IS_SCHEDULED: Final = "tirx.is_scheduled"
"""TVM's attribute of functions that its schedule rules leave alone."""

_OP_PATTERN: Final = "op_pattern"
_OPAQUE: Final = 8
"""TVM's attribute of functions that it should fuse with nothing, and its value."""

_OPEN: Final = 1 << 30
"""Stands for the rows of a product that are known at run time."""

_log = logging.getLogger(__name__)


@tvm.transform.module_pass(opt_level=0, name="pipeliner.relax.Schedule")
class Schedule:
    """A TVM pass that fuses, legalises and schedules a relax module for ``target``.

    ``db``: the file of records, as for ``pipeliner.build``. The target decides what may be used:
    ``sm_90a``, as ``pipeliner.meta.target`` gives it, has wgmma.
    """

    def __init__(self, target: Any = None, db: str | Path | None = None) -> None:
        self._target = cuda_target(target)
        self._db = db

    def transform_module(self, mod: Any, ctx: Any) -> Any:
        kernels = _Kernels(self._target, self._db)
        legalisers = {name: kernels.legaliser(make) for name, make in WORKLOADS.items()}
        rules = (
            dlight.gpu.Matmul(),
            reduce_by_thread,
            dlight.gpu.GeneralReduction(),
            dlight.gpu.Fallback(),
        )
        with self._target:
            for where, function in mod.functions_items():
                if isinstance(function, relax.Function):
                    mod = _Fuser(mod, _taken(function, kernels), kernels).of(where)
            passes = (
                relax.transform.DeadCodeElimination(),
                relax.transform.LegalizeOps(legalisers),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                dlight.ApplyDefaultSchedule(*rules),
            )
            return tvm.transform.Sequential(passes)(mod)


class _Kernels:
    """The kernels of workloads, each made once."""

    def __init__(self, target: Any, db: str | Path | None) -> None:
        self._target = target
        self._db = db
        self._made: dict[Spec, Any] = {}

    def of(self, spec: Spec) -> Any | None:
        """The kernel of ``spec``; None: there can be none, which is logged."""
        if spec not in self._made:
            try:
                self._made[spec] = self._scheduled(spec)
            except PipelinerError as err:
                _log.info("no kernel for %s: %s", spec.name, err)
                self._made[spec] = None
        return self._made[spec]

    def legaliser(self, make: Callable[[Any], Workload]) -> Callable[[Any, Any], Any]:
        """What ``LegalizeOps`` does with a call: ours where ``make`` finds a workload."""

        def legalise(builder: Any, call: Any) -> Any:
            try:
                spec = make(call)
            except PipelinerError as err:
                _log.info("leave %s to TVM: %s", call.op.name, err)
            else:
                function = self.of(spec)
                if function is not None:
                    return called(builder, function, spec, list(call.args), call.ty)
            return call.op.get_attr("FLegalize")(builder, call)

        return legalise

    def _scheduled(self, spec: Spec) -> Any:
        """The workload's function, pipelined, and marked so that TVM leaves it alone."""
        choice = recorded(spec, self._target, NOTHING_ASKED, self._db)
        function = only_function(as_module(choice.candidate.function(spec)))
        request = choice.candidate.request
        options = {one.name: getattr(request, one.name) for one in dataclasses.fields(request)}
        done = only_function(SoftwarePipeline(**options)(as_module(function)))
        marked = with_reason(done, choice.why).with_attr(IS_SCHEDULED, 1)
        return marked.with_attr(_OP_PATTERN, _OPAQUE).without_attr("global_symbol")


def _taken(function: Any, kernels: _Kernels) -> dict[Any, Fused]:
    """By the call that each takes the place of: what has a kernel, of every chain the longest."""
    found: dict[Any, Fused] = {}
    claimed: set[Any] = set()
    for one in (*attentions(function), *gated_products(function)):
        if kernels.of(one.spec) is not None:
            found[one.last] = one
            claimed.update(one.heads)
    for candidates in chains(function, claimed):
        taken = next((one for one in candidates if kernels.of(one.spec) is not None), None)
        if taken is not None:
            found[taken.last] = taken
    return found


@relax.expr_functor.mutator
class _Fuser(relax.PyExprMutator):
    """Puts kernels in the place of calls."""

    def __init__(self, mod: Any, taken: dict[Any, Fused], kernels: _Kernels) -> None:
        super().__init__(mod)
        self._mod = mod
        self._taken = taken
        self._kernels = kernels

    def of(self, where: Any) -> Any:
        """The module, with the function ``where`` rewritten."""
        if not self._taken:
            return self._mod
        self.builder_.update_func(where, self.visit_expr(self._mod[where]))
        return self.builder_.get()

    def visit_call_(self, call: Any) -> Any:
        taken = self._taken.get(call)
        if taken is None:
            return super().visit_call_(call)
        operands = [self.visit_expr(one) for one in taken.operands]
        return called(self.builder_, self._kernels.of(taken.spec), taken.spec, operands, call.ty)


def called(builder: Any, kernel: Any, spec: Spec, operands: Sequence[Any], made: Any) -> Any:
    """A call of ``kernel``, that of ``spec``, on ``operands``, for a result like ``made``.

    What has other axes than the workload, which has one for all rows, is reshaped: a view.
    """
    shapes = _shapes(spec, made)
    *given, out = shapes
    read = [_shaped(builder, one, shape) for one, shape in zip(operands, given, strict=True)]
    where = builder.add_func(kernel, spec.name)
    if _has_shape(made, out):
        return relax.call_tir(where, read, made)
    found = builder.emit(relax.call_tir(where, read, relax.TensorType(out, made.dtype)))
    return relax.op.reshape(found, made.shape)


def _shapes(spec: Spec, made: Any) -> list[list[Any]]:
    """Shapes of the arguments of ``spec``; rows that it leaves open are those of ``made``."""
    if not isinstance(spec, Gemm) or spec.m is not None:
        return [list(shape) for shape in spec.shapes()]
    rows = made.shape.values[-2]
    marked = spec.shapes(_OPEN)
    return [[rows if extent == _OPEN else extent for extent in shape] for shape in marked]


def _has_shape(tensor: Any, shape: Sequence[Any]) -> bool:
    """Whether a tensor has that shape; symbolic extents are compared by structure."""
    extents = tensor.shape.values
    return len(extents) == len(shape) and all(
        tvm_ffi.structural_equal(
            one, tirx.const(other, "int64") if isinstance(other, int) else other
        )
        for one, other in zip(extents, shape)
    )


def _shaped(builder: Any, value: Any, shape: Sequence[Any]) -> Any:
    """``value`` with as many elements in the axes ``shape``; itself where it has them."""
    if _has_shape(value.ty, shape):
        return value
    array = array_of(value)
    if array is not None:
        return constant(array.reshape(shape))
    return builder.emit(relax.op.reshape(value, shape))
