"""Attention: the values of all keys, weighted by the softmax of their products with a query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import te

from ....errors import WorkloadError
from ..base.dtypes import check_extent, random_array, resolve
from ..base.typed import Typed

ATTENTION_DTYPES: Final = ("float16", "bfloat16")
"""Types of what is read and written: weights are rounded to the type of what they multiply."""

_LEAST: Final = {"float16": 2.0**-14, "bfloat16": 2.0**-126}

ATTENTION_LAYOUTS: Final = ("BHSD", "BSHD")
"""Orders of axes in memory: batch, heads, tokens, dim, or tokens before heads."""

SAME_SCALE: Final = 1e-7
"""Relative difference of scales that float32 hardly tells apart."""

_EXTENTS: Final = ("batch", "heads", "queries", "keys", "dim")


@dataclass(frozen=True, slots=True)
class Attention(Typed):
    """``O[q] = sum over k of softmax(Q[q] * K[k] / sqrt(dim)) * V[k]``, for each head of a batch.

    ``layout``: the axes of Q and O in memory, batch, heads, tokens and dim, as PyTorch's
    scaled_dot_product_attention has them (``BHSD``), or tokens before heads (``BSHD``), as linear
    layers make them; ``kv_layout``: those of K and V, by default the same. ``within``: the extents
    in memory of the third axis of Q, K and V where they are the first part of a larger one: heads
    of a product that is Q, K and V at once, tokens of a cache; 0: no larger one. ``first``: the
    heads of BSHD tensors with which Q, K and V begin.
    ``scaled``: what scores are multiplied by, by default ``1 / sqrt(dim)``.
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
    layout: str = "BHSD"
    kv_layout: str = ""
    within: tuple[int, int, int] = (0, 0, 0)
    scaled: float | None = None
    first: tuple[int, int, int] = (0, 0, 0)

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
        self._check_layouts()
        self._check_scale()

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
        return 1 / math.sqrt(self.dim) if self.scaled is None else self.scaled

    @property
    def least_weight(self) -> float:
        """The smallest normal number of its type: what is smaller is rounded as that is."""
        return _LEAST[self.dtype]

    @property
    def out(self) -> str:
        """Type of the output."""
        return resolve(self.dtype, "", "").out

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        heads = f"{self.heads}" if self.group == 1 else f"{self.heads}_{self.groups}"
        causal = "_causal" if self.causal else ""
        tokens = f"{self.queries}x{self.keys}x{self.dim}"
        lying = "".join(f"_{word}" for word in self._lying()).replace(" ", "_").lower()
        scaled = "" if self.scaled is None else f"_by_{_identifier(self.scaled)}"
        base = f"attention_b{self.batch}_h{heads}_{tokens}_{self.types.suffix}{causal}"
        return f"{base}{lying}{scaled}"

    @property
    def title(self) -> str:
        """In words: ``float16 attention 2 x 16 x 4096 x 4096 x 128, causal``."""
        heads = f"{self.heads}" if self.group == 1 else f"{self.heads}/{self.groups}"
        extents = self.batch, heads, self.queries, self.keys, self.dim
        words = ["causal"] * self.causal + self._lying()
        words += [] if self.scaled is None else [f"scaled by {self.scaled:g}"]
        return ", ".join([self.titled("attention", *extents), *words])

    def flops(self) -> int:
        """Multiplications and additions of both matmuls; half of them where it is causal.

        The convention of FlashAttention and of those who compare with it.
        """
        every = 4 * self.batch * self.heads * self.queries * self.keys * self.dim
        return every // 2 if self.causal else every

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of Q, K, V and O in memory."""
        q, k, v = (self._in_memory(which, extent) for which, extent in enumerate(self.within))
        return q, k, v, self._in_memory(3)

    def lying(self, which: int, head: Any, token: Any) -> tuple[Any, Any]:
        """``head`` and ``token`` in their order in memory; ``which``: 0 to 3, of Q, K, V and O."""
        layout = self.kv_layout if which in (1, 2) else self.layout
        return (head, token) if layout == "BHSD" else (token, head)

    def place(self, which: int, head: Any, token: Any) -> tuple[Any, Any]:
        """The second and third index in memory of an element of a head's token."""
        start = self._first(which)
        return self.lying(which, head + start if start else head, token)

    def by_heads(self, which: int, x: Any) -> Any:
        """A tensor as it lies in memory as a view (batch, heads, tokens, dim), of numpy or torch.

        ``which``: 0 to 3, of Q, K, V and O.
        """
        heads, tokens = self._extents(which)
        ordered = x if self.lying(which, 0, 1) == (0, 1) else x.swapaxes(1, 2)
        start = self._first(which)
        return ordered[:, start : start + heads, :tokens]

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
        return self._stored(weights @ self._shared(2, v) / weights.sum(axis=-1, keepdims=True))

    def magnitude(self, q: Any, k: Any, v: Any) -> Any:
        """What rounding errors are relative to: the root of the sum of squares of all summands.

        Each weight is rounded, by itself, to the type of V before it multiplies V: errors of either
        sign. The smallest weights are rounded as the smallest normal number is.
        """
        weights = self._weights(q, k)
        rounded = np.where(weights > 0, np.maximum(weights, self.least_weight), 0)
        squares = np.square(rounded) @ np.square(self._shared(2, v))
        return self._stored(np.sqrt(squares) / weights.sum(axis=-1, keepdims=True))

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
            left = q[(b, *self.place(0, h, i), d)]
            right = k[(b, *self.place(1, h // group, j), d)]
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
            value = v[(b, *self.place(2, h // group, over[2]), c)].astype(wide)
            return te.sum(weights[b, h, i, over[2]] * value, axis=over[2])

        sums = te.compute((*rows, self.dim), weighted, name="sums")

        def stored(b: Any, x: Any, y: Any, c: Any) -> Any:
            h, i = self.lying(3, x, y)  # to exchange two is its own inverse
            return (sums[b, h, i, c] / total[b, h, i]).astype(self.out)

        out = te.compute(self.shapes()[-1], stored, name="O")
        return te.create_prim_func([q, k, v, out]).with_attr("global_symbol", self.name)

    def _extents(self, which: int) -> tuple[int, int]:
        """Heads and tokens of Q, K, V or O."""
        return (self.groups, self.keys) if which in (1, 2) else (self.heads, self.queries)

    def _first(self, which: int) -> int:
        return (*self.first, 0)[which]

    def _in_memory(self, which: int, within: int = 0) -> tuple[int, ...]:
        """The shape of Q, K, V or O as it lies in memory, in an axis of ``within`` elements."""
        second, third = self.lying(which, *self._extents(which))
        return (self.batch, second, within or third, self.dim)

    def _check_layouts(self) -> None:
        """Resolve and check how tensors lie in memory; ``within`` is 0 where nothing is larger."""
        object.__setattr__(self, "kv_layout", self.kv_layout or self.layout)
        for layout in (self.layout, self.kv_layout):
            if layout not in ATTENTION_LAYOUTS:
                raise WorkloadError("workload.layout", choices=ATTENTION_LAYOUTS, value=layout)
        least = [self._in_memory(which)[2] for which in range(3)]
        for extent, fewest in zip(self.within, least):
            check_extent("within", extent or fewest, least=fewest)
        for which, start in enumerate(self.first):
            most = (self.within[which] or least[which]) - least[which]
            if not 0 <= start <= (most if self.lying(which, 0, 1) == (1, 0) else 0):
                raise WorkloadError("attention.first", value=start, most=most)
        larger = (extent * (extent != few) for extent, few in zip(self.within, least, strict=True))
        object.__setattr__(self, "within", tuple(larger))

    def _check_scale(self) -> None:
        """Check ``scaled``, which is None where it is what it is by default."""
        if self.scaled is None:
            return
        if not (math.isfinite(self.scaled) and self.scaled > 0):
            raise WorkloadError("attention.scale", value=self.scaled)
        usual = math.isclose(self.scaled, 1 / math.sqrt(self.dim), rel_tol=SAME_SCALE)
        object.__setattr__(self, "scaled", None if usual else float(self.scaled))

    def _lying(self) -> list[str]:
        """In words, how tensors lie where it is not as PyTorch has them by default."""
        orders = list(dict.fromkeys((self.layout, self.kv_layout)))
        inside = [f"in {' '.join(map(str, self.within))}"] if any(self.within) else []
        inside += [f"from {' '.join(map(str, self.first))}"] if any(self.first) else []
        return [*(orders if orders != ["BHSD"] else []), *inside]

    def _weights(self, q: Any, k: Any) -> Any:
        """The exponential of each score, relative to the largest of its row; 0 where masked."""
        keys = self._shared(1, k)
        scores = self.by_heads(0, q).astype(np.float64) @ keys.swapaxes(-1, -2) * self.scale
        if self.causal:
            at = np.arange(self.queries)[:, None], np.arange(self.keys)[None, :]
            scores = np.where(at[1] <= at[0], scores, -np.inf)
        return np.exp(scores - scores.max(axis=-1, keepdims=True))

    def _shared(self, which: int, x: Any) -> Any:
        """K or V in float64, a head for each head of Q."""
        return np.repeat(self.by_heads(which, x).astype(np.float64), self.group, axis=1)

    def _stored(self, out: Any) -> Any:
        """The output, which has heads before tokens, as it lies in memory."""
        return out if self.layout == "BHSD" else np.ascontiguousarray(out.swapaxes(1, 2))


def _identifier(value: float) -> str:
    """A number in characters of a C identifier, another one for each number."""
    return f"{value!r}".replace(".", "p").replace("-", "m").replace("+", "")
