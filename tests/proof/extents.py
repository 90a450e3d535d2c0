"""Kernels with symbolic extents, right or with a mistake that few values of these show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

WARP: Final = 32
THREADS: Final = 64
DEPTH: Final = 4
AHEAD: Final = DEPTH - 1
MOST: Final = 64
"""Rows of the arrays: what is copied beyond them is not judged by a proof."""

Condition = Callable[[Any, Any], Any]
"""Of the number of a row, or of an iteration, and n."""

_COPY: Final = "cp.async.ca.shared.global"


def never(at: Any, n: Any) -> Any:
    """A condition that never holds."""
    return at >= MOST + n


def ring(
    *,
    first: Condition = lambda s, n: s < n,
    copies: Condition = lambda i, n: i + AHEAD < n,
    again: Condition = never,
    distance: int = DEPTH + 1,
    unwaited: Condition = never,
    clears: Condition = never,
    slot: Condition = lambda i, n: i % DEPTH,
) -> Any:
    """n rows go through a ring of four slots by cp.async, three ahead, and are read mirrored.

    ``first``: which rows are copied in front of the loop. ``copies``: whether iteration i copies
    row i + 3. ``again``: whether it copies row i + ``distance``, which is too early. ``unwaited``:
    whether it does not wait. ``clears``: whether it clears the slot ``slot``.
    """

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((MOST, THREADS), "int32"), C: T.Buffer((MOST, THREADS), "int32"), n: T.int32
    ):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((DEPTH * THREADS,), "int32", scope="shared")
            for s in T.serial(AHEAD):
                if first(s, n):
                    T.ptx[_COPY](T.address_of(S[s * THREADS + tx]), T.address_of(A[s, tx]), 4)
                T.ptx.cp.async_.commit_group()
            for i in T.serial(n):
                if tirx.Not(unwaited(i, n)):
                    T.ptx.cp.async_.wait_group(AHEAD - 1)
                    T.tvm_storage_sync("shared")
                if clears(i, n):
                    S[slot(i, n) * THREADS + tx] = 0
                if copies(i, n):
                    T.ptx[_COPY](
                        T.address_of(S[(i + AHEAD) % DEPTH * THREADS + tx]),
                        T.address_of(A[i + AHEAD, tx]),
                        4,
                    )
                if again(i, n):
                    T.ptx[_COPY](
                        T.address_of(S[(i + distance) % DEPTH * THREADS + tx]),
                        T.address_of(A[i + distance, tx]),
                        4,
                    )
                T.ptx.cp.async_.commit_group()
                C[i, tx] = S[i % DEPTH * THREADS + THREADS - 1 - tx]

    return main


def counted_down(step: int) -> Any:
    """A barrier of iteration i is left out where a register, counted down from n, says so."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((MOST, THREADS), "int32"), n: T.int32):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS,), "int32", scope="shared")
            left = T.alloc_buffer((1,), "int32", scope="local")
            left[0] = n
            for i in T.serial(n):
                S[tx] = i
                if left[0] > 0:
                    T.tvm_storage_sync("shared")
                C[i, tx] = S[THREADS - 1 - tx]
                T.tvm_storage_sync("shared")
                left[0] = left[0] - step

    return main


def peeled(short: int = 0) -> Any:
    """As ``ring``, with the last three iterations behind the loop, or as many as there are.

    ``short``: if n is so many less than three, nothing is waited for there.
    """

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((MOST, THREADS), "int32"), C: T.Buffer((MOST, THREADS), "int32"), n: T.int32
    ):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((DEPTH * THREADS,), "int32", scope="shared")
            for s in T.serial(AHEAD):
                if s < n:
                    T.ptx[_COPY](T.address_of(S[s * THREADS + tx]), T.address_of(A[s, tx]), 4)
                T.ptx.cp.async_.commit_group()
            for i in T.serial(T.max(n - AHEAD, 0)):
                T.ptx.cp.async_.wait_group(AHEAD - 1)
                T.tvm_storage_sync("shared")
                T.ptx[_COPY](
                    T.address_of(S[(i + AHEAD) % DEPTH * THREADS + tx]),
                    T.address_of(A[i + AHEAD, tx]),
                    4,
                )
                T.ptx.cp.async_.commit_group()
                C[i, tx] = S[i % DEPTH * THREADS + THREADS - 1 - tx]
            T.ptx.cp.async_.wait_group(0)
            if n >= AHEAD or n + short != AHEAD:
                T.tvm_storage_sync("shared")
            for j in T.serial(T.min(n, AHEAD)):
                C[n - 1 - j, tx] = S[(n - 1 - j) % DEPTH * THREADS + THREADS - 1 - tx]

    return main


def bounded(rows: Callable[[Any], Any]) -> Any:
    """``rows`` of n rows are copied in front of the loop, the others in it, four slots in all."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((MOST, THREADS), "int32"), C: T.Buffer((MOST, THREADS), "int32"), n: T.int32
    ):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((DEPTH * THREADS,), "int32", scope="shared")
            for s in T.serial(rows(n)):
                T.ptx[_COPY](T.address_of(S[s * THREADS + tx]), T.address_of(A[s, tx]), 4)
            T.ptx.cp.async_.commit_group()
            T.ptx.cp.async_.wait_group(0)
            T.tvm_storage_sync("shared")
            for i in T.serial(n):
                C[i, tx] = S[i % DEPTH * THREADS + THREADS - 1 - tx]
                T.tvm_storage_sync("shared")
                if i + DEPTH < n:
                    S[i % DEPTH * THREADS + tx] = A[i + DEPTH, tx]
                T.tvm_storage_sync("shared")

    return main


def ordered_by(steps: Callable[[Any], Any]) -> Any:
    """Nothing but the barriers of ``steps`` iterations orders the accesses."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS,), "int32"), n: T.int32):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS,), "int32", scope="shared")
            S[tx] = tx
            for _ in T.serial(steps(n)):
                T.tvm_storage_sync("shared")
            C[tx] = S[THREADS - 1 - tx]

    return main


def two(unwaited: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """n iterations, then m.

    A barrier of the second ones is left out if ``unwaited`` says so of its number, n and m, and of
    how many there were before.
    """

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((MOST, THREADS), "int32"),
        C: T.Buffer((MOST, THREADS), "int32"),
        n: T.int32,
        m: T.int32,
    ):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((2 * THREADS,), "int32", scope="shared")
            made = T.alloc_buffer((1,), "int32", scope="local")
            made[0] = 0
            for i in T.serial(n):
                S[i % 2 * THREADS + tx] = A[i, tx]
                T.tvm_storage_sync("shared")
                C[i, tx] = S[i % 2 * THREADS + THREADS - 1 - tx]
                made[0] = T.min(made[0] + 1, 9)
            T.tvm_storage_sync("shared")
            for j in T.serial(m):
                S[j % 2 * THREADS + tx] = A[j, tx]
                if tirx.Not(unwaited(j, n, m, made[0])):
                    T.tvm_storage_sync("shared")
                C[j, tx] = S[j % 2 * THREADS + THREADS - 1 - tx]

    return main


def tiles(unwaited: Condition = never, ctas: int = 2) -> Any:
    """A persistent kernel: m tiles of k rows each go through a ring of two slots between two warps.

    The reader of row i of a tile does not wait where ``unwaited`` says so of i and k.
    """

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((MOST, MOST, WARP), "int32"),
        C: T.Buffer((MOST, MOST, WARP), "int32"),
        k: T.int32,
        m: T.int32,
    ):
        for bx in T.thread_binding(ctas, thread="blockIdx.x"):
            for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
                full = T.alloc_buffer((2,), "uint64", scope="shared")
                empty = T.alloc_buffer((2,), "uint64", scope="shared")
                slot = T.alloc_buffer((1,), "int32", scope="local")
                phase = T.alloc_buffer((1,), "int32", scope="local")
                if tx == 0:
                    for s in T.serial(2):
                        T.ptx.mbarrier.init.shared.b64(T.address_of(full[s]), T.uint32(WARP))
                        T.ptx.mbarrier.init.shared.b64(T.address_of(empty[s]), T.uint32(WARP))
                T.tvm_storage_sync("shared")
                slot[0] = 0
                phase[0] = 0
                if tx < WARP:
                    for t in T.serial((m - bx + ctas - 1) // ctas):
                        for i in T.serial(k):
                            if tirx.Not(unwaited(i, k)):
                                T.cuda.mbarrier_wait(T.address_of(full[slot[0]]), phase[0])
                            C[t * ctas + bx, i, tx] = S[slot[0] * WARP + WARP - 1 - tx]
                            T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[slot[0]]))
                            slot[0] = slot[0] + 1
                            if slot[0] == 2:
                                slot[0] = 0
                                phase[0] = phase[0] ^ 1
                else:
                    for t in T.serial((m - bx + ctas - 1) // ctas):
                        for i in T.serial(k):
                            T.cuda.mbarrier_wait(T.address_of(empty[slot[0]]), phase[0] ^ 1)
                            S[slot[0] * WARP + tx - WARP] = A[t * ctas + bx, i, tx - WARP]
                            T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[slot[0]]))
                            slot[0] = slot[0] + 1
                            if slot[0] == 2:
                                slot[0] = 0
                                phase[0] = phase[0] ^ 1

    return main


CHUNK: Final = 8


def ragged(unwaited: Condition = never) -> Any:
    """n elements in tiles of eight; ``unwaited``: of which tile threads do not wait behind it."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((MOST * 8,), "int32"), C: T.Buffer((MOST * 8,), "int32"), n: T.int32):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            S = T.alloc_buffer((8,), "int32", scope="shared")
            for t in T.serial((n + 7) // 8):
                if t * 8 + tx < n:
                    S[tx] = A[t * 8 + tx]
                T.tvm_storage_sync("shared")
                if t * 8 + (7 - tx) < n:
                    C[t * 8 + tx] = S[7 - tx]
                if tirx.Not(unwaited(t, n)):
                    T.tvm_storage_sync("shared")

    return main


def grids(uneven: bool) -> Any:
    """A CTA for each of n rows; ``uneven``: those behind row 40 do not wait."""
    first = 40 if uneven else -1

    @T.prim_func(s_tir=True)
    def main(a: T.handle, c: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, THREADS), "int32")
        C = T.match_buffer(c, (n, THREADS), "int32")
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((THREADS,), "int32", scope="shared")
                S[tx] = A[bx, tx]
                if first < 0 or bx <= first:
                    T.tvm_storage_sync("shared")
                C[bx, tx] = S[THREADS - 1 - tx]

    return main


def steps_by_place() -> Any:
    """A CTA for each of n rows, of which the i-th makes 100 - i steps; these alone order accesses."""

    @T.prim_func(s_tir=True)
    def main(c: T.handle):
        n = T.int32()
        C = T.match_buffer(c, (n, THREADS), "int32")
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((THREADS,), "int32", scope="shared")
                S[tx] = tx
                for _ in T.serial(100 - bx):
                    T.tvm_storage_sync("shared")
                C[bx, tx] = S[THREADS - 1 - tx]

    return main


def roles(unwaited: Condition = never) -> Any:
    """The reader has peeled the first of n + 1 steps; the writer does not signal step ``unwaited``."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((WARP,), "int32"), n: T.int32):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            full = T.alloc_buffer((1,), "uint64", scope="shared")
            empty = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(full[0]), T.uint32(WARP))
                T.ptx.mbarrier.init.shared.b64(T.address_of(empty[0]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            if tx < WARP:
                T.cuda.mbarrier_wait(T.address_of(full[0]), 0)
                T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[0]))
                for k in T.serial(n):
                    T.cuda.mbarrier_wait(T.address_of(full[0]), (k + 1) % 2)
                    T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[0]))
                A[tx] = 0
            else:
                for k in T.serial(n + 1):
                    T.cuda.mbarrier_wait(T.address_of(empty[0]), (k + 1) % 2)
                    if tirx.Not(unwaited(k, n)):
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[0]))

    return main


def fixed(steps: int, **conditions: Condition) -> Any:
    """As ``ring``, of ``steps`` rows, in whose text that number stands."""
    copies = conditions.get("copies", lambda i, n: i + AHEAD < n)
    unwaited = conditions.get("unwaited", never)
    clears, slot = conditions.get("clears", never), conditions.get("slot", lambda i, n: i % DEPTH)

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((MOST, THREADS), "int32"), C: T.Buffer((MOST, THREADS), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((DEPTH * THREADS,), "int32", scope="shared")
            for s in T.serial(AHEAD):
                T.ptx[_COPY](T.address_of(S[s * THREADS + tx]), T.address_of(A[s, tx]), 4)
                T.ptx.cp.async_.commit_group()
            for i in T.serial(steps):
                if tirx.Not(unwaited(i, steps)):
                    T.ptx.cp.async_.wait_group(AHEAD - 1)
                    T.tvm_storage_sync("shared")
                if clears(i, steps):
                    S[slot(i, steps) * THREADS + tx] = 0
                if copies(i, steps):
                    T.ptx[_COPY](
                        T.address_of(S[(i + AHEAD) % DEPTH * THREADS + tx]),
                        T.address_of(A[i + AHEAD, tx]),
                        4,
                    )
                T.ptx.cp.async_.commit_group()
                C[i % MOST, tx] = S[i % DEPTH * THREADS + THREADS - 1 - tx]

    return main
