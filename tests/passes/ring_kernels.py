"""Small CUDA kernels with a ring and asynchronous copies by hand, each the question of one test.

All give ``C[k]`` of ``n`` rows of 64 from ``A[k]``; their steps differ.
"""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

from ..bound_kernels import bound

DEPTH = 4

ARRAYS = """
A = T.match_buffer(a, (n, 64), "float32")
C = T.match_buffer(c, (n, 64), "float32")
"""

BLOCK = """
with T.sblock("kernel"):
    T.reads(A[0:n, 0:64])
    T.writes(C[0:n, 0:64])
"""


def kernel(name: str, *body: str) -> Any:
    """The kernel whose threads run ``body``: pieces of TVMScript, one after the other."""
    text = indent("\n".join(dedent(piece).strip("\n") for piece in body), "    ")
    return bound("a: T.handle, c: T.handle, n: T.int32", BLOCK + text, name=name, head=ARRAYS)


def shared(*shape: int) -> str:
    return f'S = T.sblock_alloc_buffer({shape}, "float32", scope="shared")'


def register(name: str) -> str:
    return f'{name} = T.sblock_alloc_buffer((1,), "float32", scope="local")'


def copies_ahead(column: str = "tx") -> str:
    """Copies of the first rows, a group each."""
    return f"""
for p in T.unroll({DEPTH - 1}):
    if p < n:
        {copied("p", "p", column)}
    T.ptx.cp.async_.commit_group()
"""


def steady(*body: str) -> str:
    text = indent("\n".join(dedent(piece).strip("\n") for piece in body), "    ")
    return 'for k in T.serial(n, annotations={"pipeliner.phase": "steady"}):\n' + text


def next_copies(column: str = "tx") -> str:
    """The copies that are ``DEPTH - 1`` steps ahead, if there is such a row, and their group."""
    ahead = f"k + {DEPTH - 1}"
    return f"""
if {ahead} < n:
    {copied(f"({ahead}) % {DEPTH}", ahead, column)}
T.ptx.cp.async_.commit_group()
"""


def copied(slot: str, row: str, column: str) -> str:
    target, source = f"T.address_of(S[{slot}, {column}])", f"T.address_of(A[{row}, tx])"
    return f'T.evaluate(T.ptx["cp.async.ca.shared.global"]({target}, {source}, 4))'


WAIT = f"T.ptx.cp.async_.wait_group({DEPTH - 2})"
USE = f"C[k, tx] = S[k % {DEPTH}, 63 - tx]"

waits_first = kernel(
    "waits_first", shared(DEPTH, 64), copies_ahead(), steady(WAIT, next_copies(), USE)
)
"""Steady step: wait(k), copies(k + 3), compute(k)."""

own_copies = kernel(
    "own_copies",
    shared(DEPTH, 64),
    copies_ahead("63 - tx"),
    steady(WAIT, next_copies("63 - tx"), USE),
)
"""The loop of ``waits_first``, but each thread reads what it copied itself."""

guard_and_clamp = kernel(
    "guard_and_clamp",
    shared(2, 64),
    register("kept"),
    """
for p in T.unroll(2):
    if p < n:
        S[p, tx] = A[p, tx]
if n > 0:
    kept[0] = S[0, 63 - tx]
""",
    steady("""
if k + 2 < n:
    S[k % 2, tx] = A[k + 2, tx]
C[k, tx] = kept[0]
kept[0] = S[T.min(k + 1, n - 1) % 2, 63 - tx]
"""),
)
"""Steady step: stores of k + 2 in the slot of k, use of k, load of k + 1, past the end of n - 1.

While there is something to store, the slots of the two differ.
"""

fragments_ahead = kernel(
    "fragments_ahead",
    shared(DEPTH, 64),
    register("first"),
    register("second"),
    copies_ahead(),
    WAIT,
    """
if n > 0:
    first[0] = S[0, 63 - tx]
""",
    steady(
        next_copies(),
        f"""
second[0] = S[k % {DEPTH}, tx]
C[k, tx] = first[0] + second[0]
""",
        WAIT,
        f"first[0] = S[T.min(k + 1, n - 1) % {DEPTH}, 63 - tx]",
    ),
)
"""Steady step: copies(k + 3), load and compute the rest of k, wait(k + 1), load the first of k + 1."""

one_slot = kernel(
    "one_slot",
    shared(64),
    """
for k in range(n):
    S[tx] = A[k, tx]
    C[k, tx] = S[63 - tx]
""",
)

stores_ahead = kernel(
    "stores_ahead",
    shared(2, 64),
    """
S[0, tx] = A[0, tx]
for k in range(n - 1):
    S[(k + 1) % 2, tx] = A[k + 1, tx]
    C[k, tx] = S[k % 2, 63 - tx]
C[n - 1, tx] = S[(n - 1) % 2, 63 - tx]
""",
)
"""Two slots filled by plain stores; the loop may run zero times between prologue and epilogue."""
