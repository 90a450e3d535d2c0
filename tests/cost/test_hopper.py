"""What sm_90 adds to the choices: wgmma, tma and roles, granted or refused with numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeliner.choice.depth import MAX_DEPTH
from pipeliner.choice.depth_produced import TMA_DEPTH
from pipeliner.cost.memory import enough_in_flight
from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError, TargetError
from pipeliner.machine import A100, H100, H200
from pipeliner.mechanisms.tma import tma_obstacle
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.space.ranking import choose
from tests.refusals import refused, says, the

from .kernels import WGMMA, copy, gemm, with_copies
from .kernels import by_wgmma as planned


def test_a_tile_of_128_by_256_takes_two_warpgroups_and_one_to_copy():
    plan = planned()
    (matmul,) = plan.matmuls
    assert (matmul.instruction, matmul.warps) == ("wgmma.m64n256k16.f16.f32", (8, 1))
    assert [(role.name, role.first, role.threads, role.registers) for role in plan.roles] == [
        ("consumer", 0, 256, 232),
        ("producer", 256, 128, 32),
    ]
    assert plan.threads == 384
    assert {c.mechanism for c in plan.copies} == {"tma"}
    (channel,) = plan.mbarriers
    assert (channel.bytes, channel.arrivals) == ((128 + 256) * 64 * 2, 2)
    assert channel.depth == 4  # 4 of 49152 bytes fit in 227 KiB, 5 do not
    assert plan.target == "sm_90a"


@pytest.mark.parametrize(
    ("m", "n", "groups", "registers"),
    [
        (64, 128, 1, 240),
        (128, 128, 2, 232),
        (192, 192, 3, 160),
        (256, 128, 2, 232),
        (64, 256, 1, 240),
        (256, 192, 2, 232),
    ],
)
def test_registers_are_those_of_the_launch(m, n, groups, registers):
    plan = planned(m, n)
    consumer, producer = plan.roles
    assert (consumer.threads, consumer.registers) == (128 * groups, registers)
    # PTX ISA, setmaxnreg: the pool is what the CTA got at launch, a multiple of 8 for each thread.
    launched = min(255, 65536 // plan.threads) // 8 * 8
    used = consumer.threads * consumer.registers + producer.threads * producer.registers
    assert used <= plan.threads * launched
    rows, columns = plan.matmuls[0].warp_tile
    assert rows * columns // 32 < registers


@pytest.mark.parametrize(
    ("m", "n", "warps", "instruction", "mapped", "why"),
    [
        (
            16,
            64,
            None,
            "wgmma.m64n16k16.f16.f32",
            (1, 4),
            Reason("wgmma.rows", rows=16, multiple=64),
        ),
        (8, 256, None, "wgmma.m64n8k16.f16.f32", (1, 8), Reason("wgmma.rows", rows=8, multiple=64)),
        (
            128,
            64,
            (1, 4),
            "wgmma.m64n128k16.f16.f32",
            (1, 4),
            Reason("wgmma.warps_asked", warps=(1, 4)),
        ),
    ],
)
def test_a_tile_of_few_rows_takes_swap_ab(m, n, warps, instruction, mapped, why):
    plan = planned(m, n, request=Request(instruction="wgmma", warps=warps))
    (matmul,) = plan.matmuls
    assert matmul.swap_ab
    assert (matmul.m, matmul.n) == (m, n)
    assert (matmul.instruction, matmul.warps) == (instruction, mapped)
    assert matmul.warps[0] * matmul.warp_tile[0] == m
    assert matmul.warps[1] * matmul.warp_tile[1] == n
    assert the("wgmma.swap_ab", [matmul.reason]).why == why


def test_roles_and_mbarriers_survive_json_and_are_explained():
    plan = planned()
    assert KernelPlan.from_json(plan.to_json()) == plan
    text = plan.explain()
    assert "consumer: threads 0-255, 232 registers each: C_update" in text
    assert "producer: threads 256-383, 32 registers each: A_shared, B_shared" in text
    assert "mbarriers full/empty: producer -> consumer, 4 slots of A_shared, B_shared" in text
    assert "49152 bytes fill one, 2 arrivals release it" in " ".join(text.split())


def test_without_a_request_it_is_taken_where_it_is_predicted_to_be_faster():
    plan = planned(request=Request())
    assert replace(plan, reasons=planned().reasons) == planned()
    slower = planned(request=Request(instruction="mma")).predicted_us
    assert plan.predicted_us < slower
    said = the("choice.taken", plan.reasons[-1:])
    assert (said["what"], said.why["other"]) == ("wgmma", "mma.m16n8k16.f16.f32")
    assert (said.why["us"], said.why["other_us"]) == (plan.predicted_us, slower)


@pytest.mark.parametrize(
    ("changes", "request_", "why"),
    [
        ({"m": 32, "n": 32}, {}, "mapping.multiple"),
        ({"dtype": "float32"}, {}, "mapping.exact"),
        ({}, {"warps": (2, 4)}, "choice.warps_asked"),
        ({}, {"mechanism": "register"}, "mechanism.read_by_wgmma"),
        ({}, {"epilogue": "peeled"}, "producer.epilogue"),
    ],
)
def test_where_it_is_not_taken_the_plan_says_why(changes, request_, why):
    plan = planned(request=Request(**request_), **changes)
    assert not plan.matmuls[0].instruction.startswith("wgmma")
    assert (plan.roles, plan.mbarriers, plan.target) == ((), (), "sm_90")
    said = the("choice.not_taken", plan.reasons[-1:])
    assert said["what"] == "wgmma"
    assert says(why, [said])


def test_clusters_are_taken_where_rows_lie_in_two_lines_and_that_limits():
    whole = with_copies(gemm(256, 128, 64), multicast=((2, 1),))
    assert choose(whole, H100, WGMMA).cluster == 1
    halves = with_copies(gemm(256, 128, 64), multicast=((2, 1),), src_strides=(4040, 1))
    plan = choose(halves, H100, WGMMA)
    assert plan.cluster == 2
    assert {copy.multicast for copy in plan.copies} == {2}
    alone = choose(halves, H100, replace(WGMMA, cluster=1))
    assert {copy.multicast for copy in alone.copies} == {1}
    times = {"us": plan.predicted_us, "other_us": alone.predicted_us}
    shared = ("A_shared", "B_shared")
    assert the("choice.cluster", plan.reasons).args == {"cluster": 2, "copies": shared, **times}
    assert choose(with_copies(halves, multicast=()), H100, WGMMA).cluster == 1


def test_memory_has_its_time_and_its_bytes_in_flight():
    read = 12 << 20
    plans = [
        choose(with_copies(gemm(64, 32, 64, grid=(200,)), src_bytes=bytes_), H100, WGMMA)
        for bytes_ in (0, read)
    ]
    assert plans[0].predicted_us < plans[1].predicted_us
    assert plans[1].predicted_us > 2 * read / H100.dram_bytes_per_second * 1e6


def test_a_ring_is_as_deep_as_memory_wants_it_and_as_fits_where_tiles_do_not_follow():
    once = gemm(64, 32, 64, grid=(64,))
    (loop,) = once.loops
    several = replace(once, grid=(132,), loops=(replace(loop, outer=2, by_tile=True),))
    plans = [choose(with_copies(info, src_bytes=1 << 26), H100, WGMMA) for info in (several, once)]
    depths = [plan.mbarriers[0].depth for plan in plans]
    assert depths[0] > TMA_DEPTH
    # A step of all CTAs reads a part of A and B, 64 MiB each, once, however many wait for it.
    assert depths[1] == max(3, int(enough_in_flight(H100) * loop.trip / (2 << 26))) < MAX_DEPTH
    assert says("depth.memory", plans[0].loops[0].reasons)
    assert [says("depth.enough", plan.loops[0].reasons) for plan in plans] == [False, True]


def test_where_k_is_outermost_less_in_flight_is_enough() -> None:
    """Measured on an H200: 16x64 of 9x4768x10592 takes 30.9 us with 7 slots, 36.0 with 10."""
    depths = {}
    for layout in ("NN", "NT"):
        spec = Gemm(9, 4768, 10592, dtype="bfloat16", layout=layout)
        plan = choose(kernel_info(spec, GemmTile(16, 64, 128)), H200, Request())
        depths[layout] = plan.mbarriers[0].depth
        said = the("depth.enough", plan.loops[0].reasons)
        wanted = enough_in_flight(H200, scattered=layout == "NN") / 1e6
        assert said["enough_mb"] == pytest.approx(wanted)
    assert depths["NN"] == 7 < depths["NT"]


def test_a_few_ctas_do_not_load_memory():
    info = with_copies(gemm(64, 64, 32, grid=(1,), trip=8), src_bytes=1 << 15)
    for machine in (A100, H100):
        plan = choose(info, machine, Request(instruction="mma"))
        assert plan.pipelined  # the second slot hides what one alone waits for
        assert plan.predicted_us < 10


def test_it_is_not_taken_for_a_target_without_it():
    plan = choose(gemm(128, 256, 64), H100, Request(), accelerated=False)
    assert plan.matmuls[0].instruction.startswith("mma.")
    assert the("choice.not_taken", plan.reasons).why == Reason("choice.sm_90")


@pytest.mark.parametrize("request_", [{"roles": 2}, {"mechanism": "tma"}, {"cluster": 2}])
def test_it_is_taken_where_only_it_does_what_is_asked(request_):
    """The plan says what another instruction lacks, as asking for that one says."""
    info = with_copies(gemm(128, 256, 64), multicast=((2, 1),))
    plan = choose(info, H100, Request(**request_))
    assert plan.matmuls[0].instruction.startswith("wgmma")
    only = the("choice.only_possible", [the("choice.taken", plan.reasons[-1:]).why])
    with pytest.raises(PlanError) as error:
        choose(info, H100, Request(instruction="mma", **request_))
    assert only.why == error.value.reason


def test_a_cluster_is_refused_where_its_ctas_share_nothing():
    with pytest.raises(PlanError, match="cannot make clusters of 2 CTAs: no tile is the same"):
        planned(request=replace(WGMMA, cluster=2))


def test_a_short_loop_has_mbarriers_too():
    plan = planned(trip=1)
    assert plan.loops[0].pipelined
    assert plan.mbarriers[0].depth == 1


@pytest.mark.parametrize(
    ("request_", "changes", "code", "args"),
    [
        (WGMMA, {"m": 96, "n": 248}, "mapping.multiple", {"tile": (96, 248, 64)}),
        (WGMMA, {"k": 8}, "mapping.multiple", {"tile": (128, 256, 8), "m": 64, "n": 8, "k": 16}),
        (WGMMA, {"m": 256, "n": 512}, "wgmma.split", {"tile": (256, 512)}),
        (WGMMA, {"dtype": "int8", "n": 40}, "wgmma.columns", {"columns": 40, "multiple": 16}),
        (
            Request(instruction="wgmma", warps=(2, 2)),
            {},
            "mapping.asked_warps",
            {"warps": (2, 2)},
        ),
        (
            Request(instruction="wgmma", roles=3),
            {},
            "mapping.asked_warpgroups",
            {"groups": 3},
        ),
        (
            Request(instruction="wgmma", thread_tile=(8, 8)),
            {},
            "mapping.thread_tile",
            {"instruction": "wgmma", "tile": (8, 8)},
        ),
        (
            Request(instruction="wgmma", mechanism="register"),
            {},
            "mechanism.refused",
            {"copy": "A_shared", "mechanism": "register"},
        ),
        (Request(roles=2), {"m": 32, "n": 32}, "mapping.roles", {"groups": 2}),
        (
            Request(mechanism="tma", instruction="simt"),
            {"m": 32, "n": 32},
            "mechanism.refused",
            {"mechanism": "tma", "why": Reason("mechanism.by_vectors", op="C_update")},
        ),
        (
            Request(mechanism="tma", instruction="mma", roles=0),
            {},
            "mechanism.refused",
            {"mechanism": "tma", "why": Reason("mechanism.no_producer")},
        ),
        (
            Request(instruction="wgmma", epilogue="peeled"),
            {},
            "producer.epilogue",
            {"epilogue": "peeled"},
        ),
        (
            Request(instruction="wgmma", depth=5),
            {},
            "depth.smem",
            {"smem": 246784},
        ),
    ],
)
def test_what_cannot_be_is_refused(request_, changes, code, args):
    with refused(code, PlanError, **args) as raised:
        planned(request=request_, **changes)
    assert "\n" not in str(raised.value)


def test_where_a_copy_is_no_box_threads_make_all_of_them():
    info = gemm(128, 256, 64)
    a, b, matmul = info.loops[0].ops
    crooked = replace(a, no_tma="it is crooked")
    info = replace(info, loops=(replace(info.loops[0], ops=(crooked, b, matmul)),))
    plan = choose(info, H100, WGMMA)
    assert [copy.mechanism for copy in plan.copies] == ["cp_async", "cp_async"]
    assert the("mechanism.no_box", [plan.copies[0].reason])["why"] == "it is crooked"
    assert the("mechanism.as_other", [plan.copies[1].reason])["copy"] == "A_shared"
    assert (plan.roles, plan.mbarriers, plan.threads) == ((), (), 256)
    assert {ring.depth for ring in plan.loops[0].rings} == {4}
    assert plan.matmuls[0].in_flight == 1
    with refused("mechanism.refused", PlanError, mechanism="tma", why="it is crooked"):
        choose(info, H100, Request(instruction="wgmma", mechanism="tma"))


def test_without_roles_every_warp_copies():
    plan = planned(request=Request(instruction="wgmma", roles=0))
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert says("mechanism.no_producer", [plan.copies[0].reason])
    assert (plan.roles, plan.threads) == ((), 256)
    with refused("mechanism.no_producer", PlanError):
        planned(request=Request(instruction="wgmma", roles=0, mechanism="tma"))


def test_another_gpu_has_neither():
    for request, code in (
        (WGMMA, "wgmma.machine"),
        (Request(mechanism="tma"), "box.machine"),
    ):
        with refused(code, TargetError, arch="sm_80"):
            choose(gemm(128, 256, 64), A100, request)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"src_strides": (4095, 1)},
            Reason("box.stride", multiple=16, stride=8190, dimension=0, buffer="A"),
        ),
        (
            {"src_strides": (None, 1)},
            Reason("box.run_time_stride", multiple=16, dimension=0, buffer="A"),
        ),
        ({"src_strides": (1, 4096)}, Reason("box.inner_stride", buffer="A", stride=4096)),
        ({"src_dims": (1, 0)}, Reason("box.order", buffer="A_shared", dimensions=(1, 0))),
        (
            {"shape": (520, 64)},
            Reason("box.large", buffer="A_shared", most=256, unit="elements", extent=520),
        ),
        ({"shape": (128, 24)}, Reason("box.row", buffer="A_shared", nbytes=48, multiple=32)),
        ({"bound": True}, Reason("box.bound")),
        ({"no_tma": "it is crooked"}, "it is crooked"),
        ({"no_producer": "the kernel waits"}, "the kernel waits"),
        ({"no_tma": "it is crooked", "no_producer": "the kernel waits"}, "it is crooked"),
    ],
)
def test_tma_names_the_requirement_that_a_copy_misses(changes, why):
    values = {"shape": (128, 64), **changes}
    assert tma_obstacle(copy("A", **values), H100) == why
    assert tma_obstacle(copy("A", (128, 64)), H100) is None
