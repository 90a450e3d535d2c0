"""GEMM with weights of 4 bits, eight in a word, and a scale for each 128 of K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import te

from ....errors import WorkloadError
from ..base.dtypes import check_extent, exact, numpy_dtype, random_array, resolve
from ..base.typed import Typed

PACKED_DTYPES: Final = ("float16", "bfloat16")
"""Types of A, of scales, and of dequantised weights."""

SCALE_GROUP: Final = 128
"""Elements of K of a row of W that have a scale in common."""

WORD_TYPE: Final = "uint32"
"""Type of the words that weights are packed in."""

IN_WORD: Final = 8
"""Weights in a word."""

RUN: Final = 32
"""Elements of K that four words in a row have."""

ZERO_POINT: Final = 8
"""The four bits that stand for zero."""

FACTORS: Final = (0.5, 2.0)
"""Random scales lie between these: of one sign, as scales do, and none far above the others."""

_BITS: Final = 4
_MASK: Final = (1 << _BITS) - 1
_WIDE: Final = "float32"


@dataclass(frozen=True, slots=True)
class PackedGemm(Typed):
    """``C[i, j] = sum over k of A[i, k] * (W[j, k] - 8) * S[k / 128, j]``: weights of 4 bits.

    A is [M, K], S [K / 128, N], both of ``dtype``, C [M, N] of ``out``, default the same. Weights
    are without a sign, and 8 stands for zero (GPTQ's and AWQ's symmetric form): four bits in the
    mantissa of a power of two are that power plus the weight, so one operation makes two of them
    floats, and zero costs nothing. A sign would have to be extended first. A dequantised weight is
    rounded to ``dtype``, as tensor cores multiply it.

    W is [N, K / 8] of uint32. Four words have 32 weights of a row, interleaved as threads of a
    warp multiply them: word ``t`` has, from its lowest bits, those of ``2 t + (0, 8, 16, 24, 1, 9,
    17, 25)``. ``packed`` makes such words, ``weights`` opens them. WorkloadError names what makes
    no sense.
    """

    m: int
    n: int
    k: int
    dtype: str = "float16"
    out: str = ""

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        for name in "mnk":
            check_extent(name, getattr(self, name))
        types = resolve(self.dtype, "", self.out)
        if types.dtype not in PACKED_DTYPES:
            raise WorkloadError("packed.dtype", choices=PACKED_DTYPES, value=types.dtype)
        if self.k % RUN:
            raise WorkloadError("packed.run", k=self.k, run=RUN)
        object.__setattr__(self, "dtype", types.dtype)
        object.__setattr__(self, "out", types.out)

    @property
    def groups(self) -> int:
        """Groups of K, each with scales of its own."""
        return -(-self.k // SCALE_GROUP)

    @property
    def step(self) -> int:
        """Elements of K in a step of its schedule."""
        return SCALE_GROUP

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"packed_gemm_{self.m}x{self.n}x{self.k}_{self.types.suffix}"

    @property
    def title(self) -> str:
        """In words: ``float16 GEMM 16 x 8192 x 8192 with weights of 4 bits``."""
        return f"{self.titled('GEMM', self.m, self.n, self.k)} with weights of 4 bits"

    def flops(self) -> int:
        """Multiplications and additions of the product."""
        return 2 * self.m * self.n * self.k

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, W, S and C in memory."""
        words = self.n, self.k // IN_WORD
        return (self.m, self.k), words, (self.groups, self.n), (self.m, self.n)

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        return self.storage, WORD_TYPE, self.storage

    def words(self, seed: int = 0) -> Any:
        """Words of random weights."""
        rng = np.random.default_rng(seed)
        return rng.integers(0, 1 << 32, self.shapes()[1], dtype=np.uint32)

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Standard normal A, uniform weights and scales, as numpy arrays."""
        rng = np.random.default_rng(seed)
        of_a, _, of_scales, _ = self.shapes()
        scales = rng.uniform(*FACTORS, of_scales).astype(numpy_dtype(self.storage))
        return random_array(rng, of_a, self.storage), self.words(seed), scales

    def packed(self, weights: Any) -> Any:
        """The words of ``weights``, an array [N, K] of integers from 0 to 15, by numpy."""
        words = np.zeros(self.shapes()[1], np.uint32)
        wide = np.asarray(weights).astype(np.uint32)
        for k in range(self.k):
            words[:, word_of(k)] |= wide[:, k] << np.uint32(shift_of(k))
        return words

    def weights(self, words: Any) -> Any:
        """The weights in ``words``, [N, K] from 0 to 15."""
        at = np.arange(self.k)
        return words[:, word_of(at)] >> shift_of(at).astype(np.uint32) & np.uint32(_MASK)

    def dequantised(self, words: Any, scales: Any) -> Any:
        """The weights that are multiplied, [N, K], rounded to ``dtype``; scales of any width."""
        spread = np.repeat(scales.astype(_WIDE).T, SCALE_GROUP, 1)[:, : self.k]
        signed = self.weights(words).astype(_WIDE) - np.float32(ZERO_POINT)
        return (signed * spread).astype(numpy_dtype(self.storage))

    def reference(self, a: Any, words: Any, scales: Any) -> Any:
        """The exact result for the dequantised weights, in float64."""
        return exact(a) @ exact(self.dequantised(words, scales)).T

    def magnitude(self, a: Any, words: Any, scales: Any) -> Any:
        """The sum of absolute values of all summands, which rounding errors are relative to."""
        return abs(exact(a)) @ abs(exact(self.dequantised(words, scales))).T

    def function(self) -> Any:
        """The PrimFunc: the dequantised weights and the product; nothing tiled."""
        a, words, scales = (
            te.placeholder(shape, dtype, name=name)
            for shape, dtype, name in zip(self.shapes(), self.input_dtypes, ("A", "W", "S"))
        )

        def weight(j: Any, k: Any) -> Any:
            return dequantised(words[j, word_of(k)], k, scales[k // SCALE_GROUP, j], self.storage)

        k = te.reduce_axis((0, self.k), "k")
        made = te.compute((self.n, self.k), weight, name="D")
        sums = te.compute(
            (self.m, self.n),
            lambda i, j: te.sum(a[i, k].astype(_WIDE) * made[j, k].astype(_WIDE), axis=k),
            name="sums",
        )
        out = te.compute((self.m, self.n), lambda i, j: sums[i, j].astype(self.out), name="C")
        func = te.create_prim_func([a, words, scales, out])
        return func.with_attr("global_symbol", self.name)


def word_of(k: Any) -> Any:
    """Which word of a row has weight ``k``; of a number, an array or an index."""
    return k // RUN * (RUN // IN_WORD) + k % IN_WORD // 2


def shift_of(k: Any) -> Any:
    """The lowest bit of weight ``k`` in its word: odd ones lie in the upper half."""
    return k % RUN // IN_WORD * _BITS + k % 2 * (_BITS * IN_WORD // 2)


def dequantised(word: Any, k: Any, scale: Any, dtype: str) -> Any:
    """Weight ``k`` of its ``word`` as an expression of ``dtype``."""
    bits = word >> shift_of(k).astype(WORD_TYPE) & te.const(_MASK, WORD_TYPE)
    return (bits.astype(dtype) - te.const(ZERO_POINT, dtype)) * scale
