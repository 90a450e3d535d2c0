"""Make constant vectors of bytes of words, as CUDA represents them.

    Broadcast(int8(0), 16)    =>    reinterpret(int8x16, Broadcast(int32(0), 4))

TVM prints more than four equal bytes as ``make_int4`` with an argument for each byte, which nvcc
refuses. A masked register-staged copy of int8 has such a vector for the elements it does not load.
"""

from __future__ import annotations

from typing import Any, Final

import tvm_ffi
from tvm import tirx

from ..ir.named_pass import named_pass
from ..ir.nodes import const_int

WORD_BYTES: Final = 4


@named_pass("PackBytes")
def pack_bytes(func: Any) -> Any:
    """Return ``func`` with constant vectors of more than four bytes made of words."""

    def pack(node: Any) -> Any:
        byte, lanes = const_int(node.value), const_int(node.lanes)
        dtype = str(node.value.ty.dtype)
        if dtype not in ("int8", "uint8") or byte is None or lanes is None or lanes <= WORD_BYTES:
            return node
        word = int.from_bytes(bytes([byte & 0xFF] * WORD_BYTES), "little", signed=True)
        words = tirx.Broadcast(tirx.const(word, "int32"), lanes // WORD_BYTES)
        return tirx.reinterpret(f"{dtype}x{lanes}", words)

    body = tvm_ffi.structural_map(func.body, [(tirx.Broadcast, pack)], order="post")
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
