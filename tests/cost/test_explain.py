from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeliner.machine import A100, H100
from pipeliner.plan import KernelPlan, LoopPlan, RingPlan, SmemBuffer, SmemPlan, SyncPlan
from pipeliner.plan.explain import WIDTH, explain
from pipeliner.plan.request import Request
from pipeliner.space.ranking import choose

from .kernels import gemm, stream

GOLDEN = Path(__file__).parent / "golden"


def scheduled(machine=H100):
    """A finished plan: what choose gives, then stages, arena and barriers as passes fill them in."""
    plan = choose(
        gemm(128, 256, 32, trip=64, grid=(512,), declined=(("j", "no global load in it"),)),
        machine,
        Request(instruction="mma"),
    )
    (loop, *rest) = plan.loops
    stages = {"copy": 0, "load": 2, "mma": 2}
    ops = tuple(
        replace(op, stage=stages[op.kind], order=at, cycle=100 * at)
        for at, op in enumerate(loop.ops)
    )
    loop = replace(loop, ops=ops, ii=813, res_mii=813, rec_mii=812, limiter="tensor", unroll=2)
    arena = (
        SmemBuffer("A_shared", 0, 24576, 128),
        SmemBuffer("B_shared", 24576, 49152, 128, ("C_shared",), "used later"),
    )
    return replace(
        plan,
        loops=(loop, *rest),
        smem=SmemPlan(73728, machine.smem_per_cta, arena),
        sync=SyncPlan(2, 1, ("A_shared.wait: 1 group in flight",), ("one barrier a step",)),
    )


def test_a_finished_plan_reads_as_it_should():
    assert explain(scheduled()) + "\n" == (GOLDEN / "gemm_h100.txt").read_text()


def test_the_same_plan_gives_the_same_text_after_a_round_trip():
    plan = scheduled()
    assert KernelPlan.from_json(plan.to_json()).explain() == plan.explain()


@pytest.mark.parametrize(
    "plan",
    [
        scheduled(A100),
        choose(gemm(dtype="float32", k=8), A100, Request()),
        choose(gemm(trip=1), A100, Request()),
        choose(gemm(trip=None, grid=(None,)), H100, Request(depth=4)),
        choose(stream(), H100, Request()),
        KernelPlan("empty", "sm_80", "A100"),
    ],
    ids=["scheduled", "simt", "declined", "symbolic", "stream", "empty"],
)
def test_every_plan_reads_within_the_width(plan):
    text = explain(plan)
    assert text.startswith(f"kernel {plan.kernel}:")
    assert all(len(line) <= WIDTH and line == line.rstrip() for line in text.splitlines())


def test_the_picture_counts_iterations_down_the_pipeline():
    lines = explain(scheduled()).splitlines()
    at = next(n for n, line in enumerate(lines) if "iteration that each op works on" in line)
    rows = {
        line.split("|")[0].strip(): line.split("|")[1].split()
        for line in lines[at + 1 : at + 12]
        if "|" in line
    }
    assert rows["A_shared"] == ["0", "1", "2", "3", "4", ".", "."]
    assert rows["C_update.k0"] == [".", ".", "0", "1", "2", "3", "4"]
    assert rows[""] == ["P", "P", "S", "S", "S", "E", "E"]


def test_buffers_of_one_version_share_a_line():
    plan = scheduled()
    (loop, *rest) = plan.loops
    fragments = tuple(RingPlan(f"frag_{side}", "local", 1, 32, (), ()) for side in "ab")
    loop = replace(loop, rings=(*loop.rings, *fragments))
    text = explain(replace(plan, loops=(loop, *rest)))
    assert "  one version (local, 64 bytes): frag_a, frag_b\n" in text


def test_a_loop_left_alone_is_named_with_its_reason():
    plan = KernelPlan(
        "k", "sm_80", "A100", loops=(LoopPlan("ax0", "8", False, reasons=("trip is 1",)),)
    )
    assert explain(plan).endswith("loops left alone\n  ax0: trip is 1")
