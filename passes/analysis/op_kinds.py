"""Classify a statement as an op kind by what it does to memory.

    S[i] = A[i]      =>  copy         acc += S[i] * 2   =>  compute

The modulo schedule gives each kind its own rules.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ir.nodes import Buffer, is_global, is_private, is_shared
from .effects import READ, WRITE, Effects


def classify(found: Effects, body: Collection[Buffer] = ()) -> str:
    """Return the op kind of a statement with these effects (see ``plan.OpKind``).

    ``body``: the buffers of the loop's body; a plain one among them counts as a copy's destination.
    """
    reads, writes = found.buffers(READ), found.buffers(WRITE)
    if found.is_mma:
        return "mma"
    if found.is_mma_wait:
        return "mma_wait"
    if found.is_async:
        return "copy"
    if found.is_fence or found.is_opaque:
        return "opaque"
    if not found.is_move or not reads or not writes:
        return "compute"
    if all(is_private(buf) for buf in writes):
        return "load" if any(not is_private(buf) for buf in reads) else "compute"
    if any(is_private(buf) for buf in reads):
        return "store"
    if any(is_shared(buf) or buf in body for buf in reads):
        return "compute"
    return "copy" if all(is_shared(buf) or buf in body for buf in writes) else "compute"


def is_global_load(found: Effects, body: Collection[Buffer] = ()) -> bool:
    """Whether some value comes from global memory outside the loop's body."""
    return any(is_global(buf) and buf not in body for buf in found.buffers(READ))
