"""The short form of a kernel that is walked first: what it leaves out, and what it cannot hide."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.proof.prove import prove
from pipeliner.proof.running.execution import Execution
from pipeliner.proof.running.launched import Launched
from pipeliner.proof.running.subjects import host_and_kernels, launches, subject
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

from ..emulator.raw import lower

WARP = 32
WARPS = 4


def subject_of(lowered: Any) -> Launched:
    host, kernels = host_and_kernels(lowered)
    (launch,) = launches(host, kernels, {})
    return subject(kernels[launch.kernel], launch)


def ran(whole: Launched) -> Execution:
    machine = Execution(whole, lambda _machine, _head, iteration: iteration < 2, lambda: None)
    machine.run()
    return machine


def test_the_short_form_runs_fewer_statements_and_meets_no_hazard() -> None:
    schedule = schedule_gemm(Gemm(m=64, n=64, k=256), GemmTile(64, 64, 64))
    options = {"instruction": "wgmma", "roles": 1, "mechanism": "tma"}
    whole = subject_of(pipeliner.build(schedule, "h100", depth=2, **options).lowered)
    exact, short = ran(whole), ran(whole.short(whole.families))
    assert not exact.found
    assert not short.found
    # Warps of a warpgroup go together, and what stores the accumulators is one use of them.
    assert short.events * 4 < exact.events
    assert short.unordered == exact.unordered == set()


def chain() -> Any:
    """Each warp waits for the one before it, and all by the same statement."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((WARPS * WARP,), "int32"), C: T.Buffer((WARPS * WARP,), "int32")):
        for tx in T.thread_binding(WARPS * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((WARPS * WARP,), "int32", scope="shared")
            full = T.alloc_buffer((WARPS + 1,), "uint64", scope="shared")
            if tx == 0:
                for s in T.serial(WARPS + 1):
                    T.ptx.mbarrier.init.shared.b64(T.address_of(full[s]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            if tx < WARP:
                T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[0]))
            T.cuda.mbarrier_wait(T.address_of(full[tx // WARP]), 0)
            S[tx] = A[tx]
            T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[tx // WARP + 1]))
            if tx >= WARP:
                C[tx] = S[tx - WARP]

    return main


def test_warps_that_cannot_go_together_are_run_one_by_one() -> None:
    lowered = lower(chain())
    whole = subject_of(lowered)
    assert [hazard.kind for hazard in ran(whole.short(())).found] == ["deadlock"]
    assert prove(lowered).ok


def one_place(*, own_rows: bool) -> Any:
    """All warps write the same row in one statement; or each its own row."""
    rows = WARPS if own_rows else 1

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((WARPS * WARP,), "int32"), C: T.Buffer((WARPS * WARP,), "int32")):
        for tx in T.thread_binding(WARPS * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((rows, WARP), "int32", scope="shared")
            full = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(full[0]), T.uint32(WARPS * WARP))
            T.tvm_storage_sync("shared")
            S[tx // WARP % rows, tx % WARP] = A[tx]
            T.ptx.mbarrier.arrive.shared.b64(T.address_of(full[0]))
            T.cuda.mbarrier_wait(T.address_of(full[0]), 0)
            C[tx] = S[0, tx % WARP]

    return main


@pytest.mark.parametrize("own_rows", [True, False])
def test_warps_that_write_one_place_in_one_statement_race(own_rows: bool) -> None:
    found = prove(lower(one_place(own_rows=own_rows))).refuted
    if own_rows:
        assert found is None
    else:
        assert found is not None
        assert found.hazard.kind == "race"


@pytest.mark.deep("rings of one CTA, in test_rings")
def test_a_copy_to_two_ctas_is_counted_in_one_phase() -> None:
    """Who releases a slot of the other CTA knows that its producer has waited, by its copy."""
    schedule = schedule_gemm(Gemm(m=256, n=64, k=512), GemmTile(128, 64, 64))
    options = {"instruction": "wgmma", "roles": 1, "mechanism": "tma", "cluster": 2}
    (found,) = pipeliner.build(schedule, "h100", depth=2, **options).proof.kernels
    assert found.ok, found.statement
    assert [(loop.least, loop.only) for loop in found.loops] == [(0, "")]
