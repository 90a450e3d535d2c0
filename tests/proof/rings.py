"""A ring between two warps, written by hand, with one mistake or none: mbarriers order its slots."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

WARP = 32


def ring(depth: int = 3, steps: int = 6, mistake: str = "", tiles: int = 1) -> Any:
    """Warp 1 writes a row a step into a ring of ``depth`` slots, warp 0 reads it, mirrored.

    Slot and phase are carried in registers, over ``tiles`` loops of ``steps`` steps. Mistakes:

    ``seventeen``: at step 17 the reader does not wait
    ``fifth lap``: in the fifth lap of the ring the writer does not wait
    ``odd``: behind the loop the writer clears slot 2 without waiting, if it has come to rest there
    ``parity``: the phase changes at each step instead of each lap
    ``early release``: the slot is released before it is read
    ``unordered``: the reader arrives at an mbarrier at each step, for which nobody waits
    """
    at_seventeen, fifth = mistake == "seventeen", mistake == "fifth lap"
    cleared = 2 if mistake == "odd" else -1
    unordered = mistake == "unordered"
    early, parity = mistake == "early release", mistake == "parity"

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((tiles, steps, WARP), "int32"), C: T.Buffer((tiles, steps, WARP), "int32")
    ):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((depth * WARP,), "int32", scope="shared")
            full = T.alloc_buffer((depth,), "uint64", scope="shared")
            empty = T.alloc_buffer((depth,), "uint64", scope="shared")
            spare = T.alloc_buffer((1,), "uint64", scope="shared")
            slot = T.alloc_buffer((1,), "int32", scope="local")
            phase = T.alloc_buffer((1,), "int32", scope="local")
            lap = T.alloc_buffer((1,), "int32", scope="local")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(spare[0]), T.uint32(WARP))
                for s in T.serial(depth):
                    T.ptx.mbarrier.init.shared.b64(T.address_of(full[s]), T.uint32(WARP))
                    T.ptx.mbarrier.init.shared.b64(T.address_of(empty[s]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            slot[0] = 0
            phase[0] = 0
            lap[0] = 0
            if tx < WARP:
                for t in T.serial(tiles):
                    for k in T.serial(steps):
                        if at_seventeen:
                            if k != 17:
                                T.cuda.mbarrier_wait(T.address_of(full[slot[0]]), phase[0])
                        else:
                            T.cuda.mbarrier_wait(T.address_of(full[slot[0]]), phase[0])
                        if early:
                            T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[slot[0]]))
                        C[t, k, tx] = S[slot[0] * WARP + WARP - 1 - tx]
                        if unordered:
                            T.ptx.mbarrier.arrive.shared.b64(T.address_of(spare[0]))
                        if not early:
                            T.ptx.mbarrier.arrive.shared.b64(T.address_of(empty[slot[0]]))
                        slot[0] = slot[0] + 1
                        if parity:
                            phase[0] = phase[0] ^ 1
                        if slot[0] == depth:
                            slot[0] = 0
                            if not parity:
                                phase[0] = phase[0] ^ 1
            else:
                for t in T.serial(tiles):
                    for k in T.serial(steps):
                        if fifth:
                            if lap[0] != 4:
                                T.cuda.mbarrier_wait(T.address_of(empty[slot[0]]), phase[0] ^ 1)
                        else:
                            T.cuda.mbarrier_wait(T.address_of(empty[slot[0]]), phase[0] ^ 1)
                        S[slot[0] * WARP + tx - WARP] = A[t, k, tx - WARP]
                        T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[slot[0]]))
                        slot[0] = slot[0] + 1
                        if parity:
                            phase[0] = phase[0] ^ 1
                        if slot[0] == depth:
                            slot[0] = 0
                            lap[0] = T.min(lap[0] + 1, 5)
                            if not parity:
                                phase[0] = phase[0] ^ 1
                    if slot[0] == cleared:
                        S[2 * WARP + tx - WARP] = 0

    return main
