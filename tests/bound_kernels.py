"""Functions bound to threads by hand, from what is different in each: TVMScript around a body.

   bound("A: float32[64, 64]", "A[0, tx] = A[1, tx]")

=> @T.prim_func(s_tir=True)
   def main(A: T.Buffer((64, 64,), "float32")):
       T.func_attr({"global_symbol": "main", "tirx.noalias": True})
       for bx in T.thread_binding(1, thread="blockIdx.x"):
           for tx in T.thread_binding(64, thread="threadIdx.x"):
               A[0, tx] = A[1, tx]
"""

from __future__ import annotations

import re
from textwrap import dedent, indent
from typing import Any

from tvm.script import from_source

ARRAY = re.compile(r"(\w+)\[(.*?)\]")
BUFFER = r'T.Buffer((\2,), "\1")'
NO_ALIAS = 'T.func_attr({"global_symbol": "main", "tirx.noalias": True})'


def bound(
    parameters: str,
    body: str,
    *,
    name: str = "main",
    head: str = NO_ALIAS,
    ctas: int = 1,
    threads: int = 64,
) -> Any:
    """The function of ``parameters`` whose threads, ``tx`` of CTA ``bx``, run ``body``."""
    return from_source(
        f"""
@T.prim_func(s_tir=True)
def {name}({ARRAY.sub(BUFFER, parameters)}):
{_in(1, head)}
    for bx in T.thread_binding({ctas}, thread="blockIdx.x"):
        for tx in T.thread_binding({threads}, thread="threadIdx.x"):
{_in(3, body)}
"""
    )


def accumulating(parameters: str, body: str, *, ctas: int = 1, threads: int = 64) -> Any:
    """Such a function, in one block, with a sum ``acc[0]`` of each thread that begins at zero."""
    started = """
with T.sblock("root2"):
    acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
    acc[0] = T.float32(0)
"""
    return bound(
        parameters, dedent(started).strip() + "\n" + _in(1, body), ctas=ctas, threads=threads
    )


def _in(levels: int, text: str) -> str:
    return indent(dedent(text).strip("\n"), "    " * levels)
