"""Attention: the values of all keys, weighted by the softmax of their products with a query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import te

from ...errors import WorkloadError
from .dtypes import Types, check_extent, random_array, resolve

ATTENTION_DTYPES: Final = ("float16", "bfloat16")
"""Types of what is read and written: weights are rounded to the type of what they multiply."""

_LEAST: Final = {"float16": 2.0**-14, "bfloat16": 2.0**-126}

_EXTENTS: Final = ("batch", "heads", "queries", "keys", "dim")


@dataclass(frozen=True, slots=True)
class Attention:
    """``O[q] = sum over k of softmax(Q[q] * K[k] / sqrt(dim)) * V[k]``, for each head of a batch.

    Tensors lie as PyTorch's scaled_dot_product_attention has them: (batch, heads, tokens, dim).
    ``kv_heads``: heads of K and V where they are fewer; each belongs to ``heads // kv_heads``
    neighbouring heads of Q (grouped queries). ``causal``: query i sees keys 0 to i, as PyTorch's
    ``is_causal`` has it, however many keys there are. No query sees no key: there is at least one,
    which each query sees. ``dtype``: ``float16``, ``bfloat16`` or a short form. Scores and sums are
    float32. WorkloadError names what makes no sense.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    dim: int
    kv_heads: int | None = None
    causal: bool = False
    dtype: str = "float16"

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        for name in _EXTENTS:
            check_extent(name, getattr(self, name))
        check_extent("kv_heads", self.kv_heads, optional=True)
        if self.kv_heads is None:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.heads % self.groups:
            raise WorkloadError("attention.heads", heads=self.heads, kv_heads=self.groups)
        types = resolve(self.dtype, "", "")
        if types.dtype not in ATTENTION_DTYPES:
            raise WorkloadError("attention.dtype", choices=ATTENTION_DTYPES, value=types.dtype)
        object.__setattr__(self, "dtype", types.dtype)

    @property
    def groups(self) -> int:
        """Heads of K and V."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def group(self) -> int:
        """Heads of Q that read one head of K and V."""
        return self.heads // self.groups

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return 1 / math.sqrt(self.dim)

    @property
    def least_weight(self) -> float:
        """The smallest normal number of its type: what is smaller is rounded as that is."""
        return _LEAST[self.dtype]

    @property
    def types(self) -> Types:
        """Everything about its types."""
        return resolve(self.dtype, "", "")

    @property
    def storage(self) -> str:
        """Type of every tensor in memory."""
        return self.types.storage

    @property
    def accumulator(self) -> str:
        """Type of scores and sums."""
        return self.types.accumulator

    @property
    def out(self) -> str:
        """Type of the output."""
        return self.types.out

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        heads = f"{self.heads}" if self.group == 1 else f"{self.heads}_{self.groups}"
        causal = "_causal" if self.causal else ""
        tokens = f"{self.queries}x{self.keys}x{self.dim}"
        return f"attention_b{self.batch}_h{heads}_{tokens}_{self.types.suffix}{causal}"

    @property
    def title(self) -> str:
        """In words: ``float16 attention 2 x 16 x 4096 x 4096 x 128, causal``."""
        heads = f"{self.heads}" if self.group == 1 else f"{self.heads}/{self.groups}"
        extents = f"{self.batch} x {heads} x {self.queries} x {self.keys} x {self.dim}"
        return f"{self.dtype} attention {extents}{', causal' if self.causal else ''}"

    def flops(self) -> int:
        """Multiplications and additions of both matmuls; half of them where it is causal.

        The convention of FlashAttention and of those who compare with it.
        """
        every = 4 * self.batch * self.heads * self.queries * self.keys * self.dim
        return every // 2 if self.causal else every

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of Q, K, V and O in memory."""
        q = (self.batch, self.heads, self.queries, self.dim)
        k = (self.batch, self.groups, self.keys, self.dim)
        return q, k, k, q

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        return (self.storage,) * 3

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Inputs of standard normal values, as numpy arrays."""
        rng = np.random.default_rng(seed)
        *shapes, _ = self.shapes()
        return tuple(random_array(rng, shape, self.storage) for shape in shapes)

    def reference(self, q: Any, k: Any, v: Any) -> Any:
        """The exact result for the inputs as stored, in float64."""
        weights = self._weights(q, k)
        return weights @ self._shared(v) / weights.sum(axis=-1, keepdims=True)

    def magnitude(self, q: Any, k: Any, v: Any) -> Any:
        """What rounding errors are relative to: the root of the sum of squares of all summands.

        Each weight is rounded, by itself, to the type of V before it multiplies V: errors of either
        sign. The smallest weights are rounded as the smallest normal number is.
        """
        weights = self._weights(q, k)
        rounded = np.where(weights > 0, np.maximum(weights, self.least_weight), 0)
        squares = np.square(rounded) @ np.square(self._shared(v))
        return np.sqrt(squares) / weights.sum(axis=-1, keepdims=True)

    def function(self) -> Any:
        """The PrimFunc: scores, their softmax and the sum as a block each, nothing tiled."""
        q, k, v, _ = (
            te.placeholder(shape, self.storage, name=name)
            for shape, name in zip(self.shapes(), "QKVO")
        )
        rows = (self.batch, self.heads, self.queries)
        d = te.reduce_axis((0, self.dim), "d")
        group, wide = self.group, self.accumulator

        def score(b: Any, h: Any, i: Any, j: Any) -> Any:
            left, right = q[b, h, i, d], k[b, h // group, j, d]
            return te.sum(left.astype(wide) * right.astype(wide), axis=d)

        def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
            value = scores[b, h, i, j] * te.const(self.scale, wide)
            low = te.min_value(wide)
            return te.if_then_else(j <= i, value, low) if self.causal else value

        scores = te.compute((*rows, self.keys), score, name="scores")
        masked = te.compute((*rows, self.keys), seen, name="masked")
        over = [te.reduce_axis((0, self.keys), name) for name in ("jm", "jl", "jo")]
        largest = te.compute(
            rows, lambda b, h, i: te.max(masked[b, h, i, over[0]], axis=over[0]), name="largest"
        )
        weights = te.compute(
            (*rows, self.keys),
            lambda b, h, i, j: te.exp(masked[b, h, i, j] - largest[b, h, i]),
            name="weights",
        )
        total = te.compute(
            rows, lambda b, h, i: te.sum(weights[b, h, i, over[1]], axis=over[1]), name="total"
        )

        def weighted(b: Any, h: Any, i: Any, c: Any) -> Any:
            value = v[b, h // group, over[2], c].astype(wide)
            return te.sum(weights[b, h, i, over[2]] * value, axis=over[2])

        sums = te.compute((*rows, self.dim), weighted, name="sums")
        out = te.compute(
            (*rows, self.dim),
            lambda b, h, i, c: (sums[b, h, i, c] / total[b, h, i]).astype(self.out),
            name="O",
        )
        return te.create_prim_func([q, k, v, out]).with_attr("global_symbol", self.name)

    def _weights(self, q: Any, k: Any) -> Any:
        """The exponential of each score, relative to the largest of its row; 0 where masked."""
        keys = self._shared(k)
        scores = q.astype(np.float64) @ keys.swapaxes(-1, -2) * self.scale
        if self.causal:
            at = np.arange(self.queries)[:, None], np.arange(self.keys)[None, :]
            scores = np.where(at[1] <= at[0], scores, -np.inf)
        return np.exp(scores - scores.max(axis=-1, keepdims=True))

    def _shared(self, x: Any) -> Any:
        """K or V in float64, a head for each head of Q."""
        return np.repeat(x.astype(np.float64), self.group, axis=1)
