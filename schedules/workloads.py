"""Workloads: what is computed, as a plain PrimFunc with no schedule in it.

A workload is a value: sizes, types and layouts. ``function()`` gives its TensorIR, ``reference()``
what it must compute, so that whoever schedules or checks it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np
import tvm
from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.s_tir import SBlock, SBlockRealize

from ..errors import WorkloadError
from ..passes.ir import block, buffer, i32, walk

LAYOUTS: Final = ("NN", "NT", "TN", "TT")

MATMUL: Final = "matmul"
"""Name of the reduction block of every matmul-like workload."""

STORE: Final = "store"
"""Name of the block that writes a workload's output from its accumulator."""

INSTRUCTION: Final = "pipeliner.mma"
"""Annotation of a matmul block: which instruction it may become (auto, simt, mma)."""


@dataclass(frozen=True, slots=True)
class _Type:
    storage: str
    accumulators: tuple[str, ...]
    outputs: tuple[str, ...]
    instruction: str = "auto"


# The first accumulator and the first output are the defaults. tf32 is a way to multiply, not to
# store: its operands are float32 in memory, so only the annotation tells it from fp32.
_TYPES: Final = {
    "float32": _Type("float32", ("float32",), ("float32",)),
    "tfloat32": _Type("float32", ("float32",), ("float32",), instruction="mma"),
    "float16": _Type("float16", ("float32", "float16"), ("float16", "float32")),
    "bfloat16": _Type("bfloat16", ("float32",), ("bfloat16", "float32")),
    "int8": _Type("int8", ("int32",), ("int32", "int8")),
}

_ALIASES: Final = {
    "fp32": "float32",
    "tf32": "tfloat32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}

DTYPES: Final = tuple(_TYPES)


@dataclass(frozen=True, slots=True)
class Gemm:
    """``C[m, n] = sum over k of A[m, k] * B[k, n]``, optionally for each of ``batch`` matrices.

    ``layout``: one letter for each operand, as in BLAS: ``N`` stores it as written above, ``T``
    transposed; so in ``NT`` the contiguous dimension of both operands is K. ``m=None`` leaves M to
    run time. ``dtype``: type of the operands (``float32``, ``tfloat32``, ``float16``, ``bfloat16``,
    ``int8``, or a short form such as ``fp16``); ``tfloat32`` reads float32 and multiplies on tensor
    cores. ``accumulator`` and ``out`` default to the widest accumulator and to the operands' type
    (int8: int32). WorkloadError names what makes no sense.
    """

    m: int | None
    n: int
    k: int
    batch: int | None = None
    dtype: str = "float16"
    layout: str = "NT"
    accumulator: str = ""
    out: str = ""
    _type: _Type = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        dtype = _ALIASES.get(self.dtype, self.dtype)
        if dtype not in _TYPES:
            raise WorkloadError(f"expected dtype to be one of {_list(DTYPES)}, not {self.dtype!r}")
        kind = _TYPES[dtype]
        accumulator = _ALIASES.get(self.accumulator, self.accumulator) or kind.accumulators[0]
        out = _ALIASES.get(self.out, self.out) or kind.outputs[0]
        if self.layout not in LAYOUTS:
            raise WorkloadError(
                f"expected layout to be one of {_list(LAYOUTS)}, not {self.layout!r}"
            )
        if accumulator not in kind.accumulators:
            raise WorkloadError(
                f"cannot accumulate {dtype} in {accumulator!r}: "
                f"expected one of {_list(kind.accumulators)}"
            )
        if out not in (accumulator, *kind.outputs):
            raise WorkloadError(
                f"cannot store {dtype} matmul as {out!r}: "
                f"expected one of {_list(dict.fromkeys((accumulator, *kind.outputs)))}"
            )
        for name in ("m", "n", "k", "batch"):
            _check_extent(name, getattr(self, name), optional=name in ("m", "batch"))
        for name, value in (
            ("dtype", dtype),
            ("accumulator", accumulator),
            ("out", out),
            ("_type", kind),
        ):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        batch = f"b{self.batch}_" if self.batch else ""
        m = "m" if self.m is None else self.m
        kinds = [self.dtype]
        if self.accumulator != self._type.accumulators[0]:
            kinds.append(f"acc_{self.accumulator}")
        if self.out != self._type.outputs[0]:
            kinds.append(f"out_{self.out}")
        return f"gemm_{batch}{m}x{self.n}x{self.k}_{'_'.join(kinds)}_{self.layout.lower()}"

    @property
    def storage(self) -> str:
        """Type of an operand in memory."""
        return self._type.storage

    @property
    def instruction(self) -> str:
        """The ``pipeliner.mma`` annotation of its matmul block."""
        return self._type.instruction

    def flops(self, m: int | None = None) -> int:
        """Multiplications and additions; ``m`` is needed where the workload leaves it open."""
        return 2 * (self.batch or 1) * self._m(m) * self.n * self.k

    def shapes(self, m: int | None = None) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B and C in memory."""
        rows = self._m(m)
        lead = () if self.batch is None else (self.batch,)
        a = (rows, self.k) if self.layout[0] == "N" else (self.k, rows)
        b = (self.k, self.n) if self.layout[1] == "N" else (self.n, self.k)
        return (*lead, *a), (*lead, *b), (*lead, rows, self.n)

    def inputs(self, seed: int = 0, m: int | None = None) -> tuple[Any, Any]:
        """Operands with standard normal values (int8: uniform over -8..7), as numpy arrays."""
        rng = np.random.default_rng(seed)
        a, b, _ = self.shapes(m)
        if self.storage == "int8":
            return rng.integers(-8, 8, a, dtype=np.int8), rng.integers(-8, 8, b, dtype=np.int8)
        dtype = numpy_dtype(self.storage)
        return rng.standard_normal(a).astype(dtype), rng.standard_normal(b).astype(dtype)

    def reference(self, a: Any, b: Any) -> Any:
        """The exact product of the operands as stored: float64, or int64 for integers."""
        wide = np.int64 if self.storage == "int8" else np.float64
        left = a.astype(wide) if self.layout[0] == "N" else a.astype(wide).swapaxes(-1, -2)
        right = b.astype(wide) if self.layout[1] == "N" else b.astype(wide).swapaxes(-1, -2)
        return left @ right

    def function(self) -> Any:
        """The PrimFunc: a reduction block ``matmul`` into an accumulator, then block ``store``."""
        m = Var("m", "int32") if self.m is None else i32(self.m)
        lead = [] if self.batch is None else [i32(self.batch)]
        n, k = i32(self.n), i32(self.k)
        a_shape = [m, k] if self.layout[0] == "N" else [k, m]
        b_shape = [k, n] if self.layout[1] == "N" else [n, k]
        a = buffer([*lead, *a_shape], self.storage, "A", "global")
        b = buffer([*lead, *b_shape], self.storage, "B", "global")
        acc = buffer([*lead, m, n], self.accumulator, "acc", "global")
        c = buffer([*lead, m, n], self.out, "C", "global")

        def matmul(axes: Sequence[Any]) -> tuple[Any, Any]:
            *outer, i, j, r = axes
            left = [*outer, i, r] if self.layout[0] == "N" else [*outer, r, i]
            right = [*outer, r, j] if self.layout[1] == "N" else [*outer, j, r]
            out = [*outer, i, j]
            product = _cast(tirx.BufferLoad(a, left), self.accumulator) * _cast(
                tirx.BufferLoad(b, right), self.accumulator
            )
            zero = tirx.BufferStore(acc, tirx.const(0, self.accumulator), out)
            return tirx.BufferStore(acc, tirx.BufferLoad(acc, out) + product, out), zero

        def store(axes: Sequence[Any]) -> tuple[Any, None]:
            value = tirx.BufferLoad(acc, list(axes))
            return tirx.BufferStore(c, _cast(value, self.out), list(axes)), None

        hint = {} if self.instruction == "auto" else {INSTRUCTION: self.instruction}
        names = ["b", "i", "j", "k"] if lead else ["i", "j", "k"]
        body = tirx.SeqStmt(
            [
                _grid(MATMUL, names, [*lead, m, n, k], 1, matmul, hint),
                _grid(STORE, names[:-1], [*lead, m, n], 0, store, {}),
            ]
        )
        attrs = {"global_symbol": self.name, "s_tir": True, "tirx.noalias": True}
        root = block("root", body, [acc])
        return tirx.PrimFunc([a, b, c], root, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs))

    def _m(self, m: int | None) -> int:
        rows = self.m if m is None else m
        if rows is None:
            raise WorkloadError(f"expected a value for m: '{self.name}' leaves it to run time")
        return rows


def numpy_dtype(name: str) -> Any:
    """The numpy type of a TVM type; bfloat16 is ml_dtypes', which TVM depends on."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _grid(
    name: str,
    axes: Sequence[str],
    extents: Sequence[Any],
    reductions: int,
    body: Callable[[list[Any]], tuple[Any, Any]],
    annotations: dict[str, Any],
) -> Any:
    """A block under one loop for each axis, the last ``reductions`` of them summed over.

    ``body`` gives the block's store and, where something is reduced, its initial store.
    """
    loops = [Var(axis, "int32") for axis in axes]
    values = [Var(f"v{axis}", "int32") for axis in axes]
    spatial = len(axes) - reductions
    iters = [
        tirx.IterVar(
            Range(i32(0), extent),
            value,
            tirx.IterVar.DataPar if at < spatial else tirx.IterVar.CommReduce,
        )
        for at, (value, extent) in enumerate(zip(values, extents, strict=True))
    ]
    store, init = body(values)
    loads: list[Any] = []
    walk(store.value, TensorLoad, loads.append)
    # What a reduction block adds to is its output, not one of its reads.
    inputs = [load for load in loads if not load.source.same_as(store.buffer)]
    reads = [_point(load.source, load.indices) for load in inputs]
    writes = [_point(store.buffer, store.indices)]
    stmt = SBlockRealize(
        loops, True, SBlock(iters, reads, writes, name, store, init, annotations=annotations)
    )
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        stmt = tirx.For(var, i32(0), extent, tirx.ForKind.SERIAL, stmt)
    return stmt


def _point(buf: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buf, [Range.from_min_extent(index, i32(1)) for index in indices])


def _cast(value: TensorLoad, dtype: str) -> Any:
    return value if str(value.source.dtype) == dtype else tirx.Cast(dtype, value)


def _check_extent(name: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    if type(value) is not int or value < 1:
        raise WorkloadError(f"expected {name} to be a positive integer, not {value!r}")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
