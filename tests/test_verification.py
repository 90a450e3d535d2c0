"""pipeliner.verify: right kernels pass, broken ones do not, and it says what it compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner import cli
from pipeliner.diagnostics import Reason
from pipeliner.emulator.engine.scheduler import ORDERS
from pipeliner.emulator.lower import is_device_function
from pipeliner.emulator.units.cp_async import TIMINGS
from pipeliner.errors import PlanError, WorkloadError
from pipeliner.kernel.compiled import compile_kernel
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import cuda_target
from pipeliner.verification.subjects import random_arguments
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused, told

GEMM = Gemm(32, 32, 128)
TILE = GemmTile(32, 32, 32)
PLAIN = Reason("verification.plain")


def schedule() -> Any:
    return schedule_gemm(GEMM, TILE)


@pytest.fixture(scope="module")
def kernel() -> Any:
    return pipeliner.build(schedule(), "a100", depth=3, mechanism="cp_async")


def without(mod: Any, name: str, number: int = -1) -> Any:
    """A lowered module without one call of ``name``."""
    functions = dict(mod.functions.items())
    (var,) = (var for var, func in functions.items() if is_device_function(func))
    func, found = functions[var], []

    def is_it(stmt: Any) -> bool:
        return str(getattr(getattr(stmt.value, "op", None), "name", "")) == name

    tvm_ffi.structural_walk(
        func.body, [(tirx.Evaluate, lambda s: found.append(s) if is_it(s) else None)]
    )
    wanted = len(found) + number if number < 0 else number
    seen = []

    def drop(stmt: Any) -> Any:
        if not is_it(stmt):
            return stmt
        seen.append(stmt)
        return tirx.Evaluate(tirx.const(0, "int32")) if len(seen) == wanted + 1 else stmt

    body = tvm_ffi.structural_map(func.body, [(tirx.Evaluate, drop)])
    functions[var] = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return tvm.IRModule(functions)


def test_everything_that_stands_for_a_kernel(kernel: Any) -> None:
    function = pipeliner.pipeline(schedule(), "a100", depth=3)
    for form in (schedule(), schedule().mod, function, kernel, kernel.lowered):
        verdict = pipeliner.verify(form, target="a100")
        assert verdict.ok, verdict.hazards
        assert [(run.timing, run.order) for run in verdict.runs] == [
            ("late", "lockstep"),
            ("early", "round-robin"),
            ("random", "reversed"),
            ("late", "random"),
        ]
        known = form not in (function, kernel.lowered)
        assert verdict.against == (PLAIN if known else Reason("verification.first_run"))


def test_a_kernel_of_another_lowering_is_compared_with_ours() -> None:
    sch = tvm.s_tir.Schedule(vector_add)
    verdict = pipeliner.verify(compile_kernel(sch, cuda_target("a100"), "s_tir"))
    assert verdict.ok
    assert verdict.against == PLAIN


def test_outputs_are_those_of_numpy(kernel: Any) -> None:
    a, b = GEMM.inputs(3)
    c = np.zeros((32, 32), np.float16)
    verdict = pipeliner.verify(kernel, [a, b, c], reference=lambda a, b, c: GEMM.reference(a, b))
    assert verdict.ok
    assert verdict.against == Reason("verification.reference")
    want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(verdict.outputs["C"], want, atol=0.05)
    by_name = pipeliner.verify(kernel, {"C": c, "A": a, "B": b})
    np.testing.assert_array_equal(by_name.outputs["C"], verdict.outputs["C"])
    assert not c.any()


def test_a_reference_by_name_and_a_wrong_one(kernel: Any) -> None:
    right = pipeliner.verify(kernel, reference=lambda a, b, c: {"C": GEMM.reference(a, b), "A": a})
    assert right.ok
    wrong = pipeliner.verify(kernel, reference=lambda a, b, c: GEMM.reference(a, b) + 1)
    assert not wrong.ok
    assert wrong.worst > 1
    assert wrong.hazards == ()


def test_small_integers_must_be_equal(kernel: Any) -> None:
    verdict = pipeliner.verify(
        kernel, integers=True, reference=lambda a, b, c: GEMM.reference(a, b).astype(np.float16)
    )
    assert verdict.worst == 0
    off = pipeliner.verify(
        kernel, integers=True, reference=lambda a, b, c: GEMM.reference(a, b) + 2.0**-9
    )
    assert off.worst == np.inf


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("tirx.tvm_storage_sync", "race"),
        ("tirx.ptx.cp_async_wait_group", "read-before-arrival"),
        ("tirx.ptx.cp_async_commit_group", "read-before-arrival"),
    ],
)
@pytest.mark.part(3)
def test_a_kernel_without_one_of_its_synchronisations(
    kernel: Any, operation: str, kind: str
) -> None:
    verdict = pipeliner.verify(without(kernel.lowered, operation))
    assert not verdict.ok
    assert kind in {hazard.kind for hazard in verdict.hazards}
    assert all(hazard.site.line is not None for hazard in verdict.hazards)


def test_each_hazard_once_for_all_runs(kernel: Any) -> None:
    broken = without(kernel.lowered, "tirx.tvm_storage_sync")
    one = pipeliner.verify(broken, timings=["late"], orders=["lockstep"])
    four = pipeliner.verify(broken)
    assert (len(one.runs), len(four.runs)) == (1, 4)
    assert len(one.hazards) <= len(four.hazards) < sum(len(run.hazards) for run in four.runs)


def test_part_of_the_grid() -> None:
    gemm = Gemm(64, 32, 64)
    kernel = pipeliner.build(schedule_gemm(gemm, TILE), "a100")
    verdict = pipeliner.verify(
        kernel, blocks=[(0, 0, 0)], reference=lambda a, b, c: gemm.reference(a, b)
    )
    assert verdict.ok
    arrays = random_arguments(kernel.function)
    changed = verdict.outputs["C"] != arrays[2]
    assert 0 < np.count_nonzero(changed) <= 32 * 32


@T.prim_func(s_tir=True)
def vector_add(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    T.func_attr({"global_symbol": "vector_add", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.sblock("add"):
                v = T.axis.spatial(256, bx * 128 + tx)
                B[v] = A[v] + T.float32(1)


@T.prim_func(s_tir=True)
def unrolled(A: T.Buffer((16, 6400), "float32"), B: T.Buffer((16, 6400), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for i in range(16):
            for v in T.unroll(100):
                with T.sblock("B"):
                    B[i, tx * 100 + v] = A[i, tx * 100 + v] * A[i, 99 - v] + A[i, v]


def test_what_has_no_registers_for_one_slot_is_compared_with_what_is_left_alone() -> None:
    """Depth 1 is refused of it: a thread would keep 300 loaded values at once."""
    with refused("depth.registers", PlanError, threads=64):
        pipeliner.build(unrolled, "a100", depth=1)
    kernel = pipeliner.build(unrolled, "a100")
    assert not any(loop.pipelined for loop in kernel.plan.loops)
    assert pipeliner.verify(kernel).ok


@T.prim_func(s_tir=True)
def rows(a: T.handle, b: T.handle, n: T.int32):
    T.func_attr({"global_symbol": "rows", "tirx.noalias": True})
    A = T.match_buffer(a, (n * 128,), "float32")
    B = T.match_buffer(b, (n * 128,), "float32")
    for tx in T.thread_binding(128, thread="threadIdx.x"):
        for i in T.serial(n):
            with T.sblock("copy"):
                v = T.axis.spatial(n * 128, i * 128 + tx)
                B[v] = A[v]


def test_symbolic_extents() -> None:
    with refused("arguments.extents", WorkloadError, names=("n",)):
        pipeliner.verify(rows, target="a100")
    for n in (1, 5):
        verdict = pipeliner.verify(rows, target="a100", extents={"n": n})
        assert verdict.ok
        assert verdict.outputs["B"].shape == (n * 128,)
        np.testing.assert_array_equal(verdict.outputs["A"], verdict.outputs["B"])


def test_wrong_arguments() -> None:
    with refused("arguments.count", WorkloadError, names=("A", "B"), count=1):
        pipeliner.verify(vector_add, [np.zeros(256, np.float32)], target="a100")
    with refused("verification.reference_shape", WorkloadError, expected=(256,), shape=(2,)):
        pipeliner.verify(vector_add, target="a100", reference=lambda a, b: np.zeros(2))
    with refused("verification.modes", WorkloadError):
        pipeliner.verify(vector_add, target="a100", timings=[])


def test_the_same_seed_gives_the_same_verdict(kernel: Any) -> None:
    first, again = (pipeliner.verify(kernel, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.outputs["C"], again.outputs["C"])
    assert first.worst == again.worst
    assert verify_workload(kernel, GEMM, seed=5).ok


# The command.

SMALL = ("gemm", "--m", "32", "--n", "32", "--k", "64", "--tile", "32x32x32", "--target", "a100")


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--timing", "random,late", "--order", "reversed", "--seed", "3")
    assert cli.main(["verify", *SMALL, *options]) == 0
    title, *runs = capsys.readouterr().out.splitlines()
    assert title.startswith("right: gemm_32x32x64")
    assert title.endswith("0 hazards, against the exact result in float64")
    modes = [line.partition(":")[0].strip() for line in runs]
    assert modes == ["copies random, warps reversed", "copies late, warps reversed"]


def test_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", *SMALL, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert data["hazards"] == []
    assert {ran["timing"] for ran in data["runs"]} == {"late", "early", "random"}
    assert len({ran["order"] for ran in data["runs"]}) == 4


@pytest.mark.parametrize(
    ("option", "known"),
    [("timing", TIMINGS), ("order", ORDERS)],
)
def test_command_with_an_unknown_timing_or_order(
    option: str, known: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", *SMALL, f"--{option}", "never"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    told(captured.err, "option.choice", option=option, choices=known, value="never")


RACE = """
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def stale(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("all"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            B[tx] = S[63 - tx] + A[tx]
"""


def test_command_prints_hazards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RACE)
    assert cli.main(["verify", f"{path}:stale", "--target", "a100", "--save", f"{path}_"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("hazard: uninitialised-read on ")
    assert "\nWRONG: stale: " in out
