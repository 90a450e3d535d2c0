"""A product with statistics of rows: of A's in the loop over K, or of the result's behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from tvm import te, tirx

from ....errors import WorkloadError
from ..base.dtypes import check_extent, exact, random_array, resolve
from ..base.typed import Typed

Statistic: TypeAlias = Literal["rms", "sum", "lse"]

STATISTICS: Final[tuple[Statistic, ...]] = ("rms", "sum", "lse")
"""The root of the mean square of A's rows; sum and maximum, or log-sum-exp, of the result's."""

ROW_DTYPES: Final = ("float16", "bfloat16")
"""Types of A and B."""

EPSILON: Final = 1e-6
"""Added to the mean square of a row, as RMS norms do."""

STEP: Final = 64
"""Elements of K in a step of its schedule: 128 bytes, a row of the widest swizzle."""

_WIDE: Final = "float32"


@dataclass(frozen=True, slots=True)
class RowGemm(Typed):
    """``C = A B`` and a ``statistic`` of rows; A is [M, K], B [N, K], C [M, N].

    ``rms``: row i of C is divided by the root of the mean square of row i of A, as behind an RMS
    norm. ``sum``: a second result [2, M] has the sum and the maximum of each row of the product.
    ``lse``: a second result [M] has the logarithm of the sum of its exponentials. Those are of the
    sums in float32 and are float32. ``dtype``: of A and B. ``out``: of C, default the same.
    WorkloadError names what makes no sense.
    """

    m: int
    n: int
    k: int
    statistic: Statistic = "rms"
    dtype: str = "float16"
    out: str = ""

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        for name in "mnk":
            check_extent(name, getattr(self, name))
        if self.statistic not in STATISTICS:
            raise WorkloadError("rows.statistic", choices=STATISTICS, value=self.statistic)
        types = resolve(self.dtype, "", self.out)
        if types.dtype not in ROW_DTYPES:
            raise WorkloadError("rows.dtype", choices=ROW_DTYPES, value=types.dtype)
        object.__setattr__(self, "dtype", types.dtype)
        object.__setattr__(self, "out", types.out)

    @property
    def step(self) -> int:
        """Elements of K in a step of its schedule."""
        return STEP

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"{self.statistic}_gemm_{self.m}x{self.n}x{self.k}_{self.types.suffix}"

    @property
    def title(self) -> str:
        """In words: ``float16 GEMM 4096 x 4096 x 4096 with rms of rows``."""
        return f"{self.titled('GEMM', self.m, self.n, self.k)} with {self.statistic} of rows"

    def flops(self) -> int:
        """Multiplications and additions of the product, without those of rows."""
        return 2 * self.m * self.n * self.k

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B and the results in memory."""
        results = tuple(shape for shape, _ in self.results)
        return ((self.m, self.k), (self.n, self.k), *results)

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and type of C and, but for ``rms``, of the statistics."""
        c = (self.m, self.n), self.out
        if self.statistic == "rms":
            return (c,)
        return c, ((2, self.m) if self.statistic == "sum" else (self.m,), self.accumulator)

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        return self.storage, self.storage

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Standard normal operands, as numpy arrays."""
        rng = np.random.default_rng(seed)
        return tuple(random_array(rng, shape, self.storage) for shape in self.shapes()[:2])

    def reference(self, a: Any, b: Any) -> tuple[Any, ...]:
        """The exact results for the inputs as stored, in float64."""
        left = exact(a)
        product = left @ exact(b).T
        if self.statistic == "rms":
            return (product / np.sqrt((left**2).mean(axis=1, keepdims=True) + EPSILON),)
        most = product.max(axis=1)
        if self.statistic == "sum":
            return product, np.stack([product.sum(axis=1), most])
        return product, np.log(np.exp(product - most[:, None]).sum(axis=1)) + most

    def magnitude(self, a: Any, b: Any) -> tuple[Any, ...]:
        """The sums of absolute values of all summands, which rounding errors are relative to."""
        left = abs(exact(a))
        product = left @ abs(exact(b)).T
        if self.statistic == "rms":
            return (product / np.sqrt((left**2).mean(axis=1, keepdims=True) + EPSILON),)
        most = product.max(axis=1)
        if self.statistic == "sum":
            return product, np.stack([product.sum(axis=1), most])
        return product, most + 1

    def function(self) -> Any:
        """The PrimFunc: the product and its statistics; nothing tiled."""
        a = te.placeholder((self.m, self.k), self.storage, name="A")
        b = te.placeholder((self.n, self.k), self.storage, name="B")
        k, j = te.reduce_axis((0, self.k), "k"), te.reduce_axis((0, self.n), "j")

        def wide(value: Any) -> Any:
            return value.astype(_WIDE)

        def over_columns(of: Any, name: str, combine: Any) -> Any:
            return te.compute((self.m,), lambda i: combine(of(i), axis=j), name=name)

        shape = self.m, self.n
        product = te.compute(
            shape, lambda i, c: te.sum(wide(a[i, k]) * wide(b[c, k]), axis=k), name="product"
        )
        if self.statistic == "rms":
            r = te.reduce_axis((0, self.k), "r")
            squares = te.compute(
                (self.m,), lambda i: te.sum(wide(a[i, r]) * wide(a[i, r]), axis=r), name="squares"
            )
            mean, least = tirx.const(1 / self.k, _WIDE), tirx.const(EPSILON, _WIDE)

            def divided(i: Any, c: Any) -> Any:
                return (product[i, c] * te.rsqrt(squares[i] * mean + least)).astype(self.out)

            return self._named([a, b, te.compute(shape, divided, name="C")])
        out = te.compute(shape, lambda i, c: product[i, c].astype(self.out), name="C")
        most = over_columns(lambda i: product[i, j], "most", te.max)
        if self.statistic == "sum":
            total = over_columns(lambda i: product[i, j], "total", te.sum)
            both = te.compute(
                (2, self.m), lambda s, i: te.if_then_else(s == 0, total[i], most[i]), name="R"
            )
            return self._named([a, b, out, both])
        over = te.reduce_axis((0, self.n), "over")
        sums = te.compute(
            (self.m,), lambda i: te.sum(te.exp(product[i, over] - most[i]), axis=over), name="sums"
        )
        whole = te.compute((self.m,), lambda i: te.log(sums[i]) + most[i], name="R")
        return self._named([a, b, out, whole])

    def _named(self, tensors: list[Any]) -> Any:
        return te.create_prim_func(tensors).with_attr("global_symbol", self.name)
