"""Two products, the second of what an activation makes of the first: attention without its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import te

from ....errors import WorkloadError
from ..base import epilogue as steps
from ..base.dtypes import check_extent, exact, random_array, resolve
from ..base.typed import Typed
from .rows import ROW_DTYPES

CHAINED_COLUMNS: Final = 16
"""What K and P are multiples of: the columns of A and of C are read whole, in boxes."""


@dataclass(frozen=True, slots=True)
class BackToBackGemm(Typed):
    """``O = activation(A B) C``, what stands between them never in memory.

    A is [M, K], B [N, K], C [N, P] and O [M, P]. What the activation makes of the first product is
    rounded to ``dtype`` before it is multiplied, as attention's weights are. WorkloadError names
    what makes no sense.
    """

    m: int
    n: int
    k: int
    p: int
    activation: str = "relu"
    dtype: str = "float16"
    out: str = ""

    def __post_init__(self) -> None:
        """Resolve the defaults and refuse what makes no sense."""
        for name in "mnkp":
            check_extent(name, getattr(self, name))
        for name in "kp":
            if getattr(self, name) % CHAINED_COLUMNS:
                raise WorkloadError(
                    "back_to_back.columns",
                    name=name,
                    value=getattr(self, name),
                    each=CHAINED_COLUMNS,
                )
        if self.activation not in steps.ACTIVATIONS:
            raise WorkloadError("epilogue.step", choices=steps.ACTIVATIONS, value=self.activation)
        types = resolve(self.dtype, "", self.out)
        if types.dtype not in ROW_DTYPES:
            raise WorkloadError("back_to_back.dtype", choices=ROW_DTYPES, value=types.dtype)
        object.__setattr__(self, "dtype", types.dtype)
        object.__setattr__(self, "out", types.out)

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        size = f"{self.m}x{self.n}x{self.k}x{self.p}"
        return f"back_to_back_gemm_{size}_{self.types.suffix}_{self.activation}"

    @property
    def title(self) -> str:
        """In words: ``float16 back to back GEMMs 4096 x 4096 x 128 x 128, relu``."""
        size = self.m, self.n, self.k, self.p
        return f"{self.titled('back to back GEMMs', *size)}, {self.activation}"

    def flops(self) -> int:
        """Multiplications and additions of both products."""
        return 2 * self.m * self.n * (self.k + self.p)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of A, B, C and O in memory."""
        return (self.m, self.k), (self.n, self.k), (self.n, self.p), (self.m, self.p)

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Types in memory of all that is read."""
        return (self.storage,) * 3

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Standard normal operands, as numpy arrays."""
        rng = np.random.default_rng(seed)
        return tuple(random_array(rng, shape, self.storage) for shape in self.shapes()[:-1])

    def reference(self, a: Any, b: Any, c: Any) -> Any:
        """The exact result for the inputs as stored, in float64."""
        return self._hidden(a, b) @ exact(c)

    def magnitude(self, a: Any, b: Any, c: Any) -> Any:
        """The roots of the sums of squares of all summands, each of which is rounded by itself."""
        return np.sqrt(self._hidden(a, b) ** 2 @ exact(c) ** 2)

    def _hidden(self, a: Any, b: Any) -> Any:
        return steps.reference((self.activation,), exact(a) @ exact(b).T, ())

    def function(self) -> Any:
        """The PrimFunc: both products and the activation; nothing tiled."""
        a, b, c = (
            te.placeholder(shape, self.storage, name=name)
            for shape, name in zip(self.shapes(), "ABC")
        )
        wide = self.accumulator
        k, j = te.reduce_axis((0, self.k), "k"), te.reduce_axis((0, self.n), "j")
        first = te.compute(
            (self.m, self.n),
            lambda i, n: te.sum(a[i, k].astype(wide) * b[n, k].astype(wide), axis=k),
            name="first",
        )
        made = te.compute(
            (self.m, self.n),
            lambda i, n: steps.apply(self.activation, first(i, n), None).astype(self.storage),
            name="made",
        )
        sums = te.compute(
            (self.m, self.p),
            lambda i, p: te.sum(made[i, j].astype(wide) * c[j, p].astype(wide), axis=j),
            name="sums",
        )
        out = te.compute((self.m, self.p), lambda i, p: sums[i, p].astype(self.out), name="O")
        return te.create_prim_func([a, b, c, out]).with_attr("global_symbol", self.name)
