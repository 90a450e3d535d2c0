"""Take pointers into an allocation of another type through a view that has their type.

    T.tvm_access_ptr("float16", arena.data, 4224, ...)  =>  T.address_of(A[4224])

where A is declared over the data of ``arena``, an allocation of bytes. TVM 0.27 lowers a pointer
only if its type is that of the allocation ("tvm_access_ptr element type must match the source
buffer"), but wmma's fragments of float16 and float32 are loaded and stored through one arena. The
pass runs right before that lowering, because InferFragment knows no other pointer.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir as tvm_ir
from tvm import tirx
from tvm.script import tirx as T

from ..ir import nodes as ir
from ..ir.calls import ACCESS_PTR, called, passed_buffer
from ..ir.named_pass import named_pass


@named_pass("TypePointers")
def type_pointers(func: Any) -> Any:
    """Return ``func``, a device function, with pointers through views of their type, if any."""
    views: dict[tuple[Any, str], Any] = {}

    def declared(node: Any) -> None:
        source = passed_buffer(node.data)
        if source is not None:
            views.setdefault((source, str(node.buffer.dtype)), node.buffer)

    ir.walk(func.body, tirx.DeclBuffer, declared)
    if not views:
        return func

    def call(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if called(node) != ACCESS_PTR:
            return node
        kind, data, offset, *_ = node.args
        source, dtype = passed_buffer(data), str(getattr(kind, "ty", ""))
        if source is None or str(source.dtype) == dtype or (source, dtype) not in views:
            return node
        return T.address_of(tirx.BufferLoad(views[source, dtype], [offset]))

    body = tvm_ffi.structural_mutate(func.body, [(tvm_ir.Call, call)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
