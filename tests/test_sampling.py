"""Which CTAs of a large grid are run, what is known of the others, and what is compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.script import from_source

import pipeliner
from pipeliner import cli
from pipeliner.diagnostics import Reason, Why
from pipeliner.errors import WorkloadError
from pipeliner.kernel.compiled import as_module, only_function
from pipeliner.schedules import ConvTile, Gemm, GemmTile, NaiveTile, conv2d
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.tiles import Tile
from pipeliner.schedules.workloads import Spec
from pipeliner.verification.compared import compare
from pipeliner.verification.ownership import Owned, Ownership, ownership
from pipeliner.verification.sampling import Sample, in_turn, parsed, sample
from pipeliner.verification.tolerance import Equal

from .refusals import refused, says, the

ONCE: dict[str, Any] = {"timings": ("late",), "orders": ("lockstep",)}

CTAS = 40


def grid_of(*lines: str, ctas: int = CTAS, more: str = "") -> Any:
    """A kernel of ``ctas`` CTAs of 32 threads: ``lines`` for each thread, with i its number."""
    extent = ctas * 32
    body = re.sub(r"\bi\b", "(bx * 32 + tx)", "\n                ".join(lines))
    return from_source(f"""
@T.prim_func(s_tir=True)
def grid(A: T.Buffer(({extent},), "float32"), I: T.Buffer(({extent},), "int32"),
         C: T.Buffer(({extent},), "float32")):
    T.func_attr({{"global_symbol": "grid", "tirx.noalias": True}}){more}
    for bx in T.thread_binding({ctas}, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("all"):
                {body}
""")


def every(func: Any, *shapes: tuple[int, ...]) -> Owned:
    arrays = [np.zeros(shape, "f4") for shape in shapes]
    return ownership(func, [str(param.name) for param in func.params], arrays)


def owned(func: Any, *shapes: tuple[int, ...]) -> Ownership:
    (kernel,) = every(func, *shapes).kernels
    return kernel


def of_grid(*lines: str, **options: Any) -> Ownership:
    func = grid_of(*lines, **options)
    return owned(func, *[tuple(map(int, param.shape)) for param in func.params])


def test_a_loop_of_fewer_than_no_iterations_writes_nothing() -> None:
    found = of_grid("for k in T.serial(9, 4):", "    C[bx * 32 + tx + k] = A[k]")
    assert found.disjoint
    assert (found.owners["C"] == -1).all()


@pytest.mark.parametrize(
    ("spec", "tile", "counts"),
    [
        (Gemm(100, 72, 40), GemmTile(32, 32, 32), {32 * 32, 32 * 8, 4 * 32, 4 * 8}),
        (Gemm(100, 72, 40), GemmTile(32, 32, 32, persistent=5), None),
        (Gemm(100, 72, 40, batch=3), GemmTile(32, 32, 32), {32 * 32, 32 * 8, 4 * 32, 4 * 8}),
        (Gemm(40, 40, 40), NaiveTile(), {256, 128, 64}),
        (conv2d(1, 7, 9, 32, 32, 3, 3, pad=1), ConvTile(16, 32, 32), {16 * 32, 15 * 32}),
    ],
)
def test_every_element_has_an_owner(spec: Spec, tile: Tile, counts: set[int] | None) -> None:
    func = only_function(as_module(scheduled(spec, tile)))
    found = owned(func, *spec.shapes())
    assert found.disjoint
    (owners,) = found.owners.values()
    assert owners.shape == spec.shapes()[-1]
    assert owners.min() == 0
    assert owners.max() == found.ctas - 1
    assert found.counts().sum() == owners.size
    assert counts is None or set(found.counts().tolist()) == counts


def both_write(other: int) -> Reason:
    """That CTA 0 and another one write the first element."""
    return Reason(
        "ownership.both_write", first=(0, 0, 0), second=(other, 0, 0), buffer="C", index=(0,)
    )


@pytest.mark.parametrize(
    ("line", "meeting"),
    [
        ("C[i] = A[i] * T.float32(2)", ""),
        ("C[i] = C[i] + A[i]", ""),
        ("if bx < 7:\n                    C[i] = A[i]", ""),
        ("if not (bx < 7 and A[i] > T.float32(0)):\n                    C[i] = A[i]", ""),
        ("C[tx] = A[i]", both_write(39)),
        ("C[i // 2] = A[i]", ""),
        ("C[i // 64] = A[i]", both_write(1)),
        (
            f"C[i] = C[(i + 32) % {CTAS * 32}]",
            Reason(
                "ownership.write_and_read",
                first=(1, 0, 0),
                second=(0, 0, 0),
                buffer="C",
                index=(32,),
            ),
        ),
    ],
    ids=lambda value: str(value)[:36] if isinstance(value, str) else "",
)
def test_ctas_that_meet(line: str, meeting: Why) -> None:
    found = of_grid(line)
    assert (found.unknown, found.meeting) == ("", meeting)


@pytest.mark.parametrize(
    ("lines", "unknown"),
    [
        (["C[I[i]] = A[i]"], ("ownership.index", "C")),
        (
            ['V = T.match_buffer(C[0:1280], (1280,), "float32")', "V[i] = A[i]"],
            ("ownership.view", "V"),
        ),
        (
            ['T.evaluate(T.call_extern("float32", "atomicAdd", T.address_of(C[0]), A[i]))'],
            ("ownership.pointer", "C"),
        ),
    ],
)
def test_what_indices_do_not_say(lines: list[str], unknown: tuple[str, str]) -> None:
    found = of_grid(*lines)
    code, buffer = unknown
    assert the(code, [found.unknown])["buffer"] == buffer
    assert not found.disjoint


def test_the_first_the_last_ragged_ones_and_some_at_random() -> None:
    spec, tile = Gemm(500, 500, 32), GemmTile(64, 64, 32, raster_group=1)
    whole = every(only_function(as_module(scheduled(spec, tile))), *spec.shapes())
    (found,) = whole.kernels
    chosen = sample(None, whole, seed=3)
    assert chosen.blocks is not None
    numbers = [found.number(block) for block in chosen.blocks[0]]
    counts = found.counts()
    assert {0, 63} <= set(numbers)
    assert {int(counts[number]) for number in numbers} == set(counts.tolist())
    assert {7, 56} <= set(numbers)  # of the right edge, and of the lower one
    some = the("sample.some", [chosen.said])
    assert (some["count"], some["total"]) == (6, 64)
    first, *others = some["listed"]
    assert first == Reason("sample.cta", block=(0, 0, 0), kind="first")
    assert sum(cta.code == "sample.cta" and cta["kind"] == "random" for cta in others) == 2
    ragged = [cta for cta in others if cta.code == "sample.ragged"]
    assert (3328, 4096) in [(cta["elements"], cta["most"]) for cta in ragged]
    assert str(chosen.said).startswith("6 of 64 CTAs: (0, 0, 0) first; ")
    assert chosen.between == Reason("ownership.disjoint", count=64)
    assert sample(None, whole, seed=3) == chosen
    assert sample(None, whole, seed=4) != chosen
    assert the("sample.clusters", [sample("auto", whole, 3, cluster=2).said])["cluster"] == 2
    assert sample("all", whole, 3).blocks is None


def test_warps_of_each_cta_are_interleaved_in_some_run() -> None:
    blocks = tuple((x, 0, 0) for x in (0, 1, 4, 5, 10, 11, 20, 21))
    chosen = Sample({0: blocks}, Reason("sample.all"))
    assert in_turn(chosen, 0, turns=1) == {}
    for turns, cluster in ((3, 1), (3, 2), (9, 1)):
        loud = [set(blocks) - set(in_turn(chosen, t, turns, cluster)[0]) for t in range(turns)]
        assert all(loud)
        assert set().union(*loud) == set(blocks)
        assert (
            {(x ^ 1, y, z) for x, y, z in loud[0]} == loud[0] if cluster == 2 else len(loud[0]) < 4
        )
    calm = Sample({0: blocks}, Reason("sample.all"), in_step={0: blocks[:4]})
    assert set(in_turn(calm, 1, 2)[0]) == {*blocks[:4], blocks[4], blocks[6]}
    asked = Sample({0: blocks}, Reason("sample.all"), asked={0: blocks})
    assert in_turn(asked, 0, turns=3) == {}


def test_the_verdict_says_which_warps_went_in_step() -> None:
    verdict = pipeliner.verify(grid_of("C[i] = A[i]"), target="a100")
    assert verdict.ok
    ((kernel, ran),) = verdict.ctas.items()
    first, *others = verdict.runs
    assert (first.order, first.in_step) == ("lockstep", {})
    loud = [set(ran) - set(run.in_step[kernel]) for run in others]
    assert set().union(*loud) == set(ran)
    assert [len(some) for some in loud] == [2, 1, 1]
    whole = pipeliner.verify(grid_of("C[i] = A[i]"), target="a100", blocks=ran)
    assert [run.in_step for run in whole.runs] == [{}] * len(whole.runs)


def test_few_ctas_are_all_run() -> None:
    for ctas, few in ((8, True), (9, False)):
        found = Owned((of_grid("C[i] = A[i]", ctas=ctas),))
        assert (sample(None, found, 0).blocks is None) == few


def test_part_of_a_grid_is_right_by_what_it_owns() -> None:
    func = grid_of("C[i] = A[i] * T.float32(2)")
    seen: list[tuple[str, int, int]] = []
    verdict = pipeliner.verify(
        func,
        target="a100",
        reference=lambda a, i, c: a * 2,
        progress=lambda *told: seen.append(told),
        **ONCE,
    )
    assert verdict.ok
    some = the("sample.some", [verdict.ran])
    assert (some["count"], some["total"]) == (4, 40)
    changed = verdict.outputs["C"] == verdict.outputs["A"] * 2
    assert np.count_nonzero(changed) == 4 * 32
    assert ("run 1 of 1, copies late, warps lockstep", 4, 4) in seen
    assert {what for what, _, _ in seen} >= {"the magnitudes of what is added up"}
    whole = pipeliner.verify(func, target="a100", blocks="all", **ONCE)
    assert (whole.ran, whole.between) == (Reason("sample.all"), "")
    assert (whole.outputs["C"] == whole.outputs["A"] * 2).all()


def test_a_cta_that_leaves_out_what_it_owns_is_wrong() -> None:
    func = grid_of("if A[i] < T.float32(1e9):\n                    C[i] = A[i]")
    arrays = [np.full(CTAS * 32, 1.0, "f4"), np.zeros(CTAS * 32, "i4"), np.zeros(CTAS * 32, "f4")]
    arrays[0][:32] = 2e9
    wrong = pipeliner.verify(func, arrays, target="a100", reference=lambda a, i, c: a, **ONCE)
    assert not wrong.ok
    arrays[0][:32] = 1.0
    assert pipeliner.verify(func, arrays, target="a100", reference=lambda a, i, c: a, **ONCE).ok


def test_what_no_cta_that_ran_owns_must_stay() -> None:
    owners = Owned((Ownership((2, 1, 1), {"C": np.array([0, 0, 1, 1], np.int32)}),))
    arrays = {"C": np.zeros(4, "f4")}
    wanted = {"C": np.array([1, 2, 3, 4], "f4")}
    ran = [{(0, 0, 0)}]
    right = {"C": np.array([1, 2, 0, 0], "f4")}
    assert compare(Equal(), arrays, wanted, right, owners, ran, of_all=True).worst == 0
    strayed = {"C": np.array([1, 2, 3, 0], "f4")}
    found = compare(Equal(), arrays, wanted, strayed, owners, ran, of_all=True)
    assert found.worst == np.inf
    assert found.notes == (Reason("verdict.strayed", name="C", count=1, size=4),)


def test_ctas_that_meet_are_all_run() -> None:
    verdict = pipeliner.verify(grid_of("C[tx] = A[tx]", ctas=9), target="a100", **ONCE)
    assert verdict.ran == Reason("sample.all_because", why=both_write(8))


def test_between_ctas_only_those_run() -> None:
    scatter = grid_of("C[I[i]] = A[i]")
    assert says("ownership.index", [pipeliner.verify(scatter, target="a100", **ONCE).ran])
    part = pipeliner.verify(scatter, target="a100", blocks=[(0, 0, 0)], **ONCE)
    assert the("ownership.only_run", [part.between])["why"]["buffer"] == "C"
    assert not part.speaks_of_all
    known = pipeliner.verify(grid_of("C[i] = A[i]"), target="a100", blocks=[(3, 0, 0)], **ONCE)
    assert known.between == Reason("ownership.disjoint", count=40)
    with refused("verification.no_cta", WorkloadError, block=(99, 0, 0)):
        pipeliner.verify(scatter, target="a100", blocks=[(0, 0, 0), (99, 0, 0)], **ONCE)


def test_blocks_of_a_command_line() -> None:
    assert (parsed("auto"), parsed("all")) == ("auto", "all")
    assert parsed("3:1,2:0,0,4") == [(3, 0, 0), (1, 2, 0), (0, 0, 4)]
    for text in ("", "a", "1,2,3,4", "-1"):
        with refused("sample.option", WorkloadError, value=text):
            parsed(text)


FILE = """
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from tvm.script import tirx as T


def product():
    return schedule_gemm(Gemm(96, 96, 64), GemmTile(32, 32, 32))


@T.prim_func(s_tir=True)
def scatter(A: T.Buffer((64,), "float32"), I: T.Buffer((64,), "int32"),
            C: T.Buffer((64,), "float32")):
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("all"):
                C[I[bx * 32 + tx]] = T.float32(1)
"""


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    once = ("--target", "a100", "--timing", "late", "--order", "lockstep")
    assert cli.main(["verify", f"{path}:product", *once]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("right: gemm_96x96x64_float16_nt: equal to the bit, 0 hazards, against")
    assert second.startswith("  ran 4 of 9 CTAs: (0, 0, 0) first; ")
    assert second.endswith("; between CTAs: no two of 9 meet in an element, by their indices")
    assert cli.main(["verify", f"{path}:product", *once, "--blocks", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"]["code"] == "sample.all"
    assert cli.main(["verify", f"{path}:scatter", *once, "--blocks", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("right for the CTAs that ran (between CTAs: only those run): scatter: ")
    assert cli.main(["verify", "gemm", *once, "--blocks", "all"]) != 0
    assert "cannot use --blocks with a workload" in capsys.readouterr().err
