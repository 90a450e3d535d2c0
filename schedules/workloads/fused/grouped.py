"""Grouped GEMM: rows in groups, each multiplied by the matrix of its expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import te

from ....errors import WorkloadError
from ..base.dtypes import check_extent, exact, random_array, resolve
from ..base.typed import Typed

GROUPED_DTYPES: Final = ("bfloat16", "float16")
"""Types of A and B."""

MOST_EXPERTS: Final = 256
"""Which expert a tile is of is one sum, with a term for each."""

OFFSETS: Final = "int32"
"""Type of the offsets of groups."""

EMPTY: Final = 1 / 8
"""Of the groups of random offsets, so many are empty."""

STEP: Final = 64
"""Elements of K in a step of its schedule: 128 bytes, a row of the widest swizzle."""

_WIDE: Final = "float32"


@dataclass(frozen=True, slots=True)
class GroupedGemm(Typed):
    """``C[r] = A[r] B[e]`` for the rows ``offsets[e] <= r < offsets[e + 1]``: mixture of experts.

    A is [M, K], B [experts, N, K], C [M, N]. The offsets, [experts + 1] of int32, are in the GPU's
    memory: they begin with 0, never fall and end with M at most. A group may be empty; rows behind
    the last group are left as they are. ``dtype``: of A and B. ``out``: of C, default the same.
    WorkloadError names what makes no sense.
    """

    experts: int
    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    out: str = ""

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        for name in ("experts", "m", "n", "k"):
            check_extent(name, getattr(self, name))
        if self.experts > MOST_EXPERTS:
            raise WorkloadError("grouped.experts", experts=self.experts, most=MOST_EXPERTS)
        types = resolve(self.dtype, "", self.out)
        if types.dtype not in GROUPED_DTYPES:
            raise WorkloadError("grouped.dtype", choices=GROUPED_DTYPES, value=types.dtype)
        object.__setattr__(self, "dtype", types.dtype)
        object.__setattr__(self, "out", types.out)

    @property
    def step(self) -> int:
        """Elements of K in a step of its schedule."""
        return STEP

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"grouped_gemm_{self.experts}_{self.m}x{self.n}x{self.k}_{self.types.suffix}"

    @property
    def title(self) -> str:
        """In words: ``bfloat16 GEMM 4096 x 4096 x 4096 of 8 experts``."""
        return f"{self.titled('GEMM', self.m, self.n, self.k)} of {self.experts} experts"

    def flops(self) -> int:
        """Multiplications and additions where every row is in a group."""
        return 2 * self.m * self.n * self.k

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B, the offsets and C in memory."""
        weights = self.experts, self.n, self.k
        return ((self.m, self.k), weights, (self.experts + 1,), (self.m, self.n))

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        return self.storage, self.storage, OFFSETS

    def slots(self, rows: int, multiple: int = 1) -> int:
        """How many tiles of ``rows`` rows all groups have at most, rounded up to a ``multiple``."""
        return -(-(self.m // rows + self.experts) // multiple) * multiple

    def offsets(self, seed: int = 0) -> Any:
        """Random offsets of all rows: a group in eight or so is empty, and few are alike."""
        rng = np.random.default_rng(seed)
        inner = rng.integers(0, self.m + 1, self.experts - 1)
        inner[rng.random(self.experts - 1) < EMPTY] = rng.integers(0, self.m + 1)
        return np.array([0, *np.sort(inner), self.m], OFFSETS)

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Standard normal operands and random offsets, as numpy arrays."""
        rng = np.random.default_rng(seed)
        drawn = (random_array(rng, shape, self.storage) for shape in self.shapes()[:2])
        return (*drawn, self.offsets(seed))

    def reference(self, a: Any, b: Any, offsets: Any) -> Any:
        """The exact results for the inputs as stored, in float64; NaN in rows of no group."""
        return self._by_groups(exact(a), exact(b), offsets)

    def magnitude(self, a: Any, b: Any, offsets: Any) -> Any:
        """The sums of absolute values of all summands, which rounding errors are relative to."""
        return self._by_groups(abs(exact(a)), abs(exact(b)), offsets)

    def function(self) -> Any:
        """The PrimFunc: the expert of each row and the product; nothing tiled."""
        a = te.placeholder((self.m, self.k), self.storage, name="A")
        b = te.placeholder((self.experts, self.n, self.k), self.storage, name="B")
        offsets = te.placeholder((self.experts + 1,), OFFSETS, name="Offsets")
        e, k = te.reduce_axis((0, self.experts), "e"), te.reduce_axis((0, self.k), "k")
        begun = te.compute(
            (self.m,),
            lambda i: te.sum(te.if_then_else(offsets[e] <= i, 1, 0), axis=e),
            name="begun",
        )
        shape = self.m, self.n
        product = te.compute(
            shape,
            lambda i, j: te.sum(
                a[i, k].astype(_WIDE) * b[begun[i] - 1, j, k].astype(_WIDE), axis=k
            ),
            name="product",
        )
        c = te.compute(shape, lambda i, j: product[i, j].astype(self.out), name="C")
        return te.create_prim_func([a, b, offsets, c]).with_attr("global_symbol", self.name)

    def _by_groups(self, left: Any, right: Any, offsets: Any) -> Any:
        made = np.full((self.m, self.n), np.nan)
        for e in range(self.experts):
            rows = slice(int(offsets[e]), int(offsets[e + 1]))
            made[rows] = left[rows] @ right[e].T
        return made
