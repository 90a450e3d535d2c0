"""The matmul itself, and two of one A of which the first gates the second."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ...errors import WorkloadError
from ...values.elements import element
from .base import epilogue as steps
from .base.dtypes import Types, check_extent, exact, random_array, resolve
from .base.operand import Axis, Coordinates, Element, Operand
from .contraction import Contraction
from .padded import padded

CONVERTED: Final = element("int8").converts_to
"""Types that weights of 8 bits are converted to, which hold all of theirs."""

LAYOUTS: Final = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True, slots=True)
class Gemm:
    """``C[m, n] = sum over k of A[m, k] * B[k, n]``, optionally for each of ``batch`` matrices.

    ``layout``: one letter for each operand, as in BLAS: ``N`` stores it as written above, ``T``
    transposed; so in ``NT`` the contiguous dimension of both operands is K. ``m=None`` leaves M to
    run time. ``dtype``: type of the operands (``float32``, ``tfloat32``, ``float16``, ``bfloat16``,
    ``int8``, ``uint8``, or a short form such as ``fp16``); ``tfloat32`` reads float32 and
    multiplies on tensor cores. ``weights``: type of B in memory where it is another, int8 beside
    16-bit floats, to which it is converted on its way. ``accumulator`` and ``out`` default to the
    widest accumulator and to the operands' type (bytes: int32). ``epilogue``: what is done to the
    sums before they are stored, in order: ``bias`` (one value for each column), ``scale`` (the
    same, multiplied), ``residual`` (a matrix like C), ``relu``, ``gelu``, ``silu``.
    WorkloadError names what makes no sense.
    """

    m: int | None
    n: int
    k: int
    batch: int | None = None
    dtype: str = "float16"
    layout: str = "NT"
    accumulator: str = ""
    out: str = ""
    epilogue: tuple[str, ...] = ()
    weights: str = ""

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        types = resolve(self.dtype, self.accumulator, self.out)
        if self.layout not in LAYOUTS:
            raise WorkloadError("workload.layout", choices=LAYOUTS, value=self.layout)
        for name in ("m", "n", "k", "batch"):
            check_extent(name, getattr(self, name), optional=name in ("m", "batch"))
        object.__setattr__(self, "epilogue", tuple(self.epilogue))
        steps.check_epilogue(self.epilogue, types)
        for name in ("dtype", "accumulator", "out"):
            object.__setattr__(self, name, getattr(types, name))
        if self.weights in (self.dtype, self.storage):
            object.__setattr__(self, "weights", "")
        if self.weights and (self.weights != "int8" or self.dtype not in CONVERTED):
            raise WorkloadError(
                "gemm.weights", dtype=self.dtype, weights=self.weights, choices=CONVERTED
            )

    @property
    def types(self) -> Types:
        """Everything about its types."""
        return resolve(self.dtype, self.accumulator, self.out)

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        batch = f"b{self.batch}_" if self.batch else ""
        m = "m" if self.m is None else self.m
        weights = (f"weights_{self.weights}",) if self.weights else ()
        tail = "_".join((self.types.suffix, *weights, self.layout.lower(), *self.epilogue))
        return f"gemm_{batch}{m}x{self.n}x{self.k}_{tail}"

    @property
    def title(self) -> str:
        """In words: ``fp16 GEMM 4096 x 4096 x 4096 NT``."""
        batch = f"{self.batch} x " if self.batch else ""
        out = "" if self.out == self.dtype else f" -> {self.out}"
        after = "".join(f" + {step}" for step in self.epilogue)
        kind = f"{self.dtype} x {self.weights}" if self.weights else self.dtype
        return f"{kind}{out} GEMM {batch}{self.m} x {self.n} x {self.k} {self.layout}{after}"

    @property
    def storage(self) -> str:
        """Type of an operand in memory; of B unless ``weights`` says otherwise."""
        return self.types.storage

    @property
    def instruction(self) -> str:
        """The ``pipeliner.mma`` annotation of its matmul block."""
        return self.types.instruction

    def flops(self, m: int | None = None) -> int:
        """Multiplications and additions; ``m`` is needed where the workload leaves it open."""
        return 2 * (self.batch or 1) * self._m(m) * self.n * self.k

    def shapes(self, m: int | None = None) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B, what the epilogue reads, and C in memory."""
        rows = self._m(m)
        batch = () if self.batch is None else (self.batch,)
        a = (rows, self.k) if self.layout[0] == "N" else (self.k, rows)
        b = (self.k, self.n) if self.layout[1] == "N" else (self.n, self.k)
        c = (*batch, rows, self.n)
        return (*batch, *a), (*batch, *b), *steps.extra_shapes(self.epilogue, self.n, c), c

    def inputs(self, seed: int = 0, m: int | None = None) -> tuple[Any, ...]:
        """Inputs of standard normal values (integers: uniform over 16), as numpy arrays."""
        rng = np.random.default_rng(seed)
        *shapes, _ = self.shapes(m)
        kinds = self.input_dtypes
        return tuple(random_array(rng, shape, kind) for shape, kind in zip(shapes, kinds))

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        extras = [step for step in self.epilogue if step in steps.READING]
        return (self.storage, self.weights or self.storage, *[self.out] * len(extras))

    def reference(self, a: Any, b: Any, *extras: Any) -> Any:
        """The exact result for the inputs as stored: float64, or int64 for integers."""
        return steps.reference(self.epilogue, self._product(a, b), [exact(x) for x in extras])

    def magnitude(self, a: Any, b: Any, *extras: Any) -> Any:
        """What rounding errors are relative to: ``sum(|a| |b|)`` and what the epilogue adds."""
        wide = [abs(x.astype(np.float64)) for x in (a, b, *extras)]
        return steps.magnitude(self.epilogue, self._product(*wide[:2]), wide[2:])

    def contraction(self, reordered: bool = False) -> Contraction:
        """This workload as a matmul of matrices in memory.

        ``reordered``: of operands that kernels of their own write with aligned rows.
        WorkloadError: they have such rows.
        """
        what = self._contraction()
        return padded(what) if reordered else what

    def _contraction(self) -> Contraction:
        batch_axes: tuple[Axis, ...] = () if self.batch is None else (("b", self.batch),)
        batch = () if self.batch is None else (self.batch,)

        def matrix(
            param: str, row: str, rows: int | None, k_major: bool, storage: str = ""
        ) -> Operand:
            shape = (rows, self.k) if k_major else (self.k, rows)
            names = [*(axis for axis, _ in batch_axes), *((row, "k") if k_major else ("k", row))]

            def element(at: Coordinates) -> Element:
                return [at[name] for name in names], []

            return Operand(
                param, (*batch, *shape), k_major, element, unit=shape[1], storage=storage
            )

        return Contraction(
            name=self.name,
            types=self.types,
            batch_axes=batch_axes,
            m=("i", self.m),
            n=("j", self.n),
            reduction_axes=(),
            k=("k", self.k),
            a=matrix("A", "i", self.m, self.layout[0] == "N"),
            b=matrix("B", "j", self.n, self.layout[1] == "T", self.weights),
            out=("C", (*batch, self.m, self.n)),
            place=lambda at: [*(at[name] for name, _ in batch_axes), at["i"], at["j"]],
            channel=lambda at: at["j"],
            channels=self.n,
            epilogue=self.epilogue,
        )

    def function(self) -> Any:
        """The PrimFunc: a reduction block ``matmul`` into an accumulator, then block ``store``."""
        return self.contraction().function()

    def _product(self, a: Any, b: Any) -> Any:
        left = exact(a) if self.layout[0] == "N" else exact(a).swapaxes(-1, -2)
        right = exact(b) if self.layout[1] == "N" else exact(b).swapaxes(-1, -2)
        return left @ right

    def _m(self, m: int | None) -> int:
        rows = self.m if m is None else m
        if rows is None:
            raise WorkloadError("gemm.symbolic_m", workload=self.name)
        return rows


@dataclass(frozen=True, slots=True)
class GatedGemm(Gemm):
    """``C = activation(A * B1) * (A * B2)``: a GEMM with a second B of the first one's shape.

    SwiGLU has ``activation="silu"``, GEGLU ``gelu``, ReGLU ``relu``. ``m``, ``n``, ``k``, types and
    layout are those of each of the two products; sums are multiplied before they are rounded.
    """

    activation: str = "silu"

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        Gemm.__post_init__(self)
        if self.activation not in steps.ACTIVATIONS:
            choices = steps.ACTIVATIONS
            raise WorkloadError("epilogue.step", choices=choices, value=self.activation)
        steps.check_epilogue((self.activation,), self.types)
        if self.epilogue or self.weights:
            raise WorkloadError("gated.plain", workload=self.name)

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"gated_{Gemm.name.__get__(self)}_{self.activation}"

    @property
    def title(self) -> str:
        """In words: ``bfloat16 gated GEMM 4096 x 14336 x 4096 NT, silu``."""
        return f"{Gemm.title.__get__(self).replace(' GEMM ', ' gated GEMM ')}, {self.activation}"

    def flops(self, m: int | None = None) -> int:
        """Multiplications and additions; ``m`` is needed where the workload leaves it open."""
        return 2 * Gemm.flops(self, m)

    def shapes(self, m: int | None = None) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B1, B2 and C in memory."""
        a, b, c = Gemm.shapes(self, m)
        return a, b, b, c

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        return (self.storage,) * 3

    def plain(self) -> Gemm:
        """The GEMM of the same work: one product, with the columns of both."""
        return Gemm(
            self.m, 2 * self.n, self.k, self.batch, self.dtype, self.layout, self.accumulator,
            self.out,
        )  # fmt: skip

    def reference(self, a: Any, b: Any, *extras: Any) -> Any:
        """The exact result for the inputs as stored: float64, or int64 for integers."""
        gate, value = self._product(a, b), self._product(a, *extras)
        return steps.reference((self.activation,), gate, ()) * value

    def magnitude(self, a: Any, b: Any, *extras: Any) -> Any:
        """What rounding errors are relative to: those of one product by the size of the other."""
        magnitudes = [Gemm.magnitude(self, a, side) for side in (b, *extras)]
        gate, value = self._product(a, b), self._product(a, *extras)
        activated = steps.reference((self.activation,), gate, ())
        return gated_magnitude(activated, value, *magnitudes)

    def _contraction(self) -> Contraction:
        """This workload as a matmul of matrices in memory, and a second one beside it."""
        one = Gemm._contraction(self)
        return replace(
            one,
            b=replace(one.b, param="B1"),
            second=replace(one.b, param="B2"),
            activation=self.activation,
        )


def gated_magnitude(activated: Any, value: Any, of_gate: Any, of_value: Any) -> Any:
    """The bound of an error of ``activated * value``; ``of_``: those of the gate and the value."""
    return steps.LIPSCHITZ * of_gate * abs(value) + abs(activated) * of_value
