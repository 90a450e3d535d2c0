"""Math functions of the device code, by the name CUDA codegen prints or TIR gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])

_SAME_NAME: Final = (
    "exp exp2 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh abs fabs floor ceil trunc rint"
)
"""Functions of one argument that numpy calls what CUDA calls them."""

_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    **{name: getattr(np, name) for name in _SAME_NAME.split()},
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rcp": lambda x: 1.0 / x,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
}

_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "pow": np.power,
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "fdividef": np.divide,
    "max": np.fmax,
    "min": np.fmin,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "nextafter": np.nextafter,
    "ldexp": np.ldexp,
}

_TERNARY: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {"fma": lambda a, b, c: a * b + c}

ARITY: Final = {
    **dict.fromkeys(_UNARY, 1),
    **dict.fromkeys(_BINARY, 2),
    **dict.fromkeys(_TERNARY, 3),
}

_PREDICATES: Final = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def canonical(name: str) -> str | None:
    """Return the name of a function here: ``__expf`` -> ``exp``; None: it is not known."""
    short = name.removeprefix("__").removesuffix("_rn")
    for candidate in (short, short.removesuffix("f"), short.removeprefix("h")):
        if candidate in ARITY:
            return candidate
    return None


def call(name: str, dtype: np.dtype[Any], *args: Any) -> Any:
    """Evaluate in float64 and round once to ``dtype``: as accurate as any device function."""
    wide = [np.asarray(a).astype(np.float64) for a in args]
    table: dict[str, Callable[..., Any]] = {**_UNARY, **_BINARY, **_TERNARY}
    out = np.asarray(table[name](*wide)).astype(dtype)
    return out if out.ndim else out[()]


def predicate(name: str, value: Any) -> Any:
    """Return what isnan, isinf or isfinite says."""
    return _PREDICATES[name](np.asarray(value).astype(np.float64))


def popcount(value: Any) -> Any:
    """Number of set bits of 32- or 64-bit integers."""
    return np.bitwise_count(np.asarray(value)).astype(np.int32)
