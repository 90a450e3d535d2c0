"""When an output is right: what it may differ by from what it is compared with, each element alone.

Equal to the bit where the same sums are made in the same order; within a bound that the arithmetic
allows each element where they are not; or within a relative and an absolute tolerance that are
said. NaN is never right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from ..diagnostics import Reason
from ..errors import WorkloadError
from .arrays import Array

Asked: TypeAlias = "float | tuple[float, float] | None"
"""``tolerance=`` of a caller: relative, or relative and absolute."""

EQUAL: Final = Reason("bound.equal")

_ASKED: Final = Reason("bound.asked")
_TINY: Final = 1e-300


class Tolerance(Protocol):
    """How far each element may be off."""

    @property
    def said(self) -> Reason:
        """The rule, for who reads the verdict."""
        ...

    def errors(self, name: str, got: Array, want: Array) -> Array:
        """Of each element of argument ``name`` the error over what is allowed."""
        ...


@dataclass(frozen=True, slots=True)
class Equal:
    """Every element is equal to the bit; zeros of either sign are."""

    said: Reason = EQUAL

    def errors(self, name: str, got: Array, want: Array) -> Array:
        """0 or infinity."""
        return np.where(got == want, 0.0, np.inf)


@dataclass(frozen=True, slots=True)
class Within:
    """``rtol`` of the element of what it is compared with and ``atol``."""

    rtol: float
    atol: float
    why: Reason = _ASKED

    @property
    def said(self) -> Reason:
        """Both numbers."""
        return Reason("bound.within", rtol=self.rtol, atol=self.atol, why=self.why)

    def errors(self, name: str, got: Array, want: Array) -> Array:
        """The difference over what is allowed."""
        return _ratio(got, want, self.atol + self.rtol * abs(want.astype(np.float64)))


@dataclass(frozen=True, slots=True)
class AbsoluteBounds:
    """An absolute bound for each element, by argument; another rule for arguments without."""

    said: Reason
    bounds: Mapping[str, Array] = field(repr=False)
    other: Tolerance = field(default_factory=Equal)

    def errors(self, name: str, got: Array, want: Array) -> Array:
        """The difference over what is allowed."""
        if name not in self.bounds or got.dtype.kind in "iub":
            return self.other.errors(name, got, want)
        return _ratio(got, want, self.bounds[name])


def asked(tolerance: Asked) -> Tolerance | None:
    """The rule that a caller asks for; WorkloadError: it is none."""
    if tolerance is None:
        return None
    try:
        pair = tolerance if isinstance(tolerance, tuple) else (tolerance, 0.0)
        rtol, atol = map(float, pair)
    except (TypeError, ValueError) as err:
        raise WorkloadError("tolerance.numbers", value=repr(tolerance)) from err
    if not (0 <= rtol < np.inf and 0 <= atol < np.inf):
        raise WorkloadError("tolerance.negative", rtol=rtol, atol=atol)
    return Within(rtol, atol)


def parsed(text: str | None) -> Asked:
    """``RTOL`` or ``RTOL,ATOL`` of a command line; WorkloadError: it is none."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise WorkloadError("option.tolerance", value=text)
    return numbers[0], numbers[1] if len(numbers) == 2 else 0.0


def _ratio(got: Array, want: Array, allowed: Any) -> Array:
    """The difference over ``allowed``; 0 where they are equal, infinities too."""
    wide, exact = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        found = abs(wide - exact) / (allowed + _TINY)
    return np.where(wide == exact, 0.0, found)
