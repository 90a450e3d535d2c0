"""The arena: offsets, sharing, budget; and that what was planned is what is emitted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason
from pipeliner.errors import InternalError, PlanError
from pipeliner.passes.ir.nodes import buffer_bytes, is_shared, walk
from pipeliner.passes.lower import suffix
from pipeliner.passes.smem.arena import ARENA, apply_arena
from pipeliner.passes.smem.place import place
from pipeliner.passes.smem.vthreads import private_buffers

from ..proof.rings import ring
from ..refusals import refused
from . import arena_kernels, ring_kernels, sync_kernels
from .lowering_tools import BUDGET, cuda, data, marked, ordered, prepared, run


def flat(func: Any) -> Any:
    """``func`` after the passes of the suffix that come before the arena."""
    names = [str(step.info.name) for step in suffix()]
    steps = suffix()[: names.index("pipeliner.ApplyArena")]
    return tvm.transform.Sequential(steps)(tvm.IRModule({"main": func}))["main"]


def allocations(func: Any) -> dict[str, int]:
    """Shared allocations of ``func`` and their bytes."""
    found: dict[str, int] = {}

    def visit(stmt: Any) -> None:
        if is_shared(stmt.buffer):
            found[str(stmt.buffer.name)] = buffer_bytes(stmt.buffer) or 0

    walk(func.body, tirx.AllocBuffer, visit)
    return found


def test_every_shared_buffer_becomes_dynamic() -> None:
    done, smem = place(prepared(arena_kernels.in_turn), BUDGET)
    assert 'scope="shared"' not in done.script()
    assert [b.buffer for b in smem.buffers] == ["S", "U", "V"]
    assert [b.bytes for b in smem.buffers] == [64 * 64 * 4] * 3


def test_buffers_never_alive_together_share_bytes() -> None:
    _, smem = place(prepared(arena_kernels.in_turn), BUDGET)
    first, second, third = smem.buffers
    assert first.offset == third.offset
    assert first.shares_with == ("V",)
    assert third.shares_with == ("S",)
    assert second.shares_with == ()
    assert smem.bytes == 2 * 64 * 64 * 4


def test_inside_a_loop_sharing_waits_for_need() -> None:
    func = prepared(arena_kernels.in_turn_inside_a_loop)
    _, roomy = place(func, BUDGET)
    assert roomy.bytes == 3 * 256
    assert not any(b.shares_with for b in roomy.buffers)
    _, tight = place(func, 2 * 256)
    assert tight.bytes == 2 * 256


def test_sharing_inside_a_loop_is_right() -> None:
    done, smem, _ = ordered(arena_kernels.in_turn_inside_a_loop, budget=2 * 256)
    source = data(4, 64)
    emulation = run(marked(done, smem), [source, np.full_like(source, np.nan)])
    assert not emulation.hazards, "\n".join(map(str, emulation.hazards))
    np.testing.assert_array_equal(emulation.outputs["C"], source[:, ::-1])


def test_a_ring_lives_through_its_loop() -> None:
    _, smem = place(prepared(ring_kernels.waits_first), BUDGET)
    assert smem.bytes == ring_kernels.DEPTH * 256


def test_nothing_is_placed_over_an_mbarrier() -> None:
    """One that nobody waits for is used once; its memory is an mbarrier's to the end all the same."""
    _, smem = place(prepared(ring()), BUDGET)
    places = {buffer.buffer: buffer for buffer in smem.buffers}
    assert places.keys() == {"S", "full", "empty", "spare"}
    assert not any(buffer.shares_with for buffer in places.values())


def test_over_budget_names_every_buffer_and_the_numbers() -> None:
    numbers = {"nbytes": 32768, "budget": 20000}
    with refused("smem.full", PlanError, kernel="main", **numbers) as caught:
        place(prepared(arena_kernels.in_turn), 20000)
    assert caught.value.reason["buffers"] == tuple(
        Reason("smem.buffer", buffer=name, nbytes=16384) for name in "SUV"
    )


def test_each_kernel_has_an_arena_of_its_own() -> None:
    _, smem = place(prepared(arena_kernels.two_kernels), BUDGET)
    assert [(b.buffer, b.offset, b.bytes) for b in smem.buffers] == [("S", 0, 256), ("S_1", 0, 512)]
    assert smem.bytes == 512
    source = data(64)
    emulation = run(
        arena_kernels.two_kernels, [source, np.zeros_like(source), np.zeros_like(source)]
    )
    assert not emulation.hazards
    np.testing.assert_array_equal(emulation.outputs["C"], source)


def test_rows_padded_by_strides_count() -> None:
    @T.prim_func(s_tir=True)
    def padded(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
        for tx in T.thread_binding(16, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((16, 16), "float32", scope="shared")
                for k in range(16):
                    with T.sblock("rows"):
                        T.sblock_attr({"buffer_dim_align": [[0, 0, 16, 1]]})
                        S[k, tx] = A[k, tx]
                for k in range(16):
                    C[k, tx] = S[tx, k]

    _, smem = place(prepared(padded), BUDGET)
    assert smem.bytes == 16 * 17 * 4
    source = data(16, 16)
    emulation = run(padded, [source, np.zeros_like(source)])
    np.testing.assert_array_equal(emulation.outputs["C"], source.T)


def test_alignment_of_a_buffer_is_kept() -> None:
    @T.prim_func(s_tir=True)
    def aligned(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((65,), "float32", scope="shared")
                U = T.sblock_alloc_buffer((64,), "float32", scope="shared", align=1024)
                S[tx] = A[tx]
                U[tx] = S[63 - tx]
                C[tx] = U[63 - tx] + S[tx]

    _, smem = place(prepared(aligned), BUDGET)
    places = {b.buffer: b for b in smem.buffers}
    assert places["U"].alignment == 1024
    assert places["U"].offset % 1024 == 0
    assert places["S"].offset % 128 == 0


# Virtual threads.


def test_copies_of_virtual_threads_count() -> None:
    func = prepared(sync_kernels.virtual_threads)
    assert {str(b.name) for b in private_buffers(func.body)} == {"S"}
    _, smem = place(func, BUDGET)
    assert smem.bytes == 2 * 256


# The late half.


@pytest.mark.parametrize(
    "func", [arena_kernels.in_turn, sync_kernels.virtual_threads, ring_kernels.one_slot]
)
def test_what_is_planned_is_emitted(func: Any) -> None:
    done, smem, _ = ordered(func)
    before = flat(marked(done, smem))
    assert allocations(before) == {b.buffer: b.bytes for b in smem.buffers}
    after = apply_arena(before)
    assert allocations(after) == {ARENA: smem.bytes}


def test_other_bytes_than_planned_are_our_bug() -> None:
    done, smem, _ = ordered(ring_kernels.one_slot)
    wrong = marked(done, smem).with_attr(
        "pipeliner.plan",
        str(marked(done, smem).attrs["pipeliner.plan"]).replace('"bytes": 256', '"bytes": 512'),
    )
    with pytest.raises(InternalError, match="has 256 bytes, the arena's plan has 512"):
        apply_arena(flat(wrong))


def test_cuda_has_one_dynamic_allocation_and_the_planned_offsets() -> None:
    source = cuda(arena_kernels.in_turn)
    assert len(re.findall(r"extern __shared__ [^;]*;", source)) == 1
    assert "__shared__ float" not in source.replace("extern __shared__ __align__(64) float", "")
    assert "4096)" in source  # the second buffer starts 16384 bytes, 4096 floats in


def test_storage_rewrite_finds_nothing_to_reuse() -> None:
    done, smem, _ = ordered(arena_kernels.in_turn)
    names = [str(step.info.name) for step in suffix()]
    steps = suffix()[: names.index("tirx.StorageRewrite") + 1]
    mod = tvm.transform.Sequential(steps)(tvm.IRModule({"main": marked(done, smem)}))
    assert allocations(mod["main"]) == {ARENA: smem.bytes}
