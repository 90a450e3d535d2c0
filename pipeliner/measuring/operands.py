"""What a workload's kernels run on, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..kernel.compiled import Kernel
from ..records.functions import AnyWorkload, FunctionWorkload
from ..schedules.workloads import Spec, each_of
from ..verification.arrays import Array
from ..verification.magnitudes import source_rule
from ..verification.subjects import random_arguments, unpipelined
from ..verification.tolerance import Tolerance
from .compiling import BuiltCandidate
from .truth import Truth, empty_outputs, random_inputs, truths

_AS_INTEGERS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""Types that numpy knows by way of ml_dtypes and torch by itself: their bits go to and fro."""


class BenchOperands(Protocol):
    """The operands of one workload on the GPU, and its truth."""

    def arguments(self, built: BuiltCandidate) -> tuple[Any, ...]:
        """What ``built`` is run on, of its own where it writes."""
        ...

    def reset(self, arguments: tuple[Any, ...]) -> None:
        """Leave nothing in ``arguments`` that a run before has made."""
        ...

    def error(self, arguments: tuple[Any, ...], made: Any) -> float:
        """How wrong a run is, over what rounding allows; ``made``: what it returned. NaN: a NaN."""
        ...


def operands_of(torch: Any, workload: AnyWorkload) -> BenchOperands:
    """The operands of one of our workloads, or of a function of the user's."""
    if isinstance(workload, FunctionWorkload):
        return _of_function(torch, workload)
    inputs = random_inputs(torch, workload)
    return _OfWorkload(torch, workload, inputs, truths(torch, workload, inputs))


@dataclass(frozen=True, slots=True)
class _OfWorkload:
    """Inputs, and outputs, which are compared with the truth in float64."""

    torch: Any
    spec: Spec
    inputs: tuple[Any, ...]
    right: tuple[Truth, ...]

    def arguments(self, built: BuiltCandidate) -> tuple[Any, ...]:
        outs = empty_outputs(self.torch, self.spec, built.out or self.spec.out)
        return (*built.arrange(self.inputs), *outs)

    def reset(self, arguments: tuple[Any, ...]) -> None:
        for out in arguments[-len(self.right) :]:
            out.fill_(float("nan") if out.is_floating_point() else -85)

    def error(self, arguments: tuple[Any, ...], made: Any) -> float:
        outs = arguments[-len(self.right) :] if made is None else each_of(made)
        return float(np.max([one.error(out) for one, out in zip(self.right, outs)]))


@dataclass(frozen=True, slots=True)
class _OfFunction:
    """Every parameter, compared with what the function makes of it where nothing is pipelined.

    What it does not write stays as it is; what a kernel forgets to write is random still.
    """

    torch: Any
    given: dict[str, Array]
    right: dict[str, Array]
    rule: Tolerance

    def arguments(self, built: BuiltCandidate) -> tuple[Any, ...]:
        return tuple(to_torch(self.torch, array) for array in self.given.values())

    def reset(self, arguments: tuple[Any, ...]) -> None:
        for tensor, array in zip(arguments, self.given.values()):
            tensor.copy_(to_torch(self.torch, array))

    def error(self, arguments: tuple[Any, ...], made: Any) -> float:
        worst = 0.0
        for (name, want), tensor in zip(self.right.items(), arguments):
            got = to_numpy(tensor, want)
            errors = self.rule.errors(name, got, want)
            errors = np.where(_is_nan(got) & _is_nan(want), 0.0, errors)
            worst = float(np.maximum(worst, errors.max(initial=0.0)))  # NaN stays
        return worst


def _of_function(torch: Any, workload: FunctionWorkload) -> _OfFunction:
    source = workload.source()
    names = [str(param.name) for param in source.params]
    given = dict(zip(names, random_arguments(source)))
    plain = unpipelined(source, None, None)

    def run(function: Any, arrays: Any) -> dict[str, Array]:
        kernel = plain if function is source else unpipelined(function, None, None)
        return dict(zip(names, ran(torch, kernel, list(arrays))))

    right = run(source, given.values())
    kinds = [matmul.instruction for matmul in plain.plan.matmuls]
    return _OfFunction(torch, given, right, source_rule(source, given, right, run, kinds))


def ran(torch: Any, kernel: Kernel, arrays: list[Array]) -> list[Array]:
    """What ``arrays`` hold once ``kernel`` has run on them, on the GPU."""
    tensors = [to_torch(torch, array) for array in arrays]
    kernel(*tensors)
    torch.cuda.synchronize()
    return [to_numpy(tensor, array) for tensor, array in zip(tensors, arrays)]


def to_torch(torch: Any, array: Array) -> Any:
    """A copy of ``array`` on the GPU."""
    bits = _AS_INTEGERS.get(array.dtype.name)
    if bits is None:
        return torch.from_numpy(array.copy()).cuda()
    kind = getattr(torch, array.dtype.name)
    return torch.from_numpy(array.view(bits).copy()).cuda().view(kind)


def to_numpy(tensor: Any, like: Array) -> Array:
    """A copy of ``tensor`` here, in the type of ``like``."""
    bits = _AS_INTEGERS.get(like.dtype.name)
    if bits is None:
        return np.array(tensor.cpu().numpy())
    import torch

    return np.array(tensor.view(getattr(torch, bits)).cpu().numpy()).view(like.dtype)


def _is_nan(array: Array) -> Array:
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, bool)
    return np.isnan(array.astype(np.float64))
