"""As much of torch as the benchmark touches, on numpy, with events that tell a made-up time."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

float16, float32, float64, int8, int32 = (
    np.dtype(name) for name in ("float16", "float32", "float64", "int8", "int32")
)


class Tensor:
    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    def to(self, dtype: Any) -> Tensor:
        return Tensor(self.data.astype(dtype))

    def double(self) -> Tensor:
        return self.to(float64)

    def abs(self) -> Tensor:
        return Tensor(abs(self.data))

    __abs__ = abs

    def transpose(self, first: int, second: int) -> Tensor:
        return Tensor(self.data.swapaxes(first, second))

    def is_floating_point(self) -> bool:
        return self.data.dtype.kind == "f"

    def fill_(self, value: float) -> None:
        self.data[...] = value

    def zero_(self) -> None:
        self.data[...] = 0

    def max(self) -> Tensor:
        return Tensor(self.data.max())

    def all(self) -> Tensor:
        return Tensor(self.data.all())

    def __float__(self) -> float:
        return float(self.data)

    def __bool__(self) -> bool:
        return bool(self.data)

    def _with(self, other: Any, operation: Any) -> Tensor:
        return Tensor(operation(self.data, getattr(other, "data", other)))

    def __matmul__(self, other: Any) -> Tensor:
        return self._with(other, np.matmul)

    def __sub__(self, other: Any) -> Tensor:
        return self._with(other, np.subtract)

    def __add__(self, other: Any) -> Tensor:
        return self._with(other, np.add)

    def __mul__(self, other: Any) -> Tensor:
        return self._with(other, np.multiply)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        return self._with(other, np.divide)

    def __eq__(self, other: object) -> Any:
        return self._with(other, np.equal)

    __hash__ = None  # type: ignore[assignment]  # elements compare, as torch's do


class Clock:
    """Time moves only when a contender says so."""

    now = 0.0


class Event:
    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Clock.now

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


cuda = types.SimpleNamespace(Event=Event, synchronize=lambda: None)
_RNG = np.random.default_rng()


def manual_seed(seed: int) -> None:
    globals()["_RNG"] = np.random.default_rng(seed)


def randn(shape: Any, device: str) -> Tensor:
    return Tensor(_RNG.standard_normal(shape).astype("float32"))


def randint(low: int, high: int, shape: Any, device: str, dtype: Any) -> Tensor:
    return Tensor(_RNG.integers(low, high, shape, dtype=dtype))


def empty(shape: Any, dtype: Any, device: str) -> Tensor:
    small = 16 if isinstance(shape, int) else shape
    return Tensor(np.empty(small, dtype))
