"""Calls in expressions: what is called, and which buffer an operand points into.

    address_of(S[i, j])                            the element [i, j] of S
    tvm_access_ptr(type, buffer_data(S), i, n)     n elements from S[i] on, maybe of another type
    buffer_data(S)                                 S from its start

TVM's names of pointers, and of the instructions that several passes look for, stand here alone.
"""

from __future__ import annotations

from typing import Any, Final

from tvm.ir import Call
from tvm.tirx.buffer import is_buffer_var

ADDRESS_OF: Final = "tirx.address_of"
ACCESS_PTR: Final = "tirx.tvm_access_ptr"
BUFFER_DATA: Final = "tirx.buffer_data"
POINTERS: Final = (ACCESS_PTR, ADDRESS_OF, BUFFER_DATA)
"""Operators that make a pointer into a buffer."""

REINTERPRET: Final = "tirx.reinterpret"
CASTS: Final = ("tirx.cuda.cvta_generic_to_shared", REINTERPRET)
"""Operators whose result points to where their operand points."""

PTX: Final = "tirx.ptx."
CP_ASYNC_COPY: Final = ("tirx.ptx.cp_async_ca", "tirx.ptx.cp_async_cg")
"""Prefixes of the names of the operators that copy by cp.async."""

CP_ASYNC_COMMIT: Final = "tirx.ptx.cp_async_commit_group"
CP_ASYNC_WAIT: Final = "tirx.ptx.cp_async_wait_group"
CP_ASYNC_WAIT_ALL: Final = "tirx.ptx.cp_async_wait_all"
BULK_COPY: Final = "tirx.ptx.cp_async_bulk"
"""Prefix of bulk copies, by tensor map or not, and of what groups and awaits them."""

MAP_LOADS: Final = "tirx.ptx.cp_async_bulk_tensor_g2s"
"""Prefix of copies by tensor map: the map hides the source, and an mbarrier counts the bytes."""

MAP_STORES: Final = ("tirx.ptx.cp_async_bulk_tensor_s2g", "tirx.ptx.cp_reduce_async_bulk_tensor")
"""Prefixes of stores and additions by tensor map, their first operand, which hides the target."""

WGMMA_CALL: Final = "tirx.ptx.wgmma_"
"""Prefix of all that warpgroups multiply with, and of what orders and awaits it."""

WGMMA_FENCE: Final = "tirx.ptx.wgmma_fence"
WGMMA_COMMIT: Final = "tirx.ptx.wgmma_commit_group"
WGMMA_WAIT: Final = "tirx.ptx.wgmma_wait_group"
CLUSTER_WAIT: Final = "tirx.ptx.barrier_cluster_wait"
MBARRIERS: Final = ("tirx.ptx.mbarrier_", "tirx.cuda.mbarrier_")
"""Prefixes of what works on an mbarrier, which orders itself."""


def called(expr: Any) -> str:
    """Return the name of the operator that ``expr`` calls; empty for anything else."""
    return str(getattr(expr.op, "name", "")) if type(expr) is Call else ""


def is_wgmma(expr: Any) -> bool:
    """Return whether ``expr`` multiplies by warpgroup."""
    name = called(expr)
    return name.startswith(WGMMA_CALL) and name not in (WGMMA_FENCE, WGMMA_COMMIT, WGMMA_WAIT)


def data_of(expr: Any) -> Any | None:
    """Return the buffer that ``expr`` is the data pointer of, or None."""
    return expr.args[0] if called(expr) == BUFFER_DATA else None


def passed_buffer(arg: Any) -> Any | None:
    """Return the buffer that an operand is, or is the data pointer of; None for neither."""
    return arg if is_buffer_var(arg) else data_of(arg)


def uncast(arg: Any) -> Any:
    """Return a pointer without the casts around it."""
    while called(arg) in CASTS:
        arg = arg.args[-1]
    return arg
