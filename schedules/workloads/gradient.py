"""What the gradients of a convolution have in common: both are matmuls with dY as one operand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import WorkloadError
from .base.dtypes import Types, exact, random_array
from .contraction import Contraction
from .conv import Conv


@dataclass(frozen=True, slots=True)
class ConvGradient(ABC):
    """``dX`` or ``dW`` of the convolution ``forward``, which has no epilogue.

    It is made from ``dY`` and the other operand of ``forward``. Types are those of ``forward``:
    operands are stored as its operands, the gradient as its output.
    """

    forward: Conv

    of: ClassVar[str]
    """What it is the gradient of, in a word."""

    def __post_init__(self) -> None:
        """Refuse what has no gradient here."""
        conv = self.forward
        if conv.epilogue:
            raise WorkloadError("conv.gradient", workload=conv.name, step=conv.epilogue[0])

    @property
    def types(self) -> Types:
        """Everything about its types."""
        return self.forward.types

    @property
    def name(self) -> str:
        """A C identifier that tells workloads apart: the kernel's name."""
        return f"{self.of}_grad_{self.forward.name}"

    @property
    def title(self) -> str:
        """In words."""
        return f"{self.of} gradient of {self.forward.title}"

    @property
    def dtype(self) -> str:
        """Type of the multiplication."""
        return self.forward.dtype

    @property
    def storage(self) -> str:
        """Type of an operand in memory."""
        return self.forward.storage

    @property
    def accumulator(self) -> str:
        """Type of the sums."""
        return self.forward.accumulator

    @property
    def out(self) -> str:
        """Type of the gradient."""
        return self.forward.out

    def flops(self) -> int:
        """Multiplications and additions: as many as forward."""
        return self.forward.flops()

    @abstractmethod
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of dY, the other operand and the gradient in memory."""

    def inputs(self, seed: int = 0) -> tuple[Any, Any]:
        """Operands with standard normal values (integers: uniform over -8..7), as numpy arrays."""
        rng = np.random.default_rng(seed)
        dy, other, _ = self.shapes()
        return random_array(rng, dy, self.storage), random_array(rng, other, self.storage)

    def reference(self, dy: Any, other: Any) -> Any:
        """The exact result for the inputs as stored: float64, or int64 for integers."""
        return self.differentiated(exact(dy), exact(other))

    def magnitude(self, dy: Any, other: Any) -> Any:
        """What rounding errors are relative to: the sum of ``|dy| |other|``."""
        return self.differentiated(abs(dy.astype(np.float64)), abs(other.astype(np.float64)))

    @abstractmethod
    def differentiated(self, dy: Any, other: Any) -> Any:
        """The gradient by its definition, in numpy, in the operands' own type."""

    @abstractmethod
    def contraction(self, fold: bool = False) -> Contraction:
        """This workload as a matmul; ``fold``: over rows of pixels, one at a time."""

    def function(self) -> Any:
        """The PrimFunc: gathered operands, block ``matmul``, block ``store``."""
        return self.contraction().function()
