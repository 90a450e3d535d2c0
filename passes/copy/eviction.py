"""Return the L2 cache hint of a TMA copy.

``pipeliner/mechanisms/eviction.py`` says which copies have one.

Sources: PTX ISA, cp.async.bulk.tensor (.L2::cache_hint), createpolicy; CUTLASS,
include/cute/arch/copy_sm90_desc.hpp (TMA::CacheHintSm90).
"""

from __future__ import annotations

from typing import Any, Final

from tvm.script import tirx as T

from ...plan import Eviction

_HINT: Final = ".L2::cache_hint"

_EVICT_FIRST: Final = 0x12F0000000000000
"""Policy that ``createpolicy.fractional.L2::evict_first.b64`` makes for all accesses."""


def cache_hint(eviction: Eviction) -> tuple[str, list[Any]]:
    """Return the modifier and the last operand of a copy; by default both are empty."""
    return ("", []) if eviction == "evict_normal" else (_HINT, [T.uint64(_EVICT_FIRST)])
