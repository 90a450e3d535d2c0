"""Programs that are wrong in one run alone, which a proof that judged another would not meet."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from ..emulator.test_waiting import COOPERATIVE

WARP = 32


def pairs(shared: bool) -> Any:
    """Two pairs of warps meet, at a barrier for each or at one for both: any two warps meet there."""
    other = 1 if shared else 2

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4 * WARP,), "int32")):
        for tx in T.thread_binding(4 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((4 * WARP,), "int32", scope="shared")
            S[tx] = tx
            if tx < 2 * WARP:
                T.ptx.bar.sync(T.uint32(1), T.uint32(2 * WARP))
                A[tx] = S[2 * WARP - 1 - tx]
            else:
                T.ptx.bar.sync(T.uint32(other), T.uint32(2 * WARP))
                A[tx] = S[6 * WARP - 1 - tx]

    return main


def signals(noticed: bool) -> Any:
    """Warp 1 signals warp 0 at each step; ``noticed``: it waits until warp 0 has noticed."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            if tx < WARP:
                for _ in T.serial(4):
                    T.ptx.bar.sync(T.uint32(1), T.uint32(2 * WARP))
                    if noticed:
                        T.ptx.bar.arrive(T.uint32(2), T.uint32(2 * WARP))
                A[tx] = 0
            else:
                for _ in T.serial(4):
                    T.ptx.bar.arrive(T.uint32(1), T.uint32(2 * WARP))
                    if noticed:
                        T.ptx.bar.sync(T.uint32(2), T.uint32(2 * WARP))

    return main


def triangle(steps: int, wrong: bool) -> Any:
    """Tile t has t + ``steps`` steps. ``wrong``: at the third of a tile behind one of two steps, the
    reader does not wait. No two tiles of as many steps meet that.
    """

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4, 8, WARP), "int32"), C: T.Buffer((4, 8, WARP), "int32")):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
            full = T.alloc_buffer((2,), "uint64", scope="shared")
            empty = T.alloc_buffer((2,), "uint64", scope="shared")
            slot = T.alloc_buffer((1,), "int32", scope="local")
            phase = T.alloc_buffer((1,), "int32", scope="local")
            made = T.alloc_buffer((1,), "int32", scope="local")
            before = T.alloc_buffer((1,), "int32", scope="local")
            if tx == 0:
                for s in T.serial(2):
                    T.ptx.mbarrier.init.shared.b64(T.address_of(full[s]), T.uint32(WARP))
                    T.ptx.mbarrier.init.shared.b64(T.address_of(empty[s]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            slot[0] = 0
            phase[0] = 0
            before[0] = 0
            if tx < WARP:
                for t in T.serial(4):
                    made[0] = 0
                    for k in T.serial(t + steps):
                        if T.bool(not wrong) or made[0] != 2 or before[0] != 2:
                            T.cuda.mbarrier_wait(T.address_of(full[slot[0]]), phase[0])
                        C[t, k, tx] = S[slot[0] * WARP + WARP - 1 - tx]
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[slot[0]]))
                        made[0] = T.min(made[0] + 1, 5)
                        slot[0] = slot[0] + 1
                        if slot[0] == 2:
                            slot[0] = 0
                            phase[0] = phase[0] ^ 1
                    before[0] = made[0]
            else:
                for t in T.serial(4):
                    for k in T.serial(t + steps):
                        T.cuda.mbarrier_wait(T.address_of(empty[slot[0]]), phase[0] ^ 1)
                        S[slot[0] * WARP + tx - WARP] = A[t, k, tx - WARP]
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[slot[0]]))
                        slot[0] = slot[0] + 1
                        if slot[0] == 2:
                            slot[0] = 0
                            phase[0] = phase[0] ^ 1

    return main


def stepless(least: int) -> Any:
    """Nothing but the steps of a CTA orders its accesses; the last of four makes ``least``."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4, 2 * WARP), "int32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
                S[tx] = tx
                for _ in T.serial(least + 3 - bx):
                    T.tvm_storage_sync("shared")
                A[bx, tx] = S[2 * WARP - 1 - tx]

    return main


def carried(by_cta: bool) -> Any:
    """Who comes to a barrier of the grid is read from a register, stored under a condition."""

    @T.prim_func(s_tir=True)
    def main(Y: T.Buffer((4,), "int32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                comes = T.alloc_buffer((1,), "int32", scope="local")
                comes[0] = 0
                if (bx > 0) if by_cta else (tx >= 0):
                    comes[0] = 1
                if comes[0] > 0:
                    T.cuda.grid_sync()
                if tx == 0:
                    Y[bx] = 1

    return main.with_attr(*COOPERATIVE)


def late(steps: int) -> Any:
    """Warp 0 begins its steps when warp 1 has made all of its own, and is wrong if they were two
    more than a multiple of three.
    """

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "int32", scope="shared")
            full = T.alloc_buffer((1,), "uint64", scope="shared")
            slot = T.alloc_buffer((1,), "int32", scope="local")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(full[0]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            slot[0] = 0
            if tx < WARP:
                T.cuda.mbarrier_wait(T.address_of(full[0]), 0)
                for _ in T.serial(steps):
                    T.ptx.bar.sync(T.uint32(1), T.uint32(WARP))
                    slot[0] = slot[0] + 1
                    if slot[0] == 3:
                        slot[0] = 0
                if slot[0] == 2:
                    S[WARP - 1 - tx] = 1
                A[tx] = S[tx]
            else:
                S[tx - WARP] = 0
                for _ in T.serial(steps):
                    T.ptx.bar.sync(T.uint32(2), T.uint32(WARP))
                T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[0]))

    return main


def twice(wrong: bool) -> Any:
    """Two loops of as many steps, one behind the other, each thread in both. ``wrong``: nothing but
    the steps of the first orders the accesses around it.
    """

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((2 * WARP,), "int32")):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
            S[tx] = tx
            for _ in T.serial(4):
                T.tvm_storage_sync("shared")
            if not wrong:
                T.tvm_storage_sync("shared")
            A[tx] = S[2 * WARP - 1 - tx]
            for _ in T.serial(4):
                T.tvm_storage_sync("shared")

    return main


def own_counts(wrong: bool) -> Any:
    """CTA bx makes bx + 1 steps. The second one does not wait at its third, which it does not make.

    ``wrong``: nor does any but the first one, where the third and the fourth make it.
    """

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4, 8, 2 * WARP), "int32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
                for k in T.serial(bx + 1):
                    S[tx] = tx
                    if bx == 0 or (not wrong and bx > 1) or k != 2:
                        T.tvm_storage_sync("shared")
                    A[bx, k, tx] = S[2 * WARP - 1 - tx]
                    T.tvm_storage_sync("shared")

    return main


def launched_again(last: int) -> Any:
    """One kernel, launched three times: up to the ``last`` launch its threads meet."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((3, 2 * WARP), "int32")):
        for i in T.serial(3):
            for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
                S[tx] = tx
                if i <= last:
                    T.tvm_storage_sync("shared")
                A[i, tx] = S[2 * WARP - 1 - tx]

    return main


def cluster(even: bool) -> Any:
    """Two CTAs of a cluster wait for each other at each step; ``even``: they make as many."""
    more = 0 if even else 1

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((2, WARP), "int32")):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            for bx in T.thread_binding(2, thread="blockIdx.x"):
                for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                    bars = T.alloc_buffer((1,), "uint64", scope="shared")
                    remote = T.alloc_buffer((1,), "uint32", scope="local")
                    if tx == 0:
                        T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(WARP))
                        T.ptx.fence.mbarrier_init.release.cluster()
                    T.cuda.cluster_sync()
                    T.ptx.mapa.shared__cluster.u32(
                        remote[0],
                        T.cuda.cvta_generic_to_shared(T.address_of(bars[0])),
                        T.Cast("uint32", 1 - cx),
                    )
                    for k in T.serial(4 + bx * more):
                        T.ptx.mbarrier.arrive.shared__cluster.b64(remote[0])
                        T.cuda.mbarrier_wait(T.address_of(bars[0]), k % 2)
                        T.cuda.cluster_sync()
                    A[bx, tx] = cx

    return main


def peeled(ctas: int) -> Any:
    """The reader has peeled the first of 3 - bx steps: the fourth CTA has none to peel."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4, WARP), "int32")):
        for bx in T.thread_binding(ctas, thread="blockIdx.x"):
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
                    for k in T.serial(2 - bx):
                        T.cuda.mbarrier_wait(T.address_of(full[0]), (k + 1) % 2)
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[0]))
                    A[bx, tx] = 0
                else:
                    for k in T.serial(3 - bx):
                        T.cuda.mbarrier_wait(T.address_of(empty[0]), (k + 1) % 2)
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[0]))

    return main


def by_middle(wrong: bool) -> Any:
    """The threads of all CTAs meet but those of the second."""
    left_out = 1 if wrong else -1

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4, 2 * WARP), "int32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((2 * WARP,), "int32", scope="shared")
                S[tx] = tx
                if bx != left_out:
                    T.tvm_storage_sync("shared")
                A[bx, tx] = S[2 * WARP - 1 - tx]

    return main
