"""Each kind of hazard in a pipelined kernel names its statements: origin, slot, iteration, CUDA."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.api import build
from pipeliner.diagnostics import Reason
from pipeliner.emulator import Hazard
from pipeliner.emulator.lower import is_device_function
from pipeliner.kernel.building import pipeline_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.passes import carry_out
from pipeliner.passes.ir.named_pass import Pass
from pipeliner.plan import SmemPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, schedule_gemm
from pipeliner.schedules.tiles import GemmTile
from pipeliner.values.origin import Origin

from .edits import Broken, Edit, only_for, removed, shifted

GEMM = Gemm(m=32, n=32, k=96, dtype="float16")


@cache
def gemm() -> Kernel:
    func = schedule_gemm(GEMM, GemmTile(32, 32, 16))
    return build(pipeline_with(func, "sm_80", Request(depth=3, warps=(2, 2))), "sm_80")


def arguments() -> list[Any]:
    return [*GEMM.inputs(0), np.zeros((32, 32), np.float16)]


def broken(edit: Edit, op: str, **fields: Any) -> Broken:
    """The GEMM with ``edit`` made where the origin has ``op`` and the fields."""

    def wanted(origin: Origin) -> bool:
        return origin.op == op and all(getattr(origin, k) == v for k, v in fields.items())

    return Broken(gemm(), wanted, edit)


def find(case: Broken, kind: str, op: str, **options: Any) -> Hazard:
    """The first hazard of a kind at an op."""
    hazards = case.run(*arguments(), **options).hazards
    matching = [h for h in hazards if h.kind == kind and h.site.origin and h.site.origin.op == op]
    assert matching, "\n".join(map(str, hazards))
    return matching[0]


def assert_told(hazard: Hazard, case: Broken) -> None:
    """The text has both statements with origin and the very line of the CUDA."""
    text, source = str(hazard), case.lines.source.splitlines()
    for site in (hazard.site, hazard.other):
        if site is None:
            continue
        assert site.origin is not None
        assert str(site.origin) in text
        assert site.cuda is not None
        assert site.line == site.cuda.first
        assert site.cuda.code.splitlines()[0] == source[site.cuda.first - 1]
        assert f"CUDA line {site.line}: " in text
    plain = json.loads(json.dumps(hazard.as_dict()))
    assert (plain["kind"], plain["slot"], plain["text"]) == (hazard.kind, hazard.slot, text)
    assert plain["site"]["cuda"]["first"] == hazard.site.line


def assert_at(hazard: Hazard, op: str, instruction: str, iteration: int, slot: int) -> None:
    """The site is of ``op``, on an iteration and its slot, printed as the instruction."""
    site = hazard.site
    assert site.origin is not None
    assert site.cuda is not None
    assert (site.origin.op, site.origin.iteration) == (op, str(iteration))
    assert f"iteration {iteration}" in str(hazard)
    assert hazard.slot == slot
    assert f"slot {slot}" in hazard.title
    assert instruction in site.cuda.code


LOAD_A = "matmul_update_o.k0.a"


def test_reading_before_arrival() -> None:
    case = broken(removed, "A_shared.wait", phase="steady")
    hazard = find(case, "read-before-arrival", LOAD_A)
    assert_told(hazard, case)
    assert_at(hazard, LOAD_A, "ldmatrix", iteration=1, slot=1)
    copy = hazard.other
    assert copy is not None
    assert copy.origin is not None
    assert copy.cuda is not None
    assert (copy.origin.op, copy.origin.stage, copy.origin.phase) == ("A_shared", 0, "prologue")
    assert copy.origin.iteration == "1"
    assert "cp_async" in copy.cuda.code
    assert hazard.buffer == "A_shared"
    assert "A_shared[1]" in str(hazard)


def test_writing_into_a_slot_still_read() -> None:
    case = broken(removed, "A_shared.barrier", phase="steady")
    hazard = find(case, "write-while-read", "A_shared")
    assert_told(hazard, case)
    assert_at(hazard, "A_shared", "cp_async", iteration=3, slot=0)
    load = hazard.other
    assert load is not None
    assert load.origin is not None
    assert (load.origin.op, load.origin.iteration) == (LOAD_A, "0")
    assert hazard.site.iteration == (("k_0", 0),)
    assert "at k_0 = 0" in str(hazard)


def test_a_race_between_threads() -> None:
    case = broken(removed, f"{LOAD_A}.barrier", phase="steady")
    hazard = find(case, "race", LOAD_A)
    assert_told(hazard, case)
    assert_at(hazard, LOAD_A, "ldmatrix", iteration=1, slot=1)
    assert len(set(hazard.threads)) == 2
    assert f"thread {hazard.threads[0]} against thread {hazard.threads[1]}" in str(hazard)
    assert "CTA (0, 0, 0)" in str(hazard)


def test_reading_what_nobody_wrote() -> None:
    case = broken(removed, "A_shared", phase="prologue", iteration="1")
    hazard = find(case, "uninitialised-read", LOAD_A)
    assert_told(hazard, case)
    assert_at(hazard, LOAD_A, "ldmatrix", iteration=1, slot=1)
    assert hazard.other is None


def test_reading_out_of_bounds() -> None:
    case = broken(shifted("A", 10**6), "A_shared", phase="prologue", iteration="1")
    hazard = find(case, "out-of-bounds", "A_shared")
    assert_told(hazard, case)
    assert hazard.buffer == "A"
    assert "iteration 1, A_shared[1]" in str(hazard)
    assert hazard.offset >= 2 * 10**6


def test_a_copy_to_a_misaligned_address() -> None:
    case = broken(shifted("A", 1), "A_shared", phase="steady")
    hazard = find(case, "misaligned", "A_shared")
    assert_told(hazard, case)
    assert "iteration 3, A_shared[0]" in str(hazard)
    assert hazard.detail == Reason("hazard.source_alignment", nbytes=16)


def test_a_barrier_that_some_threads_miss() -> None:
    (func,) = [f for f in gemm().lowered.functions.values() if is_device_function(f)]
    case = broken(only_for(32)(func), f"{LOAD_A}.barrier", phase="steady")
    hazard = find(case, "barrier-divergence", f"{LOAD_A}.barrier")
    assert_told(hazard, case)
    assert hazard.site.cuda is not None
    assert "__syncthreads" in hazard.site.cuda.code
    assert "RAW on 'A_shared'" in str(hazard)


# The arena.


@T.prim_func(s_tir=True)
def in_turn(A: T.Buffer((64,), "float32"), C: T.Buffer((2, 64), "float32")):
    """Two buffers that are never alive together; alone, neither is written where it is read."""
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("kernel"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            V = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            S[tx] = A[tx]
            C[0, tx] = S[63 - tx]
            V[tx] = A[tx] * T.float32(2)
            C[1, tx] = V[63 - tx]


def row_and_results() -> tuple[Any, Any]:
    return np.arange(64, dtype=np.float32), np.zeros((2, 64), np.float32)


def aliased(case: Any, *arrays: Any) -> Hazard:
    hazards = (
        case.run(*arrays).hazards if isinstance(case, Broken) else case.emulate(*arrays).hazards
    )
    found = [h for h in hazards if h.kind == "aliasing"]
    assert found, "\n".join(map(str, hazards))
    return found[0]


def assert_names_both_lives(hazard: Hazard, buffers: set[str]) -> None:
    assert {life.buffer for life in hazard.lives} == buffers
    text = str(hazard)
    for life in hazard.lives:
        assert re.search(rf"{life.buffer} .*lives from .*CUDA line \d+.* to .*CUDA line \d+", text)
        assert life.first.line is not None
        assert life.last.line is not None
        assert life.first.line < life.last.line
    assert hazard.buffer in buffers


def test_the_arena_without_the_barrier_that_orders_its_reuse() -> None:
    kernel = build(pipeline_with(in_turn, "sm_80", Request()), "sm_80")
    shared = {b.buffer: b.shares_with for b in kernel.plan.smem.buffers}
    assert shared == {"S": ("V",), "V": ("S",)}
    case = Broken(kernel, lambda origin: "in the same bytes" in origin.reason, removed)
    hazard = aliased(case, *row_and_results())
    assert_told(hazard, case)
    assert_names_both_lives(hazard, {"S", "V"})
    assert all(life.nbytes == 64 * 4 for life in hazard.lives)
    assert len({life.offset for life in hazard.lives}) == 1
    assert "aliasing on V, byte" in str(hazard)


def test_the_whole_arena_is_right_as_it_is() -> None:
    kernel = build(pipeline_with(in_turn, "sm_80", Request()), "sm_80")
    source, results = row_and_results()
    outcome = kernel.emulate(source, results)
    assert outcome.hazards == ()
    np.testing.assert_array_equal(outcome.outputs["C"], [source[::-1], 2 * source[::-1]])


def test_tvms_reuse_of_shared_memory_after_our_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an arena of ours TVM lets buffers share space when the barriers are placed."""
    nowhere = Pass("Place", lambda func, *_, **__: (func, SmemPlan()))
    monkeypatch.setattr(carry_out, "place", nowhere)
    kernel = build(pipeline_with(in_turn, "sm_80", Request()), "sm_80")
    assert kernel.plan.smem.buffers == ()
    hazard = aliased(kernel, *row_and_results())
    assert_names_both_lives(hazard, {"S", "V"})
    assert hazard.other is not None
    assert hazard.other.line is not None
