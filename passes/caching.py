"""What a copy of boxes tells L2 about what it reads.

Sources: PTX ISA, cp.async.bulk.tensor (.L2::cache_hint), createpolicy; CUTLASS,
include/cute/arch/copy_sm90_desc.hpp (TMA::CacheHintSm90).
"""

from __future__ import annotations

from typing import Any, Final

from tvm.script import tirx as T

from ..plan import Eviction

_HINT: Final = ".L2::cache_hint"

_EVICT_FIRST: Final = 0x12F0000000000000
"""What ``createpolicy.fractional.L2::evict_first.b64`` makes for all of the accesses."""


def cache_hint(eviction: Eviction) -> tuple[str, list[Any]]:
    """The modifier and the last operand of a copy's instruction, both empty for the default."""
    return ("", []) if eviction == "evict_normal" else (_HINT, [T.uint64(_EVICT_FIRST)])
