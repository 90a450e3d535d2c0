"""Read a CTA's rank in its cluster once: TVM prints the special register at every use of it.

    for k in range(n):                                    rank = clusterCtaIdx.x
        copy .., 5 << (clusterCtaIdx.x & 1)        =>     for k in range(n):
                                                              copy .., 5 << (rank & 1)

Its reading is volatile, so that nvcc leaves each in the loop, and all that is computed of it: of 70
instructions of a step of a producer whose copies are multicast, 20 were masks and offsets that no
step changes. 1297x608x4640 by 112x64 in clusters of eight takes 13.8 us for 15.7, back to back on
an H200.
"""

from __future__ import annotations

from typing import Any, Final

import tvm_ffi
from tvm import tirx

from ..ir.kernels import thread_tag
from ..ir.named_pass import named_pass
from ..ir.nodes import Var, seq, substitute

_RANK: Final = "clusterCtaIdx.x"


@named_pass("KeepRank")
def keep_rank(func: Any) -> Any:
    """Return ``func``, a device function, with its rank in a variable; itself outside a cluster."""

    def kept(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if thread_tag(node) != _RANK:
            return node
        axis = node.node.var
        rank = Var("rank", axis.ty)
        body = seq(tirx.Bind(rank, axis), substitute(node.body, {axis: rank}))
        return tirx.AttrStmt(node.node, node.attr_key, node.value, body)

    body = tvm_ffi.structural_mutate(func.body, [(tirx.AttrStmt, kept)])
    return func if body.same_as(func.body) else func.with_body(body)
