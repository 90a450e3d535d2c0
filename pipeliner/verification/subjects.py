"""What is verified, in whatever form it comes, and arguments to run it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import tvm
from tvm import ir
from tvm.tirx.buffer import is_buffer_var

from ..api import build
from ..emulator import Emulation, emulate
from ..emulator.base.report import CudaLine
from ..emulator.launch.arguments import parameter_names
from ..emulator.launch.evaluate import evaluate
from ..emulator.launch.host import kernel_names
from ..emulator.lower import is_device_function
from ..errors import PipelinerError, WorkloadError
from ..instructions.table import multiplied_by
from ..kernel.compiled import Kernel, as_module, only_function
from ..kernel.cuda_lines import lines_when_asked
from ..passes.ir.marks import is_marked
from ..passes.ir.nodes import collect, const_int, walk
from ..plan import KernelPlan

GivenInputs: TypeAlias = "Sequence[Any] | Mapping[str, Any]"

LARGEST_INTEGER: Final = 4
"""Of the integers in random arguments: sums of thousands of their products are exact in float32."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Something to run: its host function, how to emulate it, and the same not pipelined.

    ``source``: the function before it was pipelined; None: not known. ``plan``: of a kernel of
    ours. ``line``: where a statement of a device function, by their name and number, stands in the
    CUDA.
    """

    title: str
    function: Any
    lowered: Any
    emulate: Callable[..., Emulation]
    plain: Callable[[], Kernel] | None = None
    line: Callable[[str, int], CudaLine | None] = lambda kernel, number: None
    source: Any = None
    plan: KernelPlan | None = None

    @property
    def kernels(self) -> list[str]:
        """Names of its kernels, in order."""
        functions = self.lowered.functions.values()
        return kernel_names(next(f for f in functions if not is_device_function(f)))

    @property
    def cluster(self) -> int:
        """How many CTAs of its kernels are a cluster, as far as a plan says."""
        return 1 if self.plan is None else self.plan.ctas_that_meet


def subject_of(func: Any, target: Any = None) -> Subject:
    """What ``verify`` runs for ``func``."""
    if isinstance(func, tvm.IRModule) and any(map(is_device_function, func.functions.values())):
        host = only_function(tvm.IRModule(
            {var: f for var, f in func.functions.items() if not is_device_function(f)}
        ))  # fmt: skip
        name = str(host.attrs["global_symbol"])
        lines = lines_when_asked(func)

        def run(*arrays: Any, **options: Any) -> Emulation:
            return emulate(func, arrays, lines=lines, **options)

        return Subject(name, host, func, run, line=lines)
    kernel = func if isinstance(func, Kernel) else build(func, target)
    source = kernel.original if isinstance(func, Kernel) else only_function(as_module(func))
    plan = kernel.plan if is_marked(kernel.function) else None
    plain: Callable[[], Kernel] | None = None
    if is_marked(source):
        source = None
    else:

        def plain() -> Kernel:
            return unpipelined(source, kernel.target, plan)

    def line(name: str, number: int) -> CudaLine | None:
        return kernel.cuda_lines.find(name, number)

    return Subject(
        kernel.name, kernel.function, kernel.lowered, kernel.emulate, plain, line, source, plan
    )


def unpipelined(source: Any, target: Any, plan: KernelPlan | None) -> Kernel:
    """``source`` at depth 1, with the instruction of ``plan`` and its order of sums where it can.

    Where not even one slot fits, as by default, if that leaves its loops alone. Raises what
    ``build`` raises at depth 1.
    """
    same = {} if plan is None else _same_sums(plan)
    if same:
        with suppress(PipelinerError):
            return build(source, target, depth=1, **same)
    try:
        return build(source, target, depth=1)
    except PipelinerError:
        kernel = build(source, target)
        if any(loop.pipelined for loop in kernel.plan.loops):
            raise
        return kernel


def has_same_sums(plan: KernelPlan | None, other: KernelPlan) -> bool:
    """Whether a kernel of ``plan`` adds up everything in the order of one of ``other``."""
    if plan is None:
        return not other.matmuls

    def sums(one: KernelPlan) -> list[Any]:
        return [
            (m.op, m.m, m.n, m.k, m.instruction, m.k_step, m.swap_ab, m.promoted)
            for m in one.matmuls
        ]

    adds = any(store.partial_sums for store in (*plan.stores, *other.stores))
    return sums(plan) == sums(other) and not adds


def _same_sums(plan: KernelPlan) -> dict[str, Any]:
    """The options that ask for the instruction of ``plan`` and its order of sums."""
    kinds = {matmul.instruction.partition(".")[0] for matmul in plan.matmuls}
    options: dict[str, Any] = {}
    if len(kinds) == 1:
        options["instruction"] = kinds.pop()
    if len(plan.matmuls) == 1:
        (matmul,) = plan.matmuls
        by = multiplied_by(matmul)
        if by.thread_tile:
            options["thread_tile"] = matmul.thread_tile
        elif not by.warpgroup_wide:
            options["warps"] = matmul.warps
    if any(matmul.promoted for matmul in plan.matmuls):
        options["accumulate"] = "promoted"
    if any(store.partial_sums for store in plan.stores):
        options["reduction"] = "atomic"
    return options


def arguments(
    function: Any,
    inputs: GivenInputs | None = None,
    seed: int = 0,
    *,
    integers: bool = False,
    extents: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Arguments of a PrimFunc by name: ``inputs``, or random ones.

    WorkloadError: ``inputs`` are not as many as it takes.
    """
    names = parameter_names(function)
    if inputs is None:
        return dict(
            zip(names, random_arguments(function, seed, integers=integers, extents=extents))
        )
    if isinstance(inputs, Mapping):
        inputs = [inputs[name] for name in names if name in inputs]
    if len(inputs) != len(names):
        raise WorkloadError("arguments.count", names=tuple(names), count=len(inputs))
    return dict(zip(names, inputs))


def random_arguments(
    func: Any,
    seed: int = 0,
    *,
    integers: bool = False,
    extents: Mapping[str, int] | None = None,
) -> list[Any]:
    """Random arguments for the parameters of a PrimFunc; WorkloadError: a shape is not known."""
    from ..schedules.workloads import numpy_dtype

    rng = np.random.default_rng(seed)
    known = dict(extents or {})
    found: list[Any] = []
    for param in func.params:
        if not is_buffer_var(param):
            found.append(_known(param, param, known))
            continue
        shape = [_known(param, extent, known) for extent in param.shape]
        kind = numpy_dtype(str(param.dtype))
        if kind.kind == "b":
            found.append(rng.integers(0, 2, shape).astype(kind))
        elif kind.kind in "iu":
            found.append(rng.integers(0, 8, shape).astype(kind))
        elif integers:
            found.append(rng.integers(-LARGEST_INTEGER, LARGEST_INTEGER + 1, shape).astype(kind))
        else:
            found.append(rng.standard_normal(shape).astype(kind))
    return found


def _known(param: Any, extent: Any, extents: Mapping[str, int]) -> int:
    """The value of an extent of ``param``, whose variables have the values ``extents``."""
    value = const_int(extent)
    if value is not None:
        return value
    variables: set[Any] = set()
    walk(extent, ir.Var, variables.add)
    missing = sorted(str(var.name) for var in variables if str(var.name) not in extents)
    if missing:
        raise WorkloadError("arguments.extents", argument=str(param.name), names=tuple(missing))
    return int(evaluate(extent, {var: extents[str(var.name)] for var in variables}))


def has_atomics(lowered: Any) -> bool:
    """Whether CTAs or threads of a lowered module add in memory in the order in which they come."""
    return any("atomic" in name.lower() for name in _calls(lowered))


def _calls(lowered: Any) -> Iterator[str]:
    """Names of what device functions call."""
    for func in lowered.functions.values():
        if is_device_function(func):
            calls = collect(func.body, ir.Call)
            for call in calls:
                yield str(getattr(call.op, "name", call.op))
                if call.args and hasattr(call.args[0], "value"):
                    yield str(call.args[0].value)
