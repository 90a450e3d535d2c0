"""Of several kernels some CTAs of each are run: those of earlier ones that later ones need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import prim
from tvm.script import from_source

import pipeliner
from pipeliner import cli
from pipeliner.diagnostics import Reason
from pipeliner.errors import EmulatorError, WorkloadError
from pipeliner.kernel.compiled import as_module, only_function
from pipeliner.kernel.cuda_lines import cuda_lines
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.compared import compare
from pipeliner.verification.ownership import Owned, Ownership, ownership
from pipeliner.verification.sampling import parsed, sample
from pipeliner.verification.tolerance import Equal

from .refusals import refused, says, the

ONCE: dict[str, Any] = {"timings": ("late",), "orders": ("lockstep",)}
ADVERSARIAL: dict[str, Any] = {"timings": ("late",), "orders": ("random",)}

CTAS = 40

REVERSED = ["S[tx] = W[i]", "C[i] = S[31 - tx]"]


def of_kernels(*kernels: list[str], ctas: int = CTAS, params: str = "") -> Any:
    """A function of kernels, each of ``ctas`` CTAs of 32 threads: lines with i the thread's number.

    Arguments A, C and D are floats, I integers; W is a workspace. S is shared by the CTA.
    """
    extent = ctas * 32
    body = ""
    for number, lines in enumerate(kernels):
        body += f"""
    for bx in T.thread_binding({ctas}, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("kernel_{number}"):
                S = T.sblock_alloc_buffer((32,), "float32", scope="shared")"""
        for line in lines:
            body += "\n                " + re.sub(r"\bi\b", "(bx * 32 + tx)", line)
    return from_source(f"""
@T.prim_func(s_tir=True)
def several(A: T.Buffer(({extent},), "float32"), I: T.Buffer(({extent},), "int32"),
            C: T.Buffer(({extent},), "float32"), D: T.Buffer(({extent},), "float32")):
    T.func_attr({{"global_symbol": "several", "tirx.noalias": True}})
    W = T.sblock_alloc_buffer(({extent},), "float32")
{body}
""")


def owned(func: Any) -> Owned:
    arrays = [np.zeros(tuple(map(int, param.shape)), str(param.dtype)) for param in func.params]
    return ownership(func, [str(param.name) for param in func.params], arrays)


def split() -> Any:
    return schedule_gemm(Gemm(128, 128, 256), GemmTile(32, 32, 32, splits=4))


def numbers(found: Owned, blocks: Mapping[int, Any] | None) -> list[set[int]]:
    assert blocks is not None
    return [{found.kernels[at].number(block) for block in blocks[at]} for at in sorted(blocks)]


def test_split_k_runs_the_parts_that_its_sums_add() -> None:
    found = owned(only_function(as_module(split())))
    chosen = sample(None, found, 0, names=["parts", "sums"])
    parts, sums = numbers(found, chosen.blocks)
    assert {0, 63} <= parts
    assert 0 in sums
    needed = found.needs(1, np.array(sorted(sums)))[0]
    assert isinstance(needed, set)
    assert {cta // 16 for cta in needed} == set(range(4))  # of each split
    assert needed <= parts
    assert len(parts) < 64 // 2
    calm = {found.kernels[0].number(block) for block in chosen.in_step[0]}
    assert calm == parts - {0, 63}
    some = [kernel["said"] for kernel in the("sample.kernels", [chosen.said])["kernels"]]
    assert [(one["count"], one["total"]) for one in some] == [(len(parts), 64), (len(sums), 32)]
    assert the("sample.needed", some)["count"] == len(calm)
    assert the("ownership.kernels", [chosen.between])["kernels"] == (
        Reason("ownership.of_kernel", kernel="parts", said=Reason("ownership.disjoint", count=64)),
        Reason("ownership.of_kernel", kernel="sums", said=Reason("ownership.disjoint", count=32)),
    )


def test_split_k_is_right() -> None:
    gemm = Gemm(128, 128, 256)
    kernel = pipeliner.build(split(), "a100")
    verdict = pipeliner.verify(
        kernel, reference=lambda a, b, c: gemm.reference(a, b), **ADVERSARIAL
    )
    assert verdict.ok
    assert verdict.speaks_of_all
    assert 0 < len(verdict.ctas[f"{kernel.name}_kernel"]) < 32
    plain = pipeliner.verify(kernel, **ONCE)
    assert plain.ok
    assert plain.ctas == verdict.ctas
    every = pipeliner.verify(kernel, blocks="all", **ONCE)
    assert (every.ok, every.ctas, every.between) == (True, {}, "")
    assert every.ran == Reason("sample.all")


def test_mutants_of_split_k_run_on_the_ctas_that_verify_runs() -> None:
    kernel = pipeliner.build(split(), "a100")
    report = pipeliner.mutate(kernel, **ONCE)
    assert report.ok
    assert not report.survivors
    assert {fate.mutant.kernel for fate in report.fates} == {f"{kernel.name}_kernel"}
    assert report.ran == pipeliner.verify(kernel, **ONCE).ran
    assert report.ran.has("sample.needed")


def changed(mod: Any, kernel: str, kind: type, change: Any) -> Any:
    """A lowered module of which one kernel has each statement of a kind changed."""
    functions = dict(mod.functions.items())
    (var,) = (var for var in functions if var.name_hint == kernel)
    func = functions[var]
    body = tvm_ffi.structural_map(func.body, [(kind, change)], order="post")
    assert not body.same_as(func.body)
    functions[var] = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return tvm.IRModule(functions, attrs=mod.attrs)


def without_barrier(stmt: Any) -> Any:
    name = str(getattr(getattr(stmt.value, "op", None), "name", ""))
    nothing = tirx.Evaluate(tirx.const(0, "int32"))
    return nothing if name == "tirx.tvm_storage_sync" else stmt


def with_wrong_value(store: Any) -> Any:
    return tirx.BufferStore(
        store.buffer, prim.Add(store.value, tirx.const(1.0, "float32")), store.indices
    )


def broken(func: Any, kernel: str, kind: type, change: Any) -> Any:
    built = pipeliner.build(func, "a100")
    built.__dict__["lowered"] = changed(built.lowered, kernel, kind, change)
    built.__dict__["cuda_lines"] = cuda_lines(built.lowered)
    return built


@pytest.mark.deep("test_ctas_that_are_asked_for; tests/verify/test_mutation.py")
def test_a_defect_of_either_kernel_is_found() -> None:
    func = of_kernels(["W[i] = A[i]"], REVERSED)
    right = pipeliner.verify(func, target="a100", **ADVERSARIAL)
    assert right.ok
    assert {name: len(blocks) for name, blocks in right.ctas.items()} == {
        "several_kernel": 4,
        "several_kernel_1": 4,
    }
    late = broken(func, "several_kernel_1", tirx.Evaluate, without_barrier)
    verdict = pipeliner.verify(late, **ADVERSARIAL)
    assert {hazard.kind for hazard in verdict.hazards} & {"race", "uninitialised-read"}
    assert verdict.ctas == right.ctas
    wrong = broken(func, "several_kernel", tirx.BufferStore, with_wrong_value)
    verdict = pipeliner.verify(wrong, **ONCE)
    assert (verdict.ok, verdict.hazards) == (False, ())
    assert verdict.ctas == right.ctas


def test_ctas_that_are_all_needed_are_run_in_step() -> None:
    func = of_kernels(["W[i] = A[i]"], ["C[i] = W[I[i] * 100]"])
    chosen = sample(None, owned(func), 0, names=["first", "second"])
    assert chosen.blocks is not None
    assert set(chosen.blocks) == {1}
    said, _ = chosen.said["kernels"]
    assert said["said"].code == "sample.all_in_step"
    assert the("ownership.index", [said])["buffer"] == "W"
    assert len(chosen.in_step[0]) == CTAS - 4
    verdict = pipeliner.verify(func, target="a100", **ADVERSARIAL)
    assert verdict.ok
    assert set(verdict.ctas) == {"several_kernel_1"}
    far = of_kernels(["W[i] = A[i]"], ["C[i] = W[tx * 40 + bx]"])
    said, _ = sample(None, owned(far), 0).said["kernels"]
    assert the("sample.large", [said])["count"] > CTAS // 2


def test_ctas_that_meet_are_all_run() -> None:
    func = of_kernels(["W[tx] = T.float32(1)"], ["C[i] = W[tx]"], ["D[i] = C[i]"])
    chosen = sample(None, owned(func), 0)
    assert chosen.blocks is not None
    assert set(chosen.blocks) == {1, 2}
    first, *_ = chosen.said["kernels"]
    assert the("ownership.both_write", [first["said"]])["buffer"] == "W"
    assert says("ownership.all_run", [chosen.between])
    assert pipeliner.verify(func, target="a100", **ONCE).ok


def test_nothing_is_left_out_where_nothing_is_known() -> None:
    pointed = 'T.evaluate(T.call_extern("float32", "atomicAdd", T.address_of(W[0]), A[i]))'
    func = of_kernels(["W[i] = A[i]"], [pointed], ["C[i] = W[i]"])
    chosen = sample(None, owned(func), 0)
    assert chosen.blocks is not None
    assert set(chosen.blocks) == {2}
    same = np.zeros(CTAS * 32, "f4")
    func = of_kernels(["W[i] = A[i]"], ["C[i] = W[i]"])
    arrays = [same, np.zeros(CTAS * 32, "i4"), same, np.zeros(CTAS * 32, "f4")]
    shared = ownership(func, ["A", "I", "C", "D"], arrays)
    assert sample(None, shared, 0).blocks is None
    assert the("ownership.shared", [sample(None, shared, 0).said])["other"] == "A"


def test_what_a_later_kernel_overwrites_counts_once_it_has() -> None:
    whole, half = np.array([0, 0, 1, 1], np.int32), np.array([-1, 0, 1, -1], np.int32)
    found = Owned((Ownership((2, 1, 1), {"C": whole}), Ownership((2, 1, 1), {"C": half})))
    arrays, wanted = {"C": np.zeros(4, "f4")}, {"C": np.array([1, 2, 2, 1], "f4")}
    ran = [{(0, 0, 0), (1, 0, 0)}, {(0, 0, 0)}]
    outputs = {"C": np.array([1, 2, 1, 1], "f4")}
    assert compare(Equal(), arrays, wanted, outputs, found, ran, of_all=True).worst == 0
    assert compare(Equal(), arrays, wanted, outputs, found, ran).worst > 0
    outputs["C"][1] = 1
    assert compare(Equal(), arrays, wanted, outputs, found, ran, of_all=True).worst > 0
    ran[0] = {(0, 0, 0)}
    (note,) = compare(Equal(), arrays, wanted, outputs, found, ran).notes
    assert (note.code, note["count"]) == ("verdict.strayed", 2)


def test_ctas_that_are_asked_for() -> None:
    func = of_kernels(["W[i] = A[i]"], REVERSED)
    last = pipeliner.verify(func, target="a100", blocks=[(7, 0, 0)], **ONCE)
    assert last.ok
    assert set(last.ctas.values()) == {((7, 0, 0),)}
    each = pipeliner.verify(func, target="a100", blocks={0: [(3, 0, 0)], 1: [(7, 0, 0)]}, **ONCE)
    assert list(each.ctas.values()) == [((3, 0, 0), (7, 0, 0)), ((7, 0, 0),)]
    first = pipeliner.verify(func, target="a100", blocks={0: [(3, 0, 0)]}, **ONCE)
    assert list(first.ctas.values()) == [((3, 0, 0),), ()]
    with refused("verification.no_cta", WorkloadError, block=(40, 0, 0)):
        pipeliner.verify(func, target="a100", blocks=[(40, 0, 0)], **ONCE)
    with refused("sample.kernel", WorkloadError, number=2):
        pipeliner.verify(func, target="a100", blocks={2: [(0, 0, 0)]}, **ONCE)


def test_clusters_are_whole() -> None:
    found = owned(of_kernels(["W[i] = A[i]"], ["C[i] = W[i]"]))
    chosen = sample(None, found, 0, cluster=4)
    for ctas in numbers(found, chosen.blocks):
        assert ctas == {cta // 4 * 4 + rank for cta in ctas for rank in range(4)}


def test_the_emulator_runs_ctas_of_each_kernel() -> None:
    kernel = pipeliner.build(of_kernels(["D[i] = A[i]"], ["C[i] = A[i]"]), "a100")
    arrays = [np.ones(CTAS * 32, "f4"), np.zeros(CTAS * 32, "i4"), *np.zeros((2, CTAS * 32), "f4")]
    run = kernel.emulate(*arrays, blocks={1: [(2, 0, 0)]}, in_step={0: [(1, 0, 0)]}, order="random")
    assert (run.outputs["C"].sum(), run.outputs["D"].sum()) == (32, CTAS * 32)
    assert len(run.stats) == CTAS + 1
    with refused("emulator.kernel_numbers", EmulatorError, count=2):
        kernel.emulate(*arrays, blocks={2: []})


def test_blocks_of_a_command_line() -> None:
    assert parsed("0:3,1/5") == {0: [(0, 0, 0), (3, 1, 0)], 1: [(5, 0, 0)]}
    assert parsed("/5") == {0: [], 1: [(5, 0, 0)]}
    for text in ("/", "1/x"):
        with refused("sample.option", WorkloadError, value=text):
            parsed(text)


FILE = """
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm


def product():
    return schedule_gemm(Gemm(128, 128, 256), GemmTile(32, 32, 32, splits=4))
"""


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    once = ("verify", f"{path}:product", "--target", "a100", "--timing", "late")
    assert cli.main([*once, "--order", "lockstep"]) == 0
    _, first, second, _ = capsys.readouterr().out.splitlines()
    name = "gemm_128x128x256_float16_nt_kernel"
    assert re.match(rf"  ran {name}: \d+ of 64 CTAs: \(0, 0, 0\) first; ", first)
    assert re.match(rf"  ran {name}_1: \d+ of 32 CTAs: \(0, 0, 0\) first; ", second)
    assert second.endswith("; between CTAs: no two of 32 meet in an element, by their indices")
    assert cli.main([*once, "--order", "lockstep", "--blocks", "/0", "--json"]) == 0
    ctas = json.loads(capsys.readouterr().out)["ctas"]
    assert ctas[f"{name}_1"] == [[0, 0, 0]]
    assert {block[2] for block in ctas[name]} == set(range(4))
