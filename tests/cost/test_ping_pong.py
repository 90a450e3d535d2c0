"""Ping-pong groups: what they need, what the plan says of them, what they gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError
from pipeliner.machine import A100, H100, Machine
from pipeliner.plan import KernelPlan
from pipeliner.plan.explain import explain
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, default_tile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.space.alternatives import CandidateOption, candidate_options
from pipeliner.space.ranking import Ranking, choose
from pipeliner.values.facts import CopyInfo, KernelInfo, TmaView
from tests.refusals import refused, says, the

from .kernels import gemm

PING_PONG = Request(consumers="ping-pong")


def persistent(m: int, n: int, *, tiles: int | None = 8, trip: int = 64) -> KernelInfo:
    """A product of a persistent kernel whose CTAs each compute ``tiles`` tiles."""
    info = gemm(m, n, 64, trip=trip, grid=(132,))
    return replace(
        info, loops=tuple(replace(loop, outer=tiles, by_tile=tiles != 1) for loop in info.loops)
    )


def gathered(m: int, n: int, view: TmaView = "im2col") -> KernelInfo:
    """The same, of pixels that the accelerator sees so."""
    info = persistent(m, n)
    (loop,) = info.loops
    pixels, *others = loop.ops
    assert isinstance(pixels, CopyInfo)
    ops = (replace(pixels, view=view), *others)
    return replace(info, loops=(replace(loop, ops=ops),))


@pytest.mark.parametrize(
    ("m", "n", "accumulators"), [(64, 256, 128), (128, 128, 128), (128, 192, 192), (192, 128, 192)]
)
def test_a_tile_is_one_warpgroups(m: int, n: int, accumulators: int) -> None:
    plan = choose(persistent(m, n), H100, PING_PONG)
    (matmul,) = plan.matmuls
    assert (matmul.instruction, matmul.warps) == (f"wgmma.m64n{n}k16.f16.f32", (4, 1))
    assert the("wgmma.accumulators", [matmul.reason])["registers"] == accumulators
    assert [(role.ping_pong_groups, role.threads, role.registers) for role in plan.roles] == [
        (2, 256, 232),
        (1, 128, 32),
    ]
    assert (plan.threads, plan.mapped_threads, plan.ping_pong_groups) == (384, 128, 2)
    (pair,) = plan.mbarriers
    assert pair.arrivals == 1  # by the group that had the slot
    assert the("choice.taken", plan.reasons[-1:]).why == Reason("choice.only")
    assert KernelPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("info", "machine", "request_", "code", "args"),
    [
        (
            persistent(128, 256),
            H100,
            Request(instruction="wgmma", consumers="ping-pong"),
            "wgmma.split_ping_pong",
            {"tile": (128, 256), "groups": 2, "registers": 232},
        ),
        (
            persistent(128, 128, tiles=1),
            H100,
            PING_PONG,
            "consumers.refused",
            {"kernel": "gemm", "why": Reason("ping_pong.one_tile")},
        ),
        (
            persistent(128, 128),
            H100,
            Request(consumers="ping-pong", mechanism="cp_async"),
            "ping_pong.no_producer",
            {},
        ),
        (persistent(128, 128), A100, PING_PONG, "ping_pong.no_producer", {}),
        (
            persistent(128, 128),
            H100,
            Request(instruction="wgmma", consumers="ping-pong", roles=3),
            "mapping.asked_warpgroups",
            {"groups": 3},
        ),
    ],
)
def test_what_it_needs(
    info: KernelInfo, machine: Machine, request_: Request, code: str, args: dict[str, Any]
) -> None:
    with refused(code, PlanError, **args):
        choose(info, machine, request_)


@pytest.mark.parametrize(
    ("info", "request_", "said"),
    [
        (persistent(128, 128, tiles=1), Request(), Reason("ping_pong.one_tile")),
        (
            persistent(128, 128),
            Request(),
            Reason("ping_pong.accumulators", registers=128, least=160),
        ),
        (gathered(128, 192), Request(), Reason("ping_pong.pixels", view="im2col")),
        (gathered(128, 192, "window"), Request(), Reason("ping_pong.pixels", view="window")),
        (gathered(128, 192, "flattened"), Request(), Reason("ping_pong.pixels", view="flattened")),
        (persistent(128, 192), Request(consumers="cooperative"), Reason("consumers.cooperative")),
        (persistent(128, 128), PING_PONG, Reason("consumers.ping_pong", groups=2, each=1)),
    ],
)
def test_the_plan_says_who_has_which_tiles(
    info: KernelInfo, request_: Request, said: Reason
) -> None:
    plan = choose(info, H100, request_)
    assert the(said.code, [plan.role("consumer").reason]) == said
    assert str(said) in " ".join(explain(plan).split())
    assert plan.ping_pong_groups == 1 + (request_ == PING_PONG)


@pytest.mark.parametrize(
    ("sizes", "tile", "groups"),
    [
        # Measured on an H100, each as the fastest of at least five tiles, shared or not.
        ((8192, 8192, 8192), (128, 192), 2),
        ((4096, 14336, 4096), (128, 176), 2),
        ((8192, 8192, 1024), (128, 192), 2),
        ((8192, 8192, 2048), (128, 192), 2),
        ((4096, 4096, 4096), (128, 256), 1),
        ((4096, 4096, 14336), (128, 256), 1),
        ((2048, 2048, 2048), (128, 256), 1),
    ],
)
@pytest.mark.part(9)
def test_ping_pong_is_chosen_where_it_was_faster(
    sizes: tuple[int, int, int], tile: tuple[int, int], groups: int
) -> None:
    spec = Gemm(*sizes)
    chosen = default_tile(spec, H100)
    assert (chosen.m, chosen.n) == tile
    plan = choose(kernel_info(spec, chosen), H100, Request())
    assert plan.ping_pong_groups == groups
    if groups > 1:
        shared = choose(kernel_info(spec, chosen), H100, Request(consumers="cooperative"))
        said = the("choice.taken", plan.reasons)
        assert said["what"] == "ping-pong"
        assert (said.why["us"], said.why["other_us"]) == (plan.predicted_us, shared.predicted_us)


@pytest.mark.parametrize(
    ("sizes", "request_", "tile", "groups"),
    [
        # As fast as any that was measured on an H100, beside cuBLASLt in one process.
        ((8192, 8192, 8192), Request(), (128, 192), 2),
        ((8192, 8192, 2048), Request(), (128, 192), 2),
        ((16384, 8192, 1024), Request(), (128, 192), 2),
        ((8192, 14336, 4096), Request(), (128, 192), 2),
        ((4096, 4096, 4096), Request(), (128, 256), 1),
        ((8192, 8192, 8192), Request(accumulate="promoted"), (128, 192), 1),
        ((4096, 4096, 4096), Request(accumulate="promoted"), (128, 256), 1),
    ],
)
@pytest.mark.part(9)
def test_ping_pong_of_fp8_is_chosen_where_it_was_faster(
    sizes: tuple[int, int, int], request_: Request, tile: tuple[int, int], groups: int
) -> None:
    spec = Gemm(*sizes, dtype="e4m3")
    chosen = default_tile(spec, H100, accumulate=request_.accumulate)
    assert (chosen.m, chosen.n, chosen.k) == (*tile, 128)
    assert choose(kernel_info(spec, chosen), H100, request_).ping_pong_groups == groups


@pytest.mark.parametrize(
    ("dtype", "tile", "request_", "said"),
    [
        ("e4m3", (192, 128, 128), Request(), "ping_pong.fp8_columns"),
        ("e4m3", (128, 192, 64), Request(), "ping_pong.fp8_step"),
        ("int8", (128, 192, 128), Request(), "ping_pong.dtypes"),
        (
            "e4m3",
            (128, 192, 128),
            Request(accumulate="promoted"),
            "choice.not_taken",
        ),
        (
            "e4m3",
            (128, 128, 128),
            Request(accumulate="promoted", consumers="ping-pong"),
            "choice.asked",
        ),
    ],
)
def test_why_operands_of_8_bits_do_not_ping_pong(
    dtype: str, tile: tuple[int, int, int], request_: Request, said: str
) -> None:
    spec = Gemm(8192, 8192, 8192, dtype=dtype)
    plan = choose(kernel_info(spec, GemmTile(*tile, persistent=132)), H100, request_)
    assert says(said, plan.reasons)
    assert says("ping_pong.promoted", plan.reasons) == (request_.accumulate == "promoted")
    assert plan.ping_pong_groups == (2 if request_.consumers == "ping-pong" else 1)


def test_every_way_to_share_tiles_is_compared() -> None:
    info = persistent(128, 128)
    plan = choose(info, H100, Request())
    cooperative, ping_pong = of_wgmma(info, plan)
    assert (cooperative.consumers, cooperative.chosen) == ("cooperative", True)
    assert cooperative.us == plan.predicted_us
    assert (ping_pong.consumers, ping_pong.chosen) == ("ping-pong", False)
    assert ping_pong.us == choose(info, H100, PING_PONG).predicted_us
    assert says("ping_pong.accumulators", [ping_pong.why])
    alone = persistent(128, 128, tiles=1)
    _, other = of_wgmma(alone, choose(alone, H100, Request()))
    assert other.us is None
    assert says("ping_pong.one_tile", [other.why])


def of_wgmma(info: KernelInfo, plan: KernelPlan) -> list[CandidateOption]:
    """The candidates by wgmma that are not for a request alone."""
    found = candidate_options(plan, Ranking(info, H100, Request()))
    return [
        one
        for one in found
        if one.name in ("wgmma, tma", "wgmma, tma, ping-pong", "wgmma, ping-pong")
    ]


def test_what_is_stored_between_tiles_is_hidden_by_the_other_groups_steps() -> None:
    def us(consumers: str, steps: int) -> float:
        info = replace(
            persistent(128, 128, trip=steps), accumulators=(("acc", "local", 128 * 128 * 4),)
        )
        request = Request(instruction="wgmma", consumers=consumers, depth=4)
        # What L2 delivers to all SMs at most is the same for both.
        return choose(info, replace(H100, l2_bytes_per_second=0.0), request).predicted_us

    # Seven times between eight tiles the results leave from registers, at 32 bytes a cycle.
    between = 7 * 128 * 128 * 4 / 32 / H100.clock_ghz / 1e3
    gained = us("cooperative", 64) - us("ping-pong", 64)
    assert gained == pytest.approx(between, rel=0.05)
    short = us("cooperative", 1) - us("ping-pong", 1)
    assert 0 < short < between  # one step is not long enough for all of it
