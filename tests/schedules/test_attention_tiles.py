"""Tiles of attention: which are compared, what the closed form says of them, which one is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeliner import pipeline, plan_of
from pipeliner.errors import WorkloadError
from pipeliner.machine import A100, H100, machine_for
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate, workload_key, workload_of
from pipeliner.schedules import (
    Attention,
    AttentionTile,
    Gemm,
    GemmTile,
    default_tile,
    schedule_attention,
)
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.compared import compare_loops
from pipeliner.schedules.loops.attention_cut import CUT_SHORT
from pipeliner.schedules.loops.space import attention_tiles
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.smaller import Needs, smaller
from pipeliner.targets import cuda_target
from pipeliner.tuning.space import point_of
from pipeliner.values.facts import CopyInfo, KernelInfo
from tests.refusals import gives, refused

from .test_gemm import prefix

LLAMA = Attention(1, 16, 4096, 4096, 128)

CASES = {
    "even": (LLAMA, AttentionTile(128, 128)),
    "ragged": (Attention(2, 4, 200, 100, 72, kv_heads=2, dtype="bf16"), AttentionTile(64, 48)),
    "few-queries": (Attention(2, 8, 3, 4096, 128, kv_heads=2), AttentionTile(64, 64, 16, True)),
    "one-query": (Attention(2, 8, 1, 4096, 128, kv_heads=2), AttentionTile(64, 128, 1, True)),
    "one-query-of-all": (Attention(1, 8, 1, 1000, 72, kv_heads=8), AttentionTile(64, 96, 3)),
    "as-many-rows-as-a-tile": (
        Attention(1, 64, 2, 4096, 64, kv_heads=2),
        AttentionTile(64, 64, 5, True),
    ),
    "causal": (replace(LLAMA, causal=True), AttentionTile(128, 176)),
    "persistent": (LLAMA, AttentionTile(128, 128, persistent=132)),
    "persistent, causal": (replace(LLAMA, causal=True), AttentionTile(128, 128, persistent=100)),
    "as many CTAs as tiles": (LLAMA, AttentionTile(128, 128, persistent=512)),
    "by tokens": (
        Attention(2, 4, 200, 100, 72, kv_heads=2, layout="BSHD", within=(12, 12, 0)),
        AttentionTile(64, 48),
    ),
    "one query by tokens": (
        Attention(2, 8, 1, 600, 64, kv_heads=2, layout="BSHD", within=(24, 0, 24)),
        AttentionTile(64, 48, 3, True),
    ),
    "few queries of a cache": (
        Attention(2, 8, 3, 600, 64, kv_heads=2, within=(5, 1000, 1000)),
        AttentionTile(64, 48, 2, True),
    ),
    "of a cache": (
        Attention(2, 4, 200, 100, 64, layout="BSHD", kv_layout="BHSD", within=(0, 300, 0)),
        AttentionTile(64, 48),
    ),
}


def comparable(info: KernelInfo) -> KernelInfo:
    """Without alignment of more than 16 bytes, what clusters share, and steps of no fixed number.

    Recognition samples what a persistent CTA's mean number of steps is.
    """

    def capped(op: object) -> object:
        if not isinstance(op, CopyInfo):
            return op
        short = CUT_SHORT if op.no_tma else ""  # in other words than recognition's
        return replace(op, aligned=min(op.aligned, 8), multicast=(), no_tma=short)

    (loop,) = info.loops
    ops = tuple(map(capped, loop.ops))
    before = tuple(map(capped, info.before))
    mean = (
        loop.mean_trip if loop.mean_trip is None or loop.outer == 1 else round(loop.mean_trip, -1)
    )
    told = replace(loop, ops=ops, trip_text="", mean_trip=mean)
    return replace(info, loops=(told,), before=before)


@pytest.mark.parametrize("case", CASES)
def test_the_closed_form_is_what_recognition_finds(case: str) -> None:
    attention, tile = CASES[case]
    _, facts = recognise(prefix(schedule_attention(attention, tile).mod))
    found, closed = facts.info, kernel_info(attention, tile)
    assert comparable(found) == comparable(closed)


def test_steps_of_a_causal_tile_are_those_of_the_average() -> None:
    (whole,) = kernel_info(LLAMA, AttentionTile(128, 128)).loops
    (causal,) = kernel_info(replace(LLAMA, causal=True), AttentionTile(128, 128)).loops
    assert (whole.trip, whole.mean_trip) == (32, None)
    assert (causal.trip, causal.mean_trip) == (None, 16.5)
    few = replace(LLAMA, keys=200, causal=True)
    tiles = -(-few.queries // 128)
    mean = kernel_info(few, AttentionTile(128, 128)).loops[0].mean_trip
    assert mean == (1 + 2 * (tiles - 1)) / tiles


@pytest.mark.parametrize("keys", [200, 4096, 16384])
def test_the_longest_tile_is_found(keys: int) -> None:
    """Also of 128 tiles, of which recognition samples 64."""
    causal = Attention(1, 2, keys, keys, 128, causal=True)
    tile = AttentionTile(128, 128)
    _, facts = recognise(prefix(schedule_attention(causal, tile).mod))
    (found,), (closed,) = facts.info.loops, kernel_info(causal, tile).loops
    assert found.most_trip == closed.most_trip == -(-keys // 128)
    whole = kernel_info(replace(causal, causal=False), tile).loops[0]
    assert whole.most_trip is None


@pytest.mark.parametrize("machine", [A100, H100], ids=lambda machine: machine.name)
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_the_tile_of_the_least_predicted_time_is_taken(machine: object, dim: int) -> None:
    attention = replace(LLAMA, dim=dim)
    times = compare_loops(attention, machine)
    assert len(times) >= 4
    assert times[default_tile(attention, machine)] == min(times.values())


def test_tiles_are_no_larger_than_what_they_cut() -> None:
    assert {tile.n for tile in attention_tiles(replace(LLAMA, keys=45), H100)} == {48}
    assert {tile.m for tile in attention_tiles(replace(LLAMA, queries=45), H100)} == {64}
    assert {tile.m for tile in attention_tiles(replace(LLAMA, queries=65), H100)} == {64, 128}
    large = max(attention_tiles(replace(LLAMA, dim=256), H100), key=lambda tile: tile.n)
    assert (large.m + 2 * large.n) * 256 * 2 <= H100.smem_per_cta


@pytest.mark.parametrize("heads", [(1, 8), (8, 8), (16, 8), (32, 1)], ids=str)
def test_few_queries_split_their_keys_among_all_sms(heads: tuple[int, int]) -> None:
    batch, shared = heads
    for keys in (8192, 65536):
        attention = Attention(batch, 4 * shared, 1, keys, 128, kv_heads=shared)
        tile = default_tile(attention, H100)
        assert tile.grouped
        assert 0.9 * H100.sms < batch * shared * tile.splits <= H100.sms
        assert default_tile(attention, H100, splits=2).splits == 2
    assert not default_tile(replace(attention, causal=True), H100).grouped


@pytest.mark.parametrize(("target", "batch"), [("a100", 8), ("rtx4090", 1), ("rtx5090", 8)])
def test_without_warpgroups_few_queries_are_a_tile_of_one_warp(target: str, batch: int) -> None:
    """What is chosen is pipelined by mma.sync as it is predicted, the weights in registers."""
    attention = Attention(batch, 32, 1, 16384, 128, kv_heads=8)
    tile = default_tile(attention, machine_for(cuda_target(target)))
    assert (tile.m, tile.grouped) == (16, True)
    plan = plan_of(pipeline(schedule_attention(attention, tile), target))
    assert [one.operand for one in plan.matmuls] == ["shared", "computed"]
    assert [one.warps for one in plan.matmuls] == [(1, 1), (1, 1)]
    (loop,) = plan.loops
    assert loop.pipelined
    more = default_tile(replace(attention, queries=20), machine_for(cuda_target(target)))
    assert more.m >= 64


@pytest.mark.parametrize("target", ["a100", "rtx4090"])
def test_without_warpgroups_what_is_chosen_of_many_queries_is_pipelined(target: str) -> None:
    tile = default_tile(LLAMA, machine_for(cuda_target(target)))
    plan = plan_of(pipeline(schedule_attention(LLAMA, tile), target))
    assert [one.operand for one in plan.matmuls] == ["shared", "computed"]
    assert [one.warps[1] for one in plan.matmuls] == [1, 1]
    assert plan.loops[0].pipelined


def test_few_steps_are_taken_by_a_cta_for_each_sm() -> None:
    """What a tile waits for at its ends counts more than what its steps take longer."""
    few, many = Attention(16, 16, 1024, 1024, 128), Attention(4, 16, 4096, 4096, 128)
    assert default_tile(few, H100).persistent == H100.sms
    assert default_tile(many, H100).persistent is None
    assert any(isinstance(t, AttentionTile) and t.persistent for t in compare_loops(many, H100))
    assert default_tile(replace(few, causal=True), H100).persistent is None
    assert default_tile(Attention(1, 8, 1024, 1024, 128), H100).persistent is None
    assert default_tile(few, A100).persistent is None


def test_the_plan_says_why_keys_are_split() -> None:
    attention = Attention(1, 32, 1, 8192, 128, kv_heads=8)
    (kernel,) = kernel_info(attention, default_tile(attention, H100)).elementwise
    assert gives(kernel.note, "split.combined", splits=16)
    assert gives(kernel.note, "split.keys", ctas=8, sms=132, splits=16)


def test_steps_of_split_keys_are_short_where_enough_is_in_flight() -> None:
    """Three slots of 64 keys of 128 elements suffice; of shorter heads they do not."""
    attention = Attention(1, 32, 1, 16384, 128, kv_heads=8)
    tile = default_tile(attention, H100)
    assert (tile.n, tile.splits) == (64, 16)
    assert gives(kernel_info(attention, tile).elementwise[0].note, "tile.short_steps", other=128)
    assert default_tile(replace(attention, dim=64), H100).n > 64


def test_records_know_attention() -> None:
    attention = Attention(2, 16, 512, 512, 64, kv_heads=4, causal=True, dtype="bf16")
    assert workload_of(workload_key(attention)) == attention
    for cut in (AttentionTile(128, 96), AttentionTile(64, 96, 4, grouped=True)):
        candidate = Candidate(cut, Request(depth=2))
        assert Candidate.from_json(candidate.to_json()) == candidate
    candidate = Candidate(AttentionTile(128, 96), Request(depth=2))
    assert point_of(attention, H100, candidate).predicted_us > 0


def test_a_smaller_one_has_every_kind_of_tile() -> None:
    tile = AttentionTile(128, 64)
    small, cut = next(smaller(Attention(4, 32, 4000, 4096, 64, kv_heads=8), tile, Needs(steps=5)))
    assert small == Attention(1, 8, 160, 320, 64, kv_heads=2)
    assert cut == tile
    causal = Attention(4, 16, 4096, 4096, 128, causal=True)
    small, _ = next(smaller(causal, tile, Needs(steps=5)))
    assert small == Attention(1, 2, 384, 384, 128, causal=True)
    walked = replace(tile, persistent=132)
    small, cut = next(smaller(causal, walked, Needs(steps=5)))
    assert small == Attention(1, 2, 384, 384, 128, causal=True)
    assert cut.persistent == 4
    split, cut = Attention(16, 32, 1, 8200, 128, kv_heads=8), AttentionTile(64, 64, 8, True)
    small, _ = next(smaller(split, cut, Needs(steps=3)))
    assert small == Attention(1, 8, 1, 21 * 64 + 8, 128, kv_heads=2)


def test_what_no_tile_can_do() -> None:
    with refused("split.persistent", WorkloadError, workload=LLAMA.name, splits=2):
        schedule_attention(LLAMA, AttentionTile(64, 64, 2, persistent=4))
    causal = replace(LLAMA, causal=True)
    with refused("split.causal", WorkloadError, workload=causal.name):
        default_tile(causal, H100, splits=2)
    with refused("split.causal", WorkloadError):
        schedule_attention(causal, AttentionTile(64, 64, grouped=True))
    few = AttentionTile(64, 64, splits=65)
    with refused("split.few_tiles", WorkloadError, splits=65, tiles=64, size=64):
        schedule_attention(LLAMA, few)
    with refused("split.many_terms", WorkloadError, splits=129, most=128):
        kernel_info(replace(LLAMA, keys=65536), AttentionTile(64, 64, splits=129))
    for spec, tile in ((LLAMA, GemmTile(64, 64, 64)), (Gemm(64, 64, 64), AttentionTile(64, 64))):
        with refused("tile.kind", WorkloadError):
            scheduled(spec, tile)
        with refused("tile.kind", WorkloadError):
            kernel_info(spec, tile)
    with refused("tile.none", WorkloadError):
        default_tile(Attention(1, 1, 64, 64, 2048), H100)
