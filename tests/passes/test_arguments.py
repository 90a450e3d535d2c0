"""What a call checks of its arguments: arrays that overlap, and pointers that are not aligned."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
import tvm

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import EmulatorError, PlanError
from pipeliner.passes.dependence.overlap import OVERLAP
from pipeliner.schedules import Gemm
from tests.refusals import refused, says

from .gpu_tensors import Launched, call

Array = np.ndarray

HEADER = """
@T.prim_func(s_tir=True)
def main({parameters}):
    T.func_attr({{"global_symbol": "main"{noalias}}})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                r = T.sblock_alloc_buffer((4,), "float32", scope="local")
                Xs = T.sblock_alloc_buffer((64,), "float32", scope="shared")
{body}
"""
ROWS = 'A: T.Buffer((40, 64), "float32"), C: T.Buffer((40, 64), "float32")'

STAGED = """
for t in T.serial(12):
    with T.sblock("ld"):
        Xs[tx] = A[bx * 12 + t, tx]
    with T.sblock("st"):
        C[{row}, {column}] = Xs[{read}] + T.float32(1)
"""

IN_PLACE = {
    "elementwise": """
for t in T.serial(12):
    with T.sblock("st"):
        C[bx * 12 + t, tx] = A[bx * 12 + t, tx] * T.float32(2) + T.float32(1)
""",
    "staged": STAGED.format(row="bx * 12 + t", column="tx", read="63 - tx"),
    "two passes over a row": """
r[0] = T.float32(0)
for t in T.serial(10):
    with T.sblock("sum"):
        r[0] = r[0] + A[bx * 10 + t, tx]
for t in T.serial(10):
    with T.sblock("st"):
        C[bx * 10 + t, tx] = A[bx * 10 + t, tx] - r[0]
""",
}

APART = {
    "the next row": STAGED.format(row="bx * 12 + t + 1", column="tx", read="63 - tx"),
    "another thread's element": STAGED.format(row="bx * 12 + t", column="63 - tx", read="tx"),
    "every thread's element": STAGED.format(row="bx * 12 + t", column="0", read="tx"),
    "a row of another CTA": STAGED.format(row="(1 - bx) * 12 + t", column="tx", read="tx"),
    "a load behind the store": """
for t in T.serial(12):
    with T.sblock("st"):
        C[bx * 12 + t, tx] = T.float32(1)
    with T.sblock("ld"):
        r[0] = r[0] + A[bx * 12 + t, tx]
""",
    "a store that no value orders": """
for t in T.serial(12):
    with T.sblock("ld"):
        r[0] = r[0] + A[bx * 12 + t, tx]
    with T.sblock("st"):
        C[bx * 12 + t, tx] = T.float32(1)
""",
    "a condition": """
for t in T.serial(12):
    with T.sblock("st"):
        if A[bx * 12 + t, tx] > T.float32(0):
            C[bx * 12 + t, tx] = T.float32(1)
""",
    "a pointer": """
for t in T.serial(12):
    with T.sblock("st"):
        T.evaluate(T.cuda.atomic_add(T.address_of(C[bx * 12 + t, tx]), A[bx * 12 + t, tx]))
""",
}


def function(body: str, parameters: str = ROWS, noalias: bool = False) -> Any:
    text = "\n".join(" " * 16 + line for line in body.strip("\n").splitlines())
    said = ', "tirx.noalias": True' if noalias else ""
    script = HEADER.format(parameters=parameters, noalias=said, body=text)
    return tvm.script.from_source(script)


def rows(count: int = 2) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, (40, 64)).astype("float32") for _ in range(count)]


A_OVERLAPS: Final = Reason("call.overlap", function="main", other_at=0, other="A", at=1, name="C")
C_OVERLAPS: Final = Reason("call.overlap", function="main", other_at=1, other="C", at=0, name="A")


def overlapping() -> tuple[Array, Array]:
    """Arrays of which the second begins a row further than the first."""
    memory = np.zeros((41, 64), "float32")
    return memory[:40], memory[1:]


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_function_that_is_used_in_place_on_purpose_may_be(name: str) -> None:
    kernel = pipeliner.build(function(IN_PLACE[name]), "sm_80")
    (first, second) = rows()
    with pytest.raises(Launched):
        call(kernel, first, first)
    disjoint, one = kernel.emulate(first, second), kernel.emulate(first, first)
    assert not one.hazards
    np.testing.assert_array_equal(one.outputs["C"][:20], disjoint.outputs["C"][:20])
    at = {"other_at": 0, "other": "A", "at": 1, "name": "C"}
    said = Reason("call.partial_overlap", function="main", **at)
    with refused("emulator.host_check", EmulatorError, says=str(said)):
        kernel.emulate(*overlapping())


OWN = """
for t in T.serial(12):
    with T.sblock("ld"):
        Xs[tx] = A[{row}, tx]
    with T.sblock("st"):
        A[bx * 20 + t, tx] = Xs[63 - tx] + C[bx * 12 + t, tx]
"""

AGAIN = {
    "a call may give one array": (
        IN_PLACE["staged"],
        False,
        Reason("clamp.aliased", read="A", written="C"),
    ),
    "no call may": (IN_PLACE["staged"], True, None),
    "the loop writes it": (
        OWN.format(row="bx * 20 + t"),
        True,
        Reason("clamp.written", writer="st", buffer="A", copy="ld"),
    ),
    "the loop writes the row before": (
        OWN.format(row="bx * 20 + t + 1"),
        True,
        Reason("clamp.written", writer="st", buffer="A", copy="ld"),
    ),
}


@pytest.mark.parametrize("name", AGAIN)
@pytest.mark.part(6)
def test_a_last_tile_that_is_written_is_not_read_again(name: str) -> None:
    """Copies past the end would repeat it: asked for, that is refused, whoever asks."""
    body, noalias, why = AGAIN[name]
    func = function(body, ROWS, noalias)
    kernel = pipeliner.build(func, "sm_80", depth=2)
    (loop,) = kernel.plan.loops
    assert "cp.async" in kernel.cuda
    assert loop.epilogue == ("rolled" if why else "clamped")
    assert says("clamped.guarded", loop.reasons) is bool(why)
    (first, second) = rows()
    assert not kernel.emulate(first, second if noalias else first).hazards
    if not why:
        return
    with refused("clamped.overwritten", PlanError, loop="t", why=why):
        pipeliner.build(func, "sm_80", depth=2, epilogue="clamped")
    edited = kernel.plan.with_loop(replace(loop, epilogue="clamped"))
    with refused("clamped.overwritten", PlanError, loop="t", why=why):
        pipeliner.build(func, "sm_80", plan=edited)


@pytest.mark.slow
@pytest.mark.parametrize("name", APART)
@pytest.mark.part(9)
def test_overlap_that_changes_the_result_is_an_error(name: str) -> None:
    kernel = pipeliner.build(function(APART[name]), "sm_80")
    said = [str(A_OVERLAPS), str(C_OVERLAPS)]
    (first, second) = rows()
    with pytest.raises(Launched):
        call(kernel, first, second)
    for given in ((first, first), overlapping(), overlapping()[::-1]):
        with pytest.raises(ValueError, match="|".join(map(re.escape, said))):
            call(kernel, *given)
    if name != "a pointer":
        found = {hazard.kind for hazard in kernel.emulate(first, second).hazards}
        assert found == ({"race"} if name == "every thread's element" else set())
    with refused("emulator.host_check", EmulatorError) as error:
        kernel.emulate(first, first)
    assert error.value.reason["says"] in said


def test_tvms_own_driver_has_the_check() -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    mod = tvm.IRModule({"main": function(APART["the next row"])})
    with target:
        built = tvm.compile(mod, target, tir_pipeline="pipeliner")
    at = {"other_at": 0, "other": "A", "at": 1, "name": "C"}
    assert str(Reason("call.overlap", function="main", **at)) in built.mod.inspect_source("ll")


def test_neighbours_touch_and_do_not_overlap() -> None:
    kernel = pipeliner.build(function(APART["the next row"]), "sm_80")
    memory = np.zeros((80, 64), "float32")
    for given in ((memory[:40], memory[40:]), (memory[40:], memory[:40])):
        with pytest.raises(Launched):
            call(kernel, *given)


def test_what_promises_is_not_checked() -> None:
    fast = pipeliner.pipeline(function(APART["the next row"], noalias=True), "sm_80")
    assert OVERLAP not in fast.attrs


def test_two_inputs_may_be_one() -> None:
    parameters = ROWS + ', B: T.Buffer((40, 64), "float32")'
    body = IN_PLACE["staged"].replace("Xs[63 - tx] +", "Xs[63 - tx] + B[t, tx] +")
    fast = pipeliner.pipeline(function(body, parameters), "sm_80")
    pairs = [[int(n) for n in pair] for pair in fast.attrs[OVERLAP]]
    assert pairs == [[1, 0, 1], [1, 2, 0]]  # of C with A and of C with B: B[t] is read by both CTAs


def test_two_outputs_are_apart() -> None:
    body = "for t in T.serial(12):\n    A[bx * 12 + t, tx] = T.float32(1)\n    C[t, tx] = r[0]"
    fast = pipeliner.pipeline(function(body), "sm_80")
    assert [[int(n) for n in pair] for pair in fast.attrs[OVERLAP]] == [[0, 1, 0]]


def test_sizes_that_are_known_at_the_call_only() -> None:
    parameters = "a: T.handle, c: T.handle, n: T.int32"
    bind = (
        'A = T.match_buffer(a, (n, 64), "float32")\n    C = T.match_buffer(c, (n, 64), "float32")'
    )
    body = "for t in T.serial(n):\n    with T.sblock('st'):\n        C[t, tx] = A[n - 1 - t, tx]"
    text = HEADER.replace("    T.func_attr", f"    {bind}\n    T.func_attr").format(
        parameters=parameters,
        noalias="",
        body="\n".join(" " * 16 + line for line in body.splitlines()),
    )
    kernel = pipeliner.build(tvm.script.from_source(text), "sm_80")
    memory = np.zeros((20, 64), "float32")
    assert not kernel.emulate(memory[:10], memory[10:], 10).hazards
    with refused("emulator.host_check", EmulatorError, says=str(A_OVERLAPS)):
        kernel.emulate(memory[:10], memory[9:19], 10)


VECTORS = """
for t in T.serial(12):
    with T.sblock("st"):
        for v in T.vectorized(4):
            C[(bx * 12 + t) * 256 + tx * 4 + v] = A[(bx * 12 + t) * 256 + tx * 4 + v{shift}]
"""
FLAT = 'A: T.Buffer((8192,), "float32"), C: T.Buffer((8192,), "float32")'


def shifted(elements: int, dtype: str = "float32", size: int = 8192) -> Array:
    """An array that begins ``elements`` behind a boundary of 64 bytes."""
    memory = np.zeros(size + 128, dtype)
    start = -memory.ctypes.data % 64 // memory.itemsize
    return memory[start + elements :][:size]


def unaligned(function: str, at: int, name: str) -> Reason:
    """That an argument is not aligned to 16 bytes."""
    return Reason("call.alignment", function=function, at=at, name=name, nbytes=16)


class Ran(Exception):
    """The emulator found nothing wrong."""


def emulated(kernel: Any, *arrays: Array) -> None:
    kernel.emulate(*arrays)
    raise Ran


@pytest.mark.parametrize("run", [call, emulated])
@pytest.mark.parametrize(("shift", "least"), [("", 16), (" + 1", 4)])
def test_a_pointer_less_aligned_than_the_code_needs_is_an_error(
    run: Callable[..., None], shift: str, least: int
) -> None:
    kernel = pipeliner.build(function(VECTORS.format(shift=shift), FLAT, noalias=True), "sm_80")
    given = [np.zeros(8192, "float32"), np.zeros(8192, "float32")]
    with pytest.raises((ValueError, EmulatorError, Launched, Ran)) as raised:
        run(kernel, shifted(1), shifted(0))
    found = str(unaligned("main", 0, "A")) in str(raised.value)
    assert found == (least == 16)
    said = re.escape(str(unaligned("main", 1, "C")))
    with pytest.raises(ValueError if run is call else EmulatorError, match=said):
        run(kernel, given[0], shifted(2))


@pytest.mark.parametrize("target", ["sm_80", "h100"])
def test_asynchronous_copies_and_tensor_maps_need_sixteen_bytes(target: str) -> None:
    kernel = pipeliner.build(Gemm(m=128, n=128, k=128, dtype="float16"), target)
    a = shifted(4, "float16", 128 * 128).reshape(128, 128)
    b, c = (np.zeros((128, 128), "float16") for _ in range(2))
    names = [str(param.name) for param in kernel.function.params]
    given = dict(zip(names, (a, b, c)))
    said = str(unaligned("gemm_128x128x128_float16_nt", 0, names[0]))
    with pytest.raises(ValueError, match=re.escape(said)):
        call(kernel, *given.values())
    with refused("emulator.host_check", EmulatorError, says=said):
        kernel.emulate(*given.values())
