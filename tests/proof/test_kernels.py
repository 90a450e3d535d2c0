"""What is proved of kernels that the passes made, and how it is said."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

import pipeliner
from pipeliner.cli import main
from pipeliner.mutation.mutants import Mutant, mutants, mutated
from pipeliner.passes.ir.nodes import collect, has
from pipeliner.proof.prove import prove
from pipeliner.proof.running.subjects import host_and_kernels
from pipeliner.schedules import (
    Attention,
    AttentionTile,
    Gemm,
    GemmTile,
    schedule_attention,
    schedule_gemm,
)

from ..corpus.annotated import dynamic_trip
from ..emulator.raw import lower
from ..emulator.ring import DEPTH, reversing_ring

TILE = GemmTile(64, 16, 64)


@pytest.fixture(scope="module")
def kernel() -> Any:
    schedule = schedule_gemm(Gemm(m=64, n=16, k=256), TILE)
    options = {"instruction": "wgmma", "roles": 1, "mechanism": "tma", "store": "direct"}
    return pipeliner.build(schedule, "h100", depth=2, prove=True, **options)


def test_a_specialised_kernel_is_right_for_every_trip_count(kernel: Any) -> None:
    (found,) = prove(kernel.lowered, seconds=600.0).kernels
    assert found.ok
    assert [(loop.name, loop.least, loop.only) for loop in found.loops] == [("k_0", 0, "")]
    assert found.states >= 4
    assert kernel.proof is kernel.proof


@pytest.mark.deep("a ring that tiles share, in test_rings")
def test_a_persistent_kernel_is_right_for_every_number_of_tiles() -> None:
    """Consumers write a tile while the producer copies for the next one."""
    tile = GemmTile(64, 16, 64, persistent=132)
    schedule = schedule_gemm(Gemm(m=64 * 300, n=16, k=256), tile)
    options = {"instruction": "wgmma", "roles": 1, "mechanism": "tma"}
    (found,) = pipeliner.build(schedule, "h100", depth=2, **options).proof.kernels
    assert found.ok
    assert [(loop.least, loop.only) for loop in found.loops] == [(0, ""), (1, "")]


@pytest.mark.deep("a specialised kernel of one matmul, above")
def test_attention_is_right_for_every_number_of_keys() -> None:
    """Consumers have peeled the first iteration of a loop that the producer makes whole."""
    schedule = schedule_attention(Attention(1, 1, 128, 2048, 64), AttentionTile(128, 128))
    (found,) = pipeliner.build(schedule, "h100", roles=2).proof.kernels
    assert found.ok
    assert all(not loop.only for loop in found.loops)


def test_mbarriers_and_groups_of_it_are_needed(kernel: Any) -> None:
    """Each wait, arrival and fence weakened: an execution that meets a hazard is found."""
    left: list[Mutant] = []
    for mutant in mutants(kernel.lowered):
        if mutant.synchronises and prove(mutated(kernel.lowered, mutant)).refuted is None:
            left.append(mutant)
    assert [mutant.what for mutant in left] == []


def test_a_slot_that_is_released_before_the_tensor_cores_have_read_it(kernel: Any) -> None:
    """Peers released a slot behind the wgmma of the step before; here one group more stays."""
    waits = [m for m in mutants(kernel.lowered) if m.what == "wgmma_wait_group"]
    found = prove(mutated(kernel.lowered, waits[0])).refuted
    assert found is not None
    assert found.hazard.kind == "write-while-read"
    assert found.hazard.site.origin is not None
    assert found.hazard.other is not None
    assert found.hazard.other.origin is not None
    assert (found.hazard.site.origin.kind, found.hazard.other.origin.kind) == ("copy", "mma")


def test_a_wait_before_the_commit_of_its_own_copy() -> None:
    """Peers waited for the group before the one that the copy is in."""
    (right,) = prove(lower(reversing_ring(8))).kernels
    assert right.ok
    (wrong,) = prove(lower(reversing_ring(8, wait=DEPTH - 1))).kernels
    assert wrong.refuted is not None
    assert wrong.refuted.hazard.kind == "read-before-arrival"


def test_a_loop_that_was_made_for_its_trip_count_is_proved_for_that() -> None:
    schedule = schedule_gemm(Gemm(m=32, n=32, k=128), GemmTile(32, 32, 32))
    (found,) = pipeliner.build(schedule, "a100", depth=2).proof.kernels
    assert found.ok
    assert not found.data
    assert [loop.only for loop in found.loops if loop.only] == [loop.only for loop in found.loops]


def test_the_command_says_what_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", "gemm", "--m", "32", "--n", "32", "--k", "64", "--tile", "32x32x32"]
    assert main([*words, "--target", "a100", "--prove", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["proof"]
    assert said["ok"]
    assert len(said["assumptions"]) >= 2
    assert main([*words, "--target", "a100", "--prove"]) == 0
    assert "no hazard in any interleaving" in capsys.readouterr().out


@pytest.mark.parametrize("persistent", [None, pytest.param(4, marks=pytest.mark.deep("the other"))])
def test_a_gemm_is_right_for_every_number_of_rows(persistent: int | None) -> None:
    """The emulator agrees at numbers of rows that are drawn at random."""
    spec = Gemm(None, 32, 64, layout="NN")
    tile = GemmTile(16, 32, 16, persistent=persistent)
    kernel = pipeliner.build(schedule_gemm(spec, tile), "a100")
    (found,) = kernel.proof.kernels
    assert found.ok, found.statement
    assert [(one.name, one.least, one.only) for one in found.values] == [("m", 0, "")]
    rng = random.Random(24)
    for _ in range(2):
        assert pipeliner.verify(kernel, extents={"m": rng.randrange(1, 99)}).ok


def test_a_loop_of_any_extent_is_right_for_every_one() -> None:
    kernel = pipeliner.build(dynamic_trip, "a100")
    (found,) = kernel.proof.kernels
    assert found.ok, found.statement
    assert str(found.values[0].said) == "every value of n from 0 on"
    rng, numbers = random.Random(24), np.random.default_rng(24)
    for n in (0, 1, rng.randrange(2, 40)):
        a = numbers.standard_normal((16, n)).astype(np.float32)
        expected = {"C": a[::-1] + np.float32(1)}
        given = [a, np.zeros_like(a), n]
        assert pipeliner.verify(kernel, given, reference=lambda *_, c=expected: c).ok


def test_what_is_verified_with_one_value_is_proved_for_all() -> None:
    kernel = pipeliner.build(schedule_gemm(Gemm(None, 32, 64), GemmTile(16, 32, 16)), "a100")
    verdict = pipeliner.verify(kernel, extents={"m": 17}, prove=True)
    assert verdict.ok
    assert verdict.proof is not None
    (found,) = verdict.proof.kernels
    assert "every value of m from 0 on" in str(found.statement)


def read_for_many(lowered: Any, least: int, *, early: bool) -> Any:
    """A kernel that reads once more what tensor cores have added up, for so many rows or more.

    It does so behind each of its waits for all that is in flight, or, ``early``, in front of it.
    """

    def guarded(func: Any) -> Any:
        (rows,) = (param for param in func.params if str(param.name) == "m")
        reads = collect(
            func.body, tirx.BufferStore, lambda store: has(store.value, TensorLoad, is_sum)
        )
        more = tirx.IfThenElse(rows >= least, reads[0], None)

        def around(stmt: Any) -> Any:
            text = str(stmt.value)
            if "wgmma(0" not in text or "wait_group" not in text:
                return stmt
            return tirx.SeqStmt([more, stmt] if early else [stmt, more])

        changes = [(tirx.Evaluate, around)]
        return func.with_body(tvm_ffi.structural_map(func.body, changes, order="post"))

    def is_sum(load: Any) -> bool:
        return str(load.source.name).startswith("acc")

    _, kernels = host_and_kernels(lowered)
    changed = {
        var: guarded(func) if str(var.name_hint) in kernels else func
        for var, func in lowered.functions.items()
    }
    return tvm.IRModule(changed, attrs=lowered.attrs)


def test_registers_in_flight_that_few_values_read() -> None:
    """Whether they are read decides nothing else, and matters."""
    spec, tile = Gemm(None, 32, 128), GemmTile(64, 32, 64)
    options = {"instruction": "wgmma", "store": "direct"}
    lowered = pipeliner.build(schedule_gemm(spec, tile), "h100", **options).lowered
    (right,) = prove(read_for_many(lowered, 900, early=False)).kernels
    assert right.ok, right.statement
    wrong = read_for_many(lowered, 900, early=True)
    assert not prove(wrong).kernels[0].ok
    (met,) = prove(wrong, extents={"m": 900}).kernels
    assert met.refuted is not None
    assert met.refuted.hazard.kind == "register-in-flight"
    assert prove(wrong, extents={"m": 899}).kernels[0].ok
