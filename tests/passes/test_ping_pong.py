"""What the passes emit for ping-pong: one body for all groups, rolled and lean."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.passes.ir.nodes import walk
from pipeliner.schedules.gemm import schedule_gemm
from pipeliner.schedules.tiles import GemmTile
from pipeliner.schedules.workloads import Gemm
from tests.refusals import refused

from .test_hopper import roles
from .tiles import calls


def ping_pong(gemm: Gemm, tile: GemmTile, **options: Any) -> Any:
    schedule = schedule_gemm(gemm, tile)
    return pipeliner.pipeline(schedule, "h100", consumers="ping-pong", **options)


def test_both_groups_run_one_body() -> None:
    by_role = roles(ping_pong(Gemm(512, 128, 256), GemmTile(64, 128, 64, persistent=2)))
    assert set(by_role) == {"consumer", "producer"}
    assert len(calls(by_role["consumer"], "wgmma_f16_ss")) == 4
    waits = {name: len(calls(body, "mbarrier_wait")) for name, body in by_role.items()}
    assert waits == {"consumer": 2, "producer": 1}  # a turn and a slot; a slot


def test_the_other_group_goes_on_while_wgmma_is_in_flight() -> None:
    consumer = roles(ping_pong(Gemm(512, 128, 256), GemmTile(64, 128, 64, persistent=2)))[
        "consumer"
    ]
    (mine,) = _branches(consumer)
    known = re.compile(r"mbarrier_wait|wgmma_wait_group|mbarrier_arrive")
    found = [known.search(str(call.op.name)) for call in calls(mine.then_case, "")]
    steps = [match[0] for match in found if match]
    assert steps == [
        *("mbarrier_wait", "mbarrier_wait"),  # its turn; the slot of a step
        *("wgmma_wait_group", "mbarrier_arrive"),  # but for this step's; the slot before
        "mbarrier_arrive",  # behind the loop, the other's turn
        *("wgmma_wait_group", "mbarrier_arrive"),  # all; the last slot
    ]
    assert not calls(mine.else_case, "")  # who skips a tile only counts


def _branches(body: Any) -> list[Any]:
    """Conditions with two branches: whose tile it is."""
    found: list[Any] = []
    walk(body, tirx.IfThenElse, found.append)
    return [node for node in found if node.else_case is not None]


@pytest.mark.part(6)
@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("tile", "options", "hgmma"),
    [
        ((64, 256, 64), {}, 4),
        ((128, 128, 64), {"cluster": 2}, 8),
        ((128, 192, 64), {}, 8),
        ((192, 128, 64), {"store": "direct"}, 12),
    ],
)
def test_machine_code_keeps_loops_rolled_and_spills_nothing(
    tile: tuple[int, int, int], options: dict[str, Any], hgmma: int
) -> None:
    gemm = Gemm(6144, 3072, 4096, dtype="bfloat16")
    kernel = pipeliner.build(ping_pong(gemm, GemmTile(*tile, persistent=132), **options))
    assert kernel.resources.spills == 0
    counts = Counter(re.findall(r"\b(HGMMA|UTMALDG|USETMAXREG|STL|LDL)\b", kernel.sass))
    assert counts == {"HGMMA": hgmma, "UTMALDG": 2, "USETMAXREG": 2}
    lines = kernel.sass.splitlines()
    at = [at for at, line in enumerate(lines) if "HGMMA" in line]
    # That warps are of one group is known: slots and descriptors stay uniform.
    assert not any("R2UR" in line for line in lines[at[0] : at[-1]])
    assert "serializ" not in kernel._cubin.log
    assert "setmaxnreg" not in kernel._cubin.log


def test_what_each_group_would_do_again_is_refused() -> None:
    with refused("ping_pong.loops", PlanError, loops=("k",)):
        pipeliner.pipeline(_beside(), "h100", consumers="ping-pong")
    plan = pipeliner.plan_of(pipeliner.pipeline(_beside(), "h100", instruction="wgmma"))
    assert plan.ping_pong_groups == 1
    edited = replace(
        plan, roles=(replace(plan.roles[0], threads=256, ping_pong_groups=2), plan.roles[1])
    )
    with refused("ping_pong.loops", PlanError, loops=("k",)):
        pipeliner.pipeline(_beside(), "h100", plan=edited)


def _beside() -> Any:
    """A loop over two tiles, and behind it a count that is added to."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((128, 128), "float16"),
        B: T.Buffer((64, 128), "float16"),
        C: T.Buffer((128, 64), "float32"),
        D: T.Buffer((64,), "float32"),
    ):
        T.func_attr({"global_symbol": "main"})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("cta"):
                for tile in T.serial(2):
                    with T.sblock("tile"):
                        acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
                        for i, j in T.grid(64, 64):
                            with T.sblock("init"):
                                acc[i, j] = T.float32(0)
                        for k in T.serial(2):
                            with T.sblock("step"):
                                A_s = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                                B_s = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                                for i, j in T.grid(64, 64):
                                    with T.sblock("A_copy"):
                                        A_s[i, j] = A[tile * 64 + i, k * 64 + j]
                                for i, j in T.grid(64, 64):
                                    with T.sblock("B_copy"):
                                        B_s[i, j] = B[i, k * 64 + j]
                                for i, j, kk in T.grid(64, 64, 64):
                                    with T.sblock("mma"):
                                        acc[i, j] = acc[i, j] + T.Cast(
                                            "float32", A_s[i, kk]
                                        ) * T.Cast("float32", B_s[j, kk])
                        for i, j in T.grid(64, 64):
                            with T.sblock("store"):
                                C[tile * 64 + i, j] = acc[i, j]
                for i in T.serial(64):
                    with T.sblock("count"):
                        D[i] = D[i] + T.float32(1)

    return main
