"""Where results leave through shared memory by TMA: in which boxes, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeliner.choice.mapped import map_kernel
from pipeliner.diagnostics import Reason
from pipeliner.diagnostics.reason import each_of
from pipeliner.errors import PlanError
from pipeliner.machine import H100, H200
from pipeliner.mechanisms.stores import split_sector_cycles, uncoalesced_cycles
from pipeliner.mechanisms.stores.cycles import (
    SPLIT_SECTOR_CYCLES,
    UNALIGNED_STORE_CYCLES,
)
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate
from pipeliner.schedules import GatedGemm, Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.space.ranking import choose
from pipeliner.values.facts import StoreInfo
from tests.refusals import refused, says, the

from .kernels import WGMMA, gemm
from .kernels import by_wgmma as planned


def storing(m=128, n=256, k=64, *, info=None, request=WGMMA, **changes) -> KernelPlan:
    values = {"op": "store", "acc": "acc", "dst": "C", "dtype": "float16", "dst_strides": (4096, 1)}
    store = StoreInfo(**{**values, **changes})
    return choose(replace(info or gemm(m, n, k), stores=(store,)), H100, request)


@pytest.mark.parametrize(
    ("m", "n", "k", "box", "slots", "depth"),
    [
        (128, 256, 64, (64, 64), 2, 4),
        (256, 128, 64, (128, 64), 1, 4),  # two boxes would leave room for three slots of 48 KiB
        (256, 192, 64, (128, 64), 1, 3),  # four slots of 56 KiB leave room for none
        (128, 96, 64, (64, 64), 2, 5),  # the second box has 32 columns
        (128, 168, 64, (64, 64), 1, 5),  # the third box has 40 columns
        (64, 48, 64, (64, 48), 1, 6),  # short steps: loads take as long as five of them
        (88, 128, 64, (88, 64), 1, 5),  # A and B swapped
    ],
)
def test_boxes_of_results_share_the_memory_with_rings(m, n, k, box, slots, depth):
    plan = storing(m, n, k)
    (store,) = plan.stores
    assert (store.mechanism, store.box, store.slots) == ("tma", box, slots)
    groups = plan.role("consumer").threads // 128
    assert store.bytes == groups * slots * box[0] * 128  # rows of 48 columns have the pitch of 64
    assert plan.mbarriers[0].depth == depth
    assert plan.mbarriers[0].bytes * depth + store.bytes < H100.smem_per_cta


@pytest.mark.parametrize(
    ("tile", "changes", "why"),
    [
        ((128, 256), {"no_tma": "it is crooked"}, "it is crooked"),
        ((128, 256), {"dst": "A"}, Reason("store.copied", buffer="A")),
        (
            (128, 256),
            {"dtype": "float32"},
            Reason("store.dtype", nbytes=2, buffer="C", dtype="float32"),
        ),
        (
            (128, 256),
            {"dst_strides": (1,)},
            Reason("box.rank", most=5, buffer="C", rank=1),
        ),
        ((320, 32), {}, Reason("store.rows", most=256, rows=320)),
    ],
)
def test_where_results_are_no_boxes_they_leave_from_registers(tile, changes, why):
    (store,) = storing(*tile, **changes).stores
    assert (store.mechanism, store.bytes) == ("direct", 0)
    assert the("store.direct", [store.reason])["why"] == why
    with refused("store.tma", PlanError, store="store", why=why):
        storing(*tile, request=Request(instruction="wgmma", store="tma"), **changes)


def test_where_rows_begin_inside_vectors_threads_write_them() -> None:
    (store,) = storing(128, 256, dst_strides=(4100, 1)).stores
    assert (store.mechanism, store.bytes) == ("coalesced", 32768)
    why = Reason("box.stride", multiple=16, stride=8200, dimension=0, buffer="C")
    assert the("store.not_by_tma", [store.reason])["why"] == why
    asked = Request(instruction="wgmma", store="direct")
    assert storing(128, 256, request=asked, dst_strides=(4100, 1)).stores[0].bytes == 0
    with refused("store.tma", PlanError, store="store", why=why):
        asked = Request(instruction="wgmma", store="tma")
        storing(128, 256, request=asked, dst_strides=(4100, 1))


def test_lanes_store_vectors_that_rows_begin_at_neighbours_elements_and_all_split_sectors() -> None:
    def cycles(m: int, n: int, store: Any, row: int, of: Any = uncoalesced_cycles) -> float:
        asked = Request(instruction="wgmma", store=store)
        plan = storing(m, n, request=asked, dst_strides=(row, 1))
        (found,) = plan.stores
        stored = StoreInfo("store", "acc", found.dst, "float16", (row, 1))
        return of(replace(gemm(m, n, 64), stores=(stored,)), plan.matmuls, (found,))

    warps = 128 * 128 / 32
    direct = [cycles(128, 128, "direct", 4096 + more) for more in (1, 2, 4, 8)]
    assert direct == [warps * UNALIGNED_STORE_CYCLES / vector for vector in (1, 2, 4)] + [0]
    assert [cycles(128, 128, "coalesced", 4096 + more) for more in (1, 2, 8)] == [0] * 3
    split = [
        cycles(128, 128, by, 4096 + more, split_sector_cycles)
        for more in (8, 16)
        for by in ("tma", "coalesced", "direct")
    ]
    lines = 128 * 128 * 2 / 128 * SPLIT_SECTOR_CYCLES
    assert split == [lines] * 3 + [0] * 3
    inside = [
        cycles(128, 128, by, 4096 + more, split_sector_cycles)
        for more in (1, 2, 4)
        for by in ("coalesced", "direct")  # which counts those as unaligned
    ]
    assert inside == [lines, 0] * 3
    assert cycles(128, 128, "tma", 4096) == 0
    assert cycles(112, 64, "coalesced", 4097) == 0
    assert cycles(112, 64, "direct", 4097) == cycles(112, 64, "direct", 4098) > 0


def test_parts_that_stay_in_a_cluster_cost_as_much_wherever_rows_begin() -> None:
    asked = Request(instruction="wgmma", store="cluster")
    us = [
        Candidate(GemmTile(64, 128, 64, splits=4), asked)
        .plan(Gemm(331, columns, 3304), H200)
        .predicted_us
        for columns in (597, 600)
    ]
    assert us[0] == pytest.approx(us[1], rel=0.02)  # 18.1 and 14.2 us if they were stores to memory


def test_threads_write_no_rows_of_dimensions_put_together() -> None:
    """Both ways by shared memory are declined with their reasons, and TMA still copies."""
    plan = storing(128, 256, dst_strides=(4100, 1), viewed=True)
    (store,) = plan.stores
    assert (store.mechanism, plan.copies[0].mechanism) == ("direct", "tma")
    declined = each_of(the("store.direct", [store.reason])["why"])
    assert [one.code for one in declined] == ["box.stride", "store.joined"]
    with refused("store.coalesced", PlanError, store="store"):
        request = Request(instruction="wgmma", store="coalesced")
        storing(128, 256, request=request, dst_strides=(4100, 1), viewed=True)


def test_results_with_swap_ab_leave_transposed_where_that_saves_time():
    (store,) = storing(112, 64).stores
    assert (store.mechanism, store.box) == ("tma", (112, 64))
    (store,) = storing(16, 64).stores
    assert (store.mechanism, store.bytes) == ("direct", 0)
    assert the("store.few", [store.reason])["cycles"] == 320
    (store,) = storing(16, 64, request=Request(instruction="wgmma", store="tma")).stores
    assert (store.mechanism, store.box, store.bytes) == ("tma", (16, 64), 2048)


def test_results_leave_from_registers_where_nothing_else_copies():
    (store,) = storing(request=Request(instruction="mma")).stores
    assert says("store.no_producer", [store.reason])
    with refused("store.no_tile", PlanError):
        planned(request=Request(instruction="wgmma", store="tma"))


def test_a_depth_asked_for_is_kept_by_fewer_boxes():
    for depth, mechanism in ((4, "tma"), (3, "tma")):
        plan = storing(request=Request(instruction="wgmma", depth=depth))
        assert (plan.stores[0].mechanism, plan.mbarriers[0].depth) == (mechanism, depth)
    plan = storing(128, 128, 64, request=Request(instruction="wgmma", depth=7))
    assert (plan.stores[0].mechanism, plan.mbarriers[0].depth) == ("direct", 7)


@pytest.mark.parametrize(("m", "n"), [(3000, 4104), (12000, 6008)])
def test_results_whose_rows_begin_inside_sectors_take_longer(m: int, n: int) -> None:
    """By 5 cycles a line of an SM's, be they 25 MB, which an H200's L2 holds, or 144."""

    def us(columns: int) -> float:
        return Candidate(GemmTile(128, 192, 64)).plan(Gemm(m, columns, 248), H200).predicted_us

    lines = m * n * 2 / 128 / H200.sms
    at_most = SPLIT_SECTOR_CYCLES * lines / (H200.clock_ghz * 1e3)
    assert 0.5 * at_most < us(n) - us(n + 8) < 1.5 * at_most


def test_what_an_epilogue_computes_takes_its_time() -> None:
    """silu(x) * y: an exponential and a reciprocal of each of 128 * 112 elements, 16 a cycle."""
    plain, gated = Gemm(341, 9576, 264), GatedGemm(341, 9576, 264)
    tile = GemmTile(128, 112, 64, persistent=132)
    cycles = [
        map_kernel(kernel_info(what, tile), H200, Request(instruction="wgmma"))
        .loops[0]
        .work.stores.arithmetic_cycles
        for what in (plain, gated)
    ]
    assert cycles == [0, 128 * 112 * 2 / 16]
