"""Block-scaled GEMM: a product of fp8 whose sums of each 128 of K have scales of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import te

from ....errors import WorkloadError
from ..base.dtypes import check_extent, exact, random_array, resolve
from ..base.typed import Typed

SCALE_BLOCK: Final = 128
"""Elements of K, and rows of B, that have a scale in common."""

SCALED_DTYPES: Final = ("float8_e4m3fn", "float8_e5m2")
"""Types of A and B."""

SCALES: Final = (0.5, 2.0)
"""Random scales lie between these: of one sign, as scales do, and none far above the others."""

_SCALE: Final = "float32"


@dataclass(frozen=True, slots=True)
class ScaledGemm(Typed):
    """``C[i, j] = sum over b of SA[b, i] * SB[j / 128, b] * sum over k of b of A[i, k] * B[j, k]``.

    A scale for each row of A and 128 of K, and one for each 128 rows of B and 128 of K, as
    DeepSeek-V3 is trained with (arXiv 2412.19437, section 3.3). A is [M, K], B [N, K], of
    ``dtype``: ``float8_e4m3fn``, ``float8_e5m2`` or a short form. SA is [K / 128, M], its rows
    innermost, as cuBLASLt and DeepGEMM take it, SB [N / 128, K / 128], both float32. ``out``:
    default bfloat16. WorkloadError names what makes no sense.
    """

    m: int
    n: int
    k: int
    dtype: str = "float8_e4m3fn"
    out: str = ""

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        for name in "mnk":
            check_extent(name, getattr(self, name))
        types = resolve(self.dtype, "", self.out)
        if types.dtype not in SCALED_DTYPES:
            raise WorkloadError("scaled.dtype", choices=SCALED_DTYPES, value=types.dtype)
        object.__setattr__(self, "dtype", types.dtype)
        object.__setattr__(self, "out", types.out)

    @property
    def blocks(self) -> int:
        """Blocks of K, each with scales of its own."""
        return -(-self.k // SCALE_BLOCK)

    @property
    def step(self) -> int:
        """Elements of K in a step of its schedule."""
        return SCALE_BLOCK

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"scaled_gemm_{self.m}x{self.n}x{self.k}_{self.types.suffix}"

    @property
    def title(self) -> str:
        """In words: ``float8_e4m3fn block-scaled GEMM 4096 x 7168 x 16384``."""
        return self.titled("block-scaled GEMM", self.m, self.n, self.k)

    def flops(self) -> int:
        """Multiplications and additions of the products, without those by scales."""
        return 2 * self.m * self.n * self.k

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B, the scales of A, those of B and C in memory."""
        of_b = (-(-self.n // SCALE_BLOCK), self.blocks)
        return (self.m, self.k), (self.n, self.k), (self.blocks, self.m), of_b, (self.m, self.n)

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        return self.storage, self.storage, _SCALE, _SCALE

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Standard normal operands and uniform scales, as numpy arrays."""
        rng = np.random.default_rng(seed)
        of_a, of_b, *scales, _ = self.shapes()
        operands = (random_array(rng, shape, self.storage) for shape in (of_a, of_b))
        return *operands, *(rng.uniform(*SCALES, shape).astype(_SCALE) for shape in scales)

    def reference(self, a: Any, b: Any, of_a: Any, of_b: Any) -> Any:
        """The exact result for the inputs as stored, in float64."""
        left, right = self.rescaled(exact(a), exact(b), exact(of_a), exact(of_b))
        return left @ right.T

    def magnitude(self, a: Any, b: Any, of_a: Any, of_b: Any) -> Any:
        """The sum of absolute values of all summands, which rounding errors are relative to."""
        left, right = self.rescaled(exact(a), exact(b), exact(of_a), exact(of_b))
        return abs(left) @ abs(right).T

    def rescaled(self, a: Any, b: Any, of_a: Any, of_b: Any) -> tuple[Any, Any]:
        """A and B, each element multiplied by its scale; arrays of numpy or tensors of torch."""
        repeat = "repeat" if isinstance(a, np.ndarray) else "repeat_interleave"

        def spread(scales: Any, times: int, axis: int) -> Any:
            return getattr(scales, repeat)(times, axis)

        of_rows = spread(of_a.T, SCALE_BLOCK, 1)[:, : self.k]
        of_blocks = spread(spread(of_b, SCALE_BLOCK, 0), SCALE_BLOCK, 1)[: self.n, : self.k]
        return a * of_rows, b * of_blocks

    def function(self) -> Any:
        """The PrimFunc: the sums of each block of K, and their scaled sum; nothing tiled."""
        a, b, of_a, of_b = (
            te.placeholder(shape, dtype, name=name)
            for shape, dtype, name in zip(self.shapes(), self.input_dtypes, ("A", "B", "SA", "SB"))
        )
        wide, whole = self.accumulator, (self.blocks, self.m, self.n)
        r = te.reduce_axis((0, SCALE_BLOCK), "r")
        s = te.reduce_axis((0, self.blocks), "s")

        def product(block: Any, i: Any, j: Any) -> Any:
            k = block * SCALE_BLOCK + r
            value = a[i, k].astype(wide) * b[j, k].astype(wide)
            return te.sum(te.if_then_else(k < self.k, value, te.const(0, wide)), axis=r)

        def scaled(i: Any, j: Any) -> Any:
            return te.sum(parts[s, i, j] * (of_a[s, i] * of_b[j // SCALE_BLOCK, s]), axis=s)

        parts = te.compute(whole, product, name="parts")
        sums = te.compute((self.m, self.n), scaled, name="sums")
        out = te.compute((self.m, self.n), lambda i, j: sums[i, j].astype(self.out), name="C")
        func = te.create_prim_func([a, b, of_a, of_b, out])
        return func.with_attr("global_symbol", self.name)
