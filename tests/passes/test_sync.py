"""Barriers: enough of them (emulated, no hazard), none too many (each one is missed), none misplaced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError

from ..refusals import refused, the
from . import arena_kernels, ring_kernels, sync_kernels
from .lowering_tools import barriers, data, marked, ordered, run, text, without_barrier

BARRIER = 'T.tvm_storage_sync("shared", T.bool(False), -1)'
REVERSED_BY_TRIPS = [
    ring_kernels.waits_first,
    ring_kernels.one_slot,
    ring_kernels.stores_ahead,
    ring_kernels.guard_and_clamp,
]


def reversed_rows(rows: int, columns: int = 64) -> tuple[list[Any], np.ndarray]:
    source = data(rows, columns)
    return [source, np.full_like(source, np.nan)], source[:, ::-1]


def assert_right(emulation: Any, expected: np.ndarray) -> None:
    assert not emulation.hazards, "\n".join(map(str, emulation.hazards))
    np.testing.assert_allclose(emulation.outputs["C"], expected, rtol=1e-5)


# Steady loops.


@pytest.mark.parametrize("func", REVERSED_BY_TRIPS, ids=lambda f: str(f.attrs["global_symbol"]))
@pytest.mark.parametrize("trips", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("timing", ["late", "early"])
@pytest.mark.part(2)
def test_every_trip_count_is_right(func: Any, trips: int, timing: str) -> None:
    args, expected = reversed_rows(trips)
    assert_right(run(func, [*args, trips], timing), expected)


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("timing", ["late", "early"])
def test_loads_ahead_of_their_step_are_right(trips: int, timing: str) -> None:
    args, flipped = reversed_rows(trips)
    assert_right(run(ring_kernels.fragments_ahead, [*args, trips], timing), args[0] + flipped)


@pytest.mark.parametrize(
    "func", [ring_kernels.waits_first, ring_kernels.fragments_ahead, ring_kernels.guard_and_clamp]
)
def test_one_barrier_in_a_steady_step(func: Any) -> None:
    _, _, sync = ordered(func)
    assert sync.barriers_in_steady == 1


@pytest.mark.parametrize("trips", [1, 4, 9])
@pytest.mark.parametrize("timing", ["late", "early"])
def test_copies_that_each_thread_reads_itself_need_no_barrier(trips: int, timing: str) -> None:
    _, _, sync = ordered(ring_kernels.own_copies)
    assert sync.barriers == 0
    source, _ = reversed_rows(trips)
    assert_right(run(ring_kernels.own_copies, [*source, trips], timing), source[0])


def test_the_barrier_of_a_steady_step_follows_the_wait() -> None:
    done, _, _ = ordered(ring_kernels.waits_first)
    lines = text(done)
    steady = next(i for i, line in enumerate(lines) if line.startswith("for k in"))
    assert "wait_group" in lines[steady + 1]
    assert lines[steady + 2] == BARRIER


def test_loads_ahead_need_their_barrier_between_wait_and_load() -> None:
    done, _, sync = ordered(ring_kernels.fragments_ahead)
    lines = text(done)
    waits = [i for i, line in enumerate(lines) if "wait_group" in line]
    assert [lines[i + 1] for i in waits] == [BARRIER, BARRIER]
    assert sync.barriers == 2


def barrier_for(kind: str) -> Reason:
    """The reason of a barrier for two accesses of S."""
    return Reason("sync.barrier", conflict=Reason("sync.conflict", kind=kind, buffer="S"))


def test_one_slot_needs_two_barriers_a_step() -> None:
    _, _, sync = ordered(ring_kernels.one_slot)
    assert sync.barriers == 2
    assert sync.reasons == (barrier_for("WAR"), barrier_for("RAW"))


def test_waits_are_listed() -> None:
    _, _, sync = ordered(ring_kernels.waits_first)
    assert sync.waits == ("wait_group 2",)


def test_a_loop_that_may_not_run_leaves_what_came_before_it_unordered() -> None:
    done, _, sync = ordered(ring_kernels.stores_ahead)
    lines = text(done)
    assert sync.barriers == 2
    assert lines[-2] == BARRIER
    assert lines[-1].startswith("C[n - 1")


# Control flow.


def test_barriers_stand_under_a_uniform_condition() -> None:
    source = data(64, 64)
    expected = np.where(np.arange(64)[:, None] < 41, source[:, ::-1], 0)
    emulation = run(sync_kernels.uniform_condition, [source, np.zeros_like(source), 41])
    assert_right(emulation, expected)


def test_a_register_written_alike_by_every_thread_is_uniform() -> None:
    source = data(16, 64)
    emulation = run(sync_kernels.flag_in_register, [source, np.zeros_like(source), 9])
    assert_right(emulation, np.where(np.arange(16)[:, None] < 5, source[:, ::-1], 0))


def test_a_barrier_for_a_divergent_reader_stands_before_the_condition() -> None:
    done, _, _ = ordered(sync_kernels.divergent_reader)
    lines = text(done)
    condition = next(i for i, line in enumerate(lines) if line.startswith("if "))
    assert lines[condition - 1] == BARRIER
    source = data(16, 64)
    expected = np.where(np.arange(64) < 32, source[:, ::-1], 0)
    assert_right(run(sync_kernels.divergent_reader, [source, np.zeros_like(source)]), expected)


def test_a_condition_of_threads_tells_apart_what_they_touch() -> None:
    """Without it thread 40 would touch what thread 8 does."""
    done, _, sync = ordered(sync_kernels.divergent_halves)
    assert sync.barriers == 2
    source = data(16, 64)
    sums = source[:, :32] + source[:, 32:]
    expected = np.concatenate([sums, source[:, 32:]], axis=1)[:, ::-1]
    assert_right(run(sync_kernels.divergent_halves, [source, np.zeros_like(source)]), expected)
    assert barriers(done) == 2


@pytest.mark.parametrize(
    ("func", "where"),
    [
        (
            sync_kernels.divergent_exchange,
            Reason("sync.condition", condition="threadIdx_x < 32"),
        ),
        (sync_kernels.divergent_loop, Reason("sync.loop", var="k")),
    ],
)
def test_a_barrier_that_some_threads_miss_is_refused(func: Any, where: Reason) -> None:
    with refused("sync.divergent", LoweringError, where=where) as caught:
        ordered(func)
    assert the("sync.conflict", [caught.value.reason])["buffer"] == "S"


def test_a_reader_in_an_inner_loop_has_its_barrier_outside() -> None:
    done, _, sync = ordered(sync_kernels.read_before_inner_loop)
    lines = text(done)
    inner = next(i for i, line in enumerate(lines) if line.startswith("for i in"))
    assert sync.barriers == 2
    assert lines.index(BARRIER, inner - 3) < inner
    source = data(16, 64)
    expected = np.repeat(source.sum(1, keepdims=True), 64, 1)
    emulation = run(sync_kernels.read_before_inner_loop, [source, np.full_like(source, np.nan)])
    assert not emulation.hazards
    np.testing.assert_allclose(emulation.outputs["C"], expected, rtol=1e-4, atol=1e-5)


def test_virtual_threads_pass_a_barrier_once() -> None:
    done, smem, _ = ordered(sync_kernels.virtual_threads)
    source = data(8, 128)
    expected = np.concatenate([source[:, 63::-1], source[:, :63:-1]], axis=1)
    emulation = run(marked(done, smem), [source, np.full_like(source, np.nan)])
    assert_right(emulation, expected)
    assert emulation.stats[0].counts["barriers"] == 16


# What touches what.


def test_what_a_thread_reads_back_itself_needs_no_barrier() -> None:
    _, _, sync = ordered(sync_kernels.own_elements)
    assert sync.barriers == 0


def test_disjoint_elements_need_no_barrier_until_they_meet() -> None:
    done, _, sync = ordered(sync_kernels.disjoint_halves)
    assert sync.barriers == 1
    assert text(done)[-2] == BARRIER


def test_two_threads_that_write_one_element_are_ordered() -> None:
    _, _, sync = ordered(sync_kernels.other_mapping)
    assert sync.reasons == (barrier_for("WAW"),)


def test_barriers_of_the_user_count() -> None:
    done, _, sync = ordered(sync_kernels.barriers_of_the_user)
    assert barriers(done) == sync.barriers == 2
    assert sync.reasons == ()


def test_atomics_are_ordered_against_the_rest_alone() -> None:
    _, _, sync = ordered(sync_kernels.histogram)
    assert sync.barriers == 2
    keys = np.random.default_rng(0).integers(0, 64, (16, 64)).astype("int32")
    emulation = run(sync_kernels.histogram, [keys, np.zeros(64, "int32")])
    assert_right(emulation, np.bincount(keys.ravel(), minlength=64))


def test_buffers_that_share_bytes_are_ordered() -> None:
    done, smem, sync = ordered(arena_kernels.in_turn)
    assert {"S", "V"} in [{b.buffer, *b.shares_with} for b in smem.buffers]
    assert sync.barriers == 3
    source = data(64, 64)
    emulation = run(marked(done, smem), [source, np.full_like(source, np.nan)])
    assert_right(emulation, source[:, ::-1] + 1)


def test_a_reduction_between_uses_is_right() -> None:
    source = np.abs(data(4, 64)) + 1
    expected = source / source.sum(1, keepdims=True)
    assert_right(
        run(arena_kernels.reduction_between, [source, np.full_like(source, np.nan)]), expected
    )


def test_each_kernel_of_a_function_is_ordered() -> None:
    _, _, sync = ordered(arena_kernels.two_kernels)
    assert sync.barriers == 2


# None too many.

NECESSARY = [
    (ring_kernels.waits_first, 9),
    (ring_kernels.fragments_ahead, 9),
    (ring_kernels.one_slot, 4),
    (ring_kernels.stores_ahead, 4),
    (sync_kernels.divergent_reader, 0),
    (sync_kernels.divergent_halves, 0),
    (sync_kernels.read_before_inner_loop, 0),
    (sync_kernels.other_mapping, 0),
    (arena_kernels.in_turn, 0),
]


@pytest.mark.parametrize(
    ("func", "trips"), NECESSARY, ids=[str(f.attrs["global_symbol"]) for f, _ in NECESSARY]
)
@pytest.mark.part(2)
def test_every_barrier_is_missed_when_it_is_gone(func: Any, trips: int) -> None:
    done, smem, sync = ordered(func)
    assert sync.barriers == barriers(done) > 0
    rows, columns = (trips, 64) if trips else map(int, func.params[0].shape)
    source = data(rows, columns)
    args = [source, np.zeros_like(source), *([trips] if trips else [])]
    assert not run(marked(done, smem), args).hazards
    for number in range(sync.barriers):
        broken = marked(without_barrier(done, number), smem)
        hazards = [h for timing in ("late", "early") for h in run(broken, args, timing).hazards]
        assert hazards, f"barrier {number} of {sync.reasons} is redundant"
