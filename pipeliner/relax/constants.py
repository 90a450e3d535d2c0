"""A pass that computes in numpy what depends on constants alone, and lays images out once.

TVM's own ``FoldConstant`` compiles a kernel for each operator and shape, which takes minutes for a
network; this one knows what folding batch norms, converting layouts and types leave behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax


def array_of(value: Any) -> Any | None:
    """The elements of a constant tensor as a numpy array; None: it is none."""
    if not isinstance(value, tvm.ir.GenericConst) or not isinstance(value.ty, relax.TensorType):
        return None
    return value.value.numpy()


def constant(array: Any) -> Any:
    """The constant tensor of a numpy array."""
    return relax.const(np.ascontiguousarray(array), str(array.dtype))


def _reshaped(call: Any, array: Any) -> Any:
    return array.reshape([int(extent) for extent in call.ty.shape.values])


def _permuted(call: Any, array: Any) -> Any:
    return array.transpose(_axes(call))


def _converted(call: Any, array: Any) -> Any:
    return array.astype(str(call.ty.dtype))


_COMPUTED: Final[dict[str, Callable[..., Any]]] = {
    "relax.add": lambda _, a, b: a + b,
    "relax.subtract": lambda _, a, b: a - b,
    "relax.multiply": lambda _, a, b: a * b,
    "relax.divide": lambda _, a, b: a / b,
    "relax.sqrt": lambda _, a: np.sqrt(a),
    "relax.rsqrt": lambda _, a: 1 / np.sqrt(a),
    "relax.negative": lambda _, a: -a,
    "relax.astype": _converted,
    "relax.reshape": _reshaped,
    "relax.expand_dims": _reshaped,
    "relax.squeeze": _reshaped,
    "relax.permute_dims": _permuted,
}
"""By operator: the result, from the call and its tensors."""


@tvm.transform.module_pass(opt_level=0, name="pipeliner.relax.FoldConstants")
class FoldConstants:
    """A TVM pass: calls on constants become constants, and pairs of transpositions nothing."""

    def transform_module(self, mod: Any, ctx: Any) -> Any:
        for where, function in mod.functions_items():
            if isinstance(function, relax.Function):
                mod = _Folder(mod).of(where)
        return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(mod))


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    """Computes the calls whose tensors are all constants."""

    def __init__(self, mod: Any) -> None:
        super().__init__(mod)
        self._mod = mod

    def of(self, where: Any) -> Any:
        """The module, with the function ``where`` rewritten."""
        self.builder_.update_func(where, self.visit_expr(self._mod[where]))
        return self.builder_.get()

    def visit_call_(self, call: Any) -> Any:
        made = super().visit_call_(call)
        if not isinstance(made, relax.Call):
            return made
        name = str(getattr(made.op, "name", ""))
        if name == "relax.permute_dims":
            return self._permuted(made, call)
        compute = _COMPUTED.get(name)
        if compute is None or call.ty.shape is None:
            return made
        arrays = [self._array(one) for one in made.args if not isinstance(one, relax.ShapeExpr)]
        if not arrays or any(array is None for array in arrays):
            return made
        return self._constant(compute(call, *arrays), call)

    def _permuted(self, made: Any, call: Any) -> Any:
        """A transposition of a constant, of a transposition that it undoes, or of nothing."""
        array = self._array(made.args[0])
        if array is not None:
            return self._constant(_permuted(call, array), call)
        if _axes(made) == list(range(call.ty.ndim)):
            return made.args[0]
        inner = self._bound(made.args[0])
        if not isinstance(inner, relax.Call) or str(getattr(inner.op, "name", "")) != str(
            made.op.name
        ):
            return made
        first, then = _axes(inner), _axes(made)
        if [first[axis] for axis in then] != list(range(len(first))):
            return made
        return inner.args[0]

    def _constant(self, array: Any, call: Any) -> Any:
        return constant(np.asarray(array).astype(str(call.ty.dtype)))

    def _array(self, value: Any) -> Any | None:
        """The elements of a constant, of a variable bound to one, or of a number."""
        bound = self._bound(value)
        if isinstance(bound, tvm.tirx.IntImm | tvm.tirx.FloatImm):
            return np.asarray(bound.value, str(bound.ty.dtype))
        return array_of(bound)

    def _bound(self, value: Any) -> Any:
        """What a variable is bound to; anything else is itself."""
        if not isinstance(value, relax.Var):
            return value
        bound = self.lookup_binding(value)
        return value if bound is None else bound


def _axes(call: Any) -> list[int]:
    """Where each axis of a transposition comes from."""
    axes = call.attrs.axes
    if axes is None:
        return list(range(call.ty.ndim))[::-1]
    return [int(axis) % call.ty.ndim for axis in axes]
