"""What a copy's instruction tells the caches about what it reads.

Sources: PTX ISA, cp.async and cp.async.bulk.tensor (.L2::cache_hint), createpolicy; CUTLASS,
include/cute/arch/copy_sm90_desc.hpp (TMA::CacheHintSm90).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm.script import tirx as T

from ..plan import Cache, Eviction

_HINT: Final = ".L2::cache_hint"

_EVICT_FIRST: Final = 0x12F0000000000000
"""What ``createpolicy.fractional.L2::evict_first.b64`` makes for all of the accesses."""


def cache_hint(eviction: Eviction) -> tuple[str, list[Any]]:
    """The modifier and the last operand of a copy's instruction, both empty for the default."""
    return ("", []) if eviction == "normal" else (_HINT, [T.uint64(_EVICT_FIRST)])


@dataclass(frozen=True, slots=True)
class Caching:
    """Of a thread's copies: the nearest cache that keeps 16 bytes, and when L2 lets go of them."""

    nearest: Cache = "L2"
    eviction: Eviction = "normal"
