"""The kernels that are timed, each of one thing: TensorIR with TVM's PTX instructions.

They are TVM's own kind for what an author places himself (the pipeline ``tirx``), so that nothing
is added to what is measured. Thread 0 of each CTA leaves the cycles of ``steps`` steps in ``out``;
what was computed goes to ``sink``, or nothing of it would be left.
"""

from __future__ import annotations

from typing import Any, Final

from tvm.script import tirx as T

from ..values.elements import operand

BOX_COLUMNS: Final = 64
"""Of the boxes that are copied: a row of them is 128 bytes of 16-bit elements, as GEMMs have it."""

_BULK: Final = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
_SWIZZLE_128B: Final = 3
_VECTOR: Final = 4
"""Words of the widest access of a thread."""


def chase(steps: int, size: int) -> Any:
    """One thread that reads ``P[P[P[...]]]`` of ``size`` words in global memory."""

    @T.prim_func
    def chase(p: T.handle, o: T.handle, s: T.handle) -> None:
        P = T.match_buffer(p, (size,), "int32")
        out = T.match_buffer(o, (1,), "int64")
        sink = T.match_buffer(s, (1,), "int32")
        T.device_entry()
        _cta = T.cta_id([1])
        _tx = T.thread_id([1])
        at = T.alloc_buffer((1,), "int32", scope="local")
        begin: T.uint64
        at[0] = 0
        begin = T.cuda.clock64()
        for _ in T.serial(steps):
            T.ptx["ld.global.cg.b32"](at[0], P.ptr_to([at[0]]))
        sink[0] = at[0]
        out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return chase


def chase_shared(steps: int, size: int) -> Any:
    """The same in shared memory."""

    @T.prim_func
    def chase_shared(p: T.handle, o: T.handle, s: T.handle) -> None:
        P = T.match_buffer(p, (size,), "int32")
        out = T.match_buffer(o, (1,), "int64")
        sink = T.match_buffer(s, (1,), "int32")
        T.device_entry()
        _cta = T.cta_id([1])
        _tx = T.thread_id([1])
        S = T.alloc_buffer((size,), "int32", scope="shared")
        at = T.alloc_buffer((1,), "int32", scope="local")
        begin: T.uint64
        for i in T.serial(size):
            S[i] = P[i]
        at[0] = 0
        begin = T.cuda.clock64()
        for _ in T.serial(steps):
            T.ptx["ld.shared.b32"](at[0], S.ptr_to([at[0]]))
        sink[0] = at[0]
        out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return chase_shared


def read(ctas: int, threads: int, steps: int, chunks: int, stride: int) -> Any:
    """All CTAs read: at each step, one chunk of 16 bytes a thread, ``stride`` chunks further."""
    words = threads * _VECTOR

    @T.prim_func
    def read(p: T.handle, o: T.handle, s: T.handle) -> None:
        P = T.match_buffer(p, (chunks * words,), "int32")
        out = T.match_buffer(o, (ctas,), "int64")
        sink = T.match_buffer(s, (ctas * threads,), "int32")
        T.device_entry()
        cta = T.cta_id([ctas])
        tx = T.thread_id([threads])
        got = T.alloc_buffer((_VECTOR,), "uint32", scope="local")
        total = T.alloc_buffer((1,), "uint32", scope="local")
        begin: T.uint64
        total[0] = T.uint32(0)
        begin = T.cuda.clock64()
        for i in T.serial(steps):
            chunk = T.meta_var((cta + i * stride) % chunks)
            T.ptx["ld.global.cg.v4.b32"](
                got[0], got[1], got[2], got[3], P.ptr_to([chunk * words + tx * _VECTOR])
            )
            total[0] = total[0] ^ got[0] ^ got[1] ^ got[2] ^ got[3]
        sink[cta * threads + tx] = T.Cast("int32", total[0])
        if tx == 0:
            out[cta] = T.Cast("int64", T.cuda.clock64() - begin)

    return read


def read_shared(threads: int, steps: int, *, matrices: bool) -> Any:
    """One CTA that reads 16 bytes a thread at each step: words of its own, or by ldmatrix."""
    words = threads * _VECTOR
    name = "ldmatrix.sync.aligned.m8n8.x4.shared.b16" if matrices else "ld.shared.v4.b32"

    @T.prim_func
    def read_shared(o: T.handle, s: T.handle) -> None:
        out = T.match_buffer(o, (1,), "int64")
        sink = T.match_buffer(s, (threads,), "int32")
        T.device_entry()
        _cta = T.cta_id([1])
        tx = T.thread_id([threads])
        S = T.alloc_buffer((words,), "uint32", scope="shared")
        got = T.alloc_buffer((_VECTOR,), "uint32", scope="local")
        total = T.alloc_buffer((1,), "uint32", scope="local")
        begin: T.uint64
        for i in T.serial(_VECTOR):
            S[i * threads + tx] = T.Cast("uint32", tx)
        total[0] = T.uint32(0)
        T.cuda.cta_sync()
        begin = T.cuda.clock64()
        for i in T.serial(steps):
            row = T.meta_var((tx + i * 32) % threads)  # no period that a compiler unrolls by
            T.ptx[name](got[0], got[1], got[2], got[3], S.ptr_to([row * _VECTOR]))
            total[0] = total[0] ^ got[0] ^ got[1] ^ got[2] ^ got[3]
        sink[tx] = T.Cast("int32", total[0])
        T.cuda.cta_sync()
        if tx == 0:
            out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return read_shared


def multiply(
    dtype: str, shape: tuple[int, int, int], ctas: int, warps: int, chains: int, steps: int
) -> Any:
    """CTAs whose warps do ``chains`` independent mma.sync at each step."""
    m, n, k = shape
    row = operand(dtype)
    kind, bits = row.operand, 8 * row.nbytes
    a_words, b_words, acc = m * k * bits // 1024, n * k * bits // 1024, m * n // 32
    result, of_result, left = ("f32", "float32", "float32")
    if row.integer:
        result, of_result, left = ("s32", "uint32", "int32")
    name = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{result}.{kind}.{kind}.{result}"

    @T.prim_func
    def multiply(o: T.handle, s: T.handle) -> None:
        out = T.match_buffer(o, (ctas,), "int64")
        sink = T.match_buffer(s, (ctas * warps * 32,), left)
        T.device_entry()
        cta = T.cta_id([ctas])
        tx = T.thread_id([warps * 32])
        a = T.alloc_buffer((a_words,), "uint32", scope="local")
        b = T.alloc_buffer((b_words,), "uint32", scope="local")
        d = T.alloc_buffer((chains * acc,), of_result, scope="local")
        begin: T.uint64
        for i in T.unroll(a_words):
            a[i] = T.Cast("uint32", tx)
        for i in T.unroll(b_words):
            b[i] = T.Cast("uint32", tx)
        for i in T.unroll(chains * acc):
            d[i] = T.Cast(of_result, 0)
        T.cuda.cta_sync()
        begin = T.cuda.clock64()
        for _ in T.serial(steps):
            for chain in T.unroll(chains):
                T.ptx[name](
                    *[d[chain * acc + i] for i in range(acc)],
                    *[a[i] for i in range(a_words)],
                    *[b[i] for i in range(b_words)],
                    *[d[chain * acc + i] for i in range(acc)],
                )
        for i in T.unroll(1, chains * acc):
            d[0] = d[0] + d[i]
        sink[cta * warps * 32 + tx] = T.Cast(left, d[0])
        T.cuda.cta_sync()
        if tx == 0:
            out[cta] = T.Cast("int64", T.cuda.clock64() - begin)

    return multiply


def multiply_by_warpgroup(columns: int, ctas: int, groups: int, batch: int, steps: int) -> Any:
    """CTAs whose warpgroups multiply 64 x ``columns`` x 16 halves from shared memory.

    ``batch`` instructions at each step, whose end is waited for.
    """
    threads, acc = groups * 128, 64 * columns // 128
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16"

    @T.prim_func
    def multiply_by_warpgroup(o: T.handle, s: T.handle) -> None:
        out = T.match_buffer(o, (ctas,), "int64")
        sink = T.match_buffer(s, (ctas * threads,), "float32")
        T.device_entry()
        cta = T.cta_id([ctas])
        tx = T.thread_id([threads])
        A = T.alloc_buffer((64, BOX_COLUMNS), "float16", scope="shared", align=1024)
        B = T.alloc_buffer((columns, BOX_COLUMNS), "float16", scope="shared", align=1024)
        a = T.alloc_buffer((1,), "uint64", scope="local")
        b = T.alloc_buffer((1,), "uint64", scope="local")
        begin: T.uint64
        d = T.alloc_buffer((acc,), "float32", scope="local")
        for i in T.serial(64 * BOX_COLUMNS // threads):
            at = T.meta_var(i * threads + tx)
            A[at // BOX_COLUMNS, at % BOX_COLUMNS] = T.Cast("float16", tx % 7)
        for i in T.serial(columns * BOX_COLUMNS // threads):
            at = T.meta_var(i * threads + tx)
            B[at // BOX_COLUMNS, at % BOX_COLUMNS] = T.Cast("float16", tx % 5)
        for i in T.unroll(acc):
            d[i] = T.float32(0)
        T.ptx["fence.proxy.async.shared::cta"]()
        T.cuda.wgmma.encode_matrix_descriptor(a.ptr_to([0]), A.ptr_to([0, 0]), 1, 64, _SWIZZLE_128B)
        T.cuda.wgmma.encode_matrix_descriptor(b.ptr_to([0]), B.ptr_to([0, 0]), 1, 64, _SWIZZLE_128B)
        T.cuda.cta_sync()
        begin = T.cuda.clock64()
        for _ in T.serial(steps):
            T.ptx.wgmma.fence.sync.aligned()
            for _ in T.unroll(batch):
                T.ptx[name](*[d[i] for i in range(acc)], a[0], b[0], True, 1, 1, 0, 0)
            T.ptx.wgmma.commit_group.sync.aligned()
            T.ptx.wgmma.wait_group.sync.aligned(0)
        for i in T.unroll(1, acc):
            d[0] = d[0] + d[i]
        sink[cta * threads + tx] = d[0]
        T.cuda.cta_sync()
        if tx == 0:
            out[cta] = T.Cast("int64", T.cuda.clock64() - begin)

    return multiply_by_warpgroup


def synchronise(threads: int, steps: int) -> Any:
    """One CTA at its barrier."""

    @T.prim_func
    def synchronise(o: T.handle) -> None:
        out = T.match_buffer(o, (1,), "int64")
        T.device_entry()
        _cta = T.cta_id([1])
        tx = T.thread_id([threads])
        begin: T.uint64
        T.cuda.cta_sync()
        begin = T.cuda.clock64()
        for _ in T.serial(steps):
            T.cuda.cta_sync()
        if tx == 0:
            out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return synchronise


def hand_over(threads: int, steps: int) -> Any:
    """One CTA at an mbarrier: a thread of each warp arrives, all wait for the phase."""

    @T.prim_func
    def hand_over(o: T.handle) -> None:
        out = T.match_buffer(o, (1,), "int64")
        T.device_entry()
        _cta = T.cta_id([1])
        tx = T.thread_id([threads])
        bar = T.alloc_buffer((1,), "uint64", scope="shared", align=8)
        begin: T.uint64
        if tx == 0:
            T.ptx.mbarrier.init.shared.b64(bar.ptr_to([0]), T.uint32(threads // 32))
        T.cuda.cta_sync()
        begin = T.cuda.clock64()
        for i in T.serial(steps):
            if tx % 32 == 0:
                T.ptx.mbarrier.arrive.shared.b64(bar.ptr_to([0]))
            T.cuda.mbarrier_wait(bar.ptr_to([0]), i % 2)
        if tx == 0:
            out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return hand_over


def copy_asynchronously(threads: int, vectors: int, steps: int, size: int) -> Any:
    """One CTA that copies ``vectors`` times 16 bytes a thread by cp.async, and waits.

    At each step from elsewhere in ``size`` words.
    """
    words = threads * vectors * _VECTOR

    @T.prim_func
    def copy_asynchronously(p: T.handle, o: T.handle) -> None:
        P = T.match_buffer(p, (size,), "int32")
        out = T.match_buffer(o, (1,), "int64")
        T.device_entry()
        _cta = T.cta_id([1])
        tx = T.thread_id([threads])
        S = T.alloc_buffer((words,), "uint32", scope="shared")
        begin: T.uint64
        T.cuda.cta_sync()
        begin = T.cuda.clock64()
        for i in T.serial(steps):
            for j in T.unroll(vectors):
                at = T.meta_var((j * threads + tx) * _VECTOR)
                T.ptx["cp.async.cg.shared.global"](
                    S.ptr_to([at]), P.ptr_to([(i * words + at) % size]), 16
                )
            T.ptx.cp.async_.commit_group()
            T.ptx.cp.async_.wait_group(0)
        if tx == 0:
            out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return copy_asynchronously


def copy_boxes(rows: int, steps: int, size: int) -> Any:
    """One thread that has boxes of ``rows`` x 64 halves copied by TMA, each waited for.

    The source has ``size`` rows.
    """
    count = rows * BOX_COLUMNS
    box = [BOX_COLUMNS, size, BOX_COLUMNS * 2, BOX_COLUMNS, rows, 1, 1, 0, _SWIZZLE_128B, 2, 0]

    @T.prim_func
    def copy_boxes(p: T.handle, o: T.handle) -> None:
        P = T.match_buffer(p, (size, BOX_COLUMNS), "float16", align=16)
        out = T.match_buffer(o, (1,), "int64")
        tensor: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed("runtime.cuTensorMapEncodeTiled", tensor, "float16", 2, P.data, *box)
        T.device_entry()
        _cta = T.cta_id([1])
        tx = T.thread_id([32])
        S = T.alloc_buffer((rows, BOX_COLUMNS), "float16", scope="shared", align=1024)
        bar = T.alloc_buffer((1,), "uint64", scope="shared", align=8)
        begin: T.uint64
        if tx == 0:
            T.ptx.mbarrier.init.shared.b64(bar.ptr_to([0]), T.uint32(1))
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        if tx == 0:
            begin = T.cuda.clock64()
            for i in T.serial(steps):
                T.ptx.mbarrier.arrive.expect_tx.shared.b64(bar.ptr_to([0]), T.uint32(count * 2))
                T.ptx[_BULK](S.data, T.address_of(tensor), 0, i * rows % size, bar.ptr_to([0]))
                T.cuda.mbarrier_wait(bar.ptr_to([0]), i % 2)
            out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return copy_boxes


def add_up(threads: int, chains: int, steps: int) -> Any:
    """One CTA whose threads do ``chains`` independent fused multiply-adds at each step."""

    @T.prim_func
    def add_up(o: T.handle, s: T.handle) -> None:
        out = T.match_buffer(o, (1,), "int64")
        sink = T.match_buffer(s, (threads,), "float32")
        T.device_entry()
        _cta = T.cta_id([1])
        tx = T.thread_id([threads])
        d = T.alloc_buffer((chains,), "float32", scope="local")
        begin: T.uint64
        for i in T.unroll(chains):
            d[i] = T.Cast("float32", tx)
        T.cuda.cta_sync()
        begin = T.cuda.clock64()
        for _ in T.serial(steps):
            for i in T.unroll(chains):
                d[i] = d[i] * d[i] + T.float32(1)
        for i in T.unroll(1, chains):
            d[0] = d[0] + d[i]
        sink[tx] = d[0]
        T.cuda.cta_sync()
        if tx == 0:
            out[0] = T.Cast("int64", T.cuda.clock64() - begin)

    return add_up


def nothing() -> Any:
    """A kernel that is launched and ends."""

    @T.prim_func
    def nothing(o: T.handle) -> None:
        out = T.match_buffer(o, (1,), "int64")
        T.device_entry()
        _cta = T.cta_id([1])
        tx = T.thread_id([32])
        if tx == 0:
            out[0] = T.int64(1)

    return nothing
