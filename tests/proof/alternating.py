"""Two readers that alternate on tiles of a ring, written by hand, and skip each other's steps."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

WARP = 32


def turns(steps: int = 8, depth: int = 2, skipped: int | None = None, *, flips: bool = True) -> Any:
    """Warp 2 writes ``steps`` rows of each tile into a ring; warps 0 and 1 read every other tile.

    Slot and phase are carried in registers. Each reader skips ``skipped`` steps at once, as many as
    the other makes where None. ``flips``: its phase changes with each lap that it skips.
    """
    ahead = steps if skipped is None else skipped

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4, steps, WARP), "int32"), C: T.Buffer((4, steps, WARP), "int32")):
        for tx in T.thread_binding(3 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((depth * WARP,), "int32", scope="shared")
            full = T.alloc_buffer((depth,), "uint64", scope="shared")
            empty = T.alloc_buffer((depth,), "uint64", scope="shared")
            turn = T.alloc_buffer((2,), "uint64", scope="shared")
            slot = T.alloc_buffer((1,), "int32", scope="local")
            phase = T.alloc_buffer((1,), "int32", scope="local")
            mine = T.alloc_buffer((1,), "int32", scope="local")
            if tx == 0:
                for s in T.serial(depth):
                    T.ptx.mbarrier.init.shared.b64(T.address_of(full[s]), T.uint32(WARP))
                    T.ptx.mbarrier.init.shared.b64(T.address_of(empty[s]), T.uint32(WARP))
                for s in T.serial(2):
                    T.ptx.mbarrier.init.shared.b64(T.address_of(turn[s]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            slot[0] = 0
            phase[0] = 0
            if tx < 2 * WARP:
                mine[0] = T.if_then_else(tx < WARP, 1, 0)
                for t in T.serial(4):
                    if t % 2 == tx // WARP:
                        T.cuda.mbarrier_wait(T.address_of(turn[tx // WARP]), mine[0])
                        mine[0] = mine[0] ^ 1
                        for k in T.serial(steps):
                            T.cuda.mbarrier_wait(T.address_of(full[slot[0]]), phase[0])
                            C[t, k, tx % WARP] = S[slot[0] * WARP + WARP - 1 - tx % WARP]
                            T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[slot[0]]))
                            slot[0] = slot[0] + 1
                            if slot[0] == depth:
                                slot[0] = 0
                                phase[0] = phase[0] ^ 1
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(turn[1 - tx // WARP]))
                    else:
                        if flips:
                            phase[0] = phase[0] ^ (T.truncdiv(slot[0] + ahead, depth) & 1)
                        slot[0] = T.truncmod(slot[0] + ahead, depth)
            else:
                for t in T.serial(4):
                    for k in T.serial(steps):
                        T.cuda.mbarrier_wait(T.address_of(empty[slot[0]]), phase[0] ^ 1)
                        S[slot[0] * WARP + tx % WARP] = A[t, k, tx % WARP]
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[slot[0]]))
                        slot[0] = slot[0] + 1
                        if slot[0] == depth:
                            slot[0] = 0
                            phase[0] = phase[0] ^ 1

    return main
