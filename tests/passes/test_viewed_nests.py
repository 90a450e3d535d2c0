"""Nests that touch shared memory through views of another element size, shared out or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import from_source

import pipeliner
from pipeliner.diagnostics import Reason

from ..refusals import says, the

BYTES = 'V = T.decl_buffer((256,), "uint8", data=S.data, scope="shared")'
WORDS = 'W = T.decl_buffer((64,), "int32", data=S.data, scope="shared")'

LOAD = ["for j in range(128):", "    S[j] = A[bx, j]"]
STORE = ["for j in range(128):", "    A[bx, j] = S[j]"]


def of_lines(*lines: str) -> Any:
    """A tile function with a tile S of 128 int16, its views V of bytes and W of 32 bits."""
    body = "\n        ".join(lines)
    return from_source(f"""
@T.prim_func
def main(A: T.Buffer((12, 128), "int16"), C: T.Buffer((12, 256), "uint8")):
    T.func_attr({{"tirx.noalias": True, "global_symbol": "main"}})
    for bx in T.thread_binding(12, thread="blockIdx.x"):
        S = T.alloc_buffer((128,), "int16", scope="shared")
        {BYTES}
        {WORDS}
        {body}
""")


def made(kernel: Any, shape: tuple[int, int] = (12, 128)) -> tuple[Any, Any]:
    """What the kernel makes of random arguments; there is no hazard."""
    rng = np.random.default_rng(5)
    a = rng.integers(-(2**15), 2**15, shape).astype("int16")
    c = rng.integers(0, 256, (shape[0], 2 * shape[1])).astype("uint8")
    for order in ("lockstep", "reversed", "random"):
        run = kernel.emulate(a, c, order=order)
        assert run.hazards == (), "\n".join(map(str, run.hazards))
    return (a, c), run.outputs


def notes(kernel: Any) -> list[Any]:
    return [each for each in kernel.plan.reasons if isinstance(each, Reason)]


def barriers(kernel: Any) -> int:
    return int(kernel.cuda[kernel.cuda.rfind("__global__") :].count("__syncthreads()"))


def test_bytes_of_a_tile_are_shared_out() -> None:
    func = of_lines(
        *LOAD,
        "for j in range(256):",
        "    C[bx, j] = V[255 - j]",
        "for j in range(256):",
        "    V[j] = C[bx, j] + T.uint8(1)",
        *STORE,
    )
    kernel = pipeliner.build(func, "a100")
    (a, _), out = made(kernel)
    np.testing.assert_array_equal(out["C"], a.view("uint8")[:, ::-1])
    np.testing.assert_array_equal(out["A"], (a.view("uint8")[:, ::-1] + 1).view("int16"))
    assert not says("mapped.by_one", notes(kernel))
    assert barriers(kernel) == 3
    assert "for (" not in kernel.cuda[kernel.cuda.rfind("__global__") :]


def test_iterations_that_touch_bytes_of_their_own_are_shared_out() -> None:
    func = of_lines(
        *LOAD,
        "for j in range(128):",
        '    V[j * 2] = T.cast(S[j] // T.int16(256) % T.int16(256), "uint8")',
        "for j in range(64):",
        '    W[j] = W[j] * 2 + T.cast(S[j * 2 + 1], "int32")',
        *STORE,
    )
    kernel = pipeliner.build(func, "a100")
    (a, _), out = made(kernel)
    want = a.copy()
    want.view("uint8")[:, ::2] = a // 256 % 256
    odd = want[:, 1::2].astype("int32")
    with np.errstate(over="ignore"):
        words = want.view("int32") * 2 + odd
    np.testing.assert_array_equal(out["A"], words.view("int16"))
    assert not says("mapped.by_one", notes(kernel))
    assert "for (" not in kernel.cuda[kernel.cuda.rfind("__global__") :]


@pytest.mark.parametrize(
    ("extent", "line", "twin"),
    [
        (64, "W[j] = T.cast(S[j], 'int32')", "W[j] = T.cast(S[j * 2], 'int32')"),
        (127, "S[j] = T.cast(V[j * 2 + 2], 'int16')", "S[j] = T.cast(V[j * 2 + 1], 'int16')"),
        (64, "S[j * 2] = T.cast(V[j + 128], 'int16')", "S[j] = T.cast(V[j * 2], 'int16')"),
    ],
)
@pytest.mark.part(3)
def test_iterations_that_meet_in_a_byte_are_one_threads(extent: int, line: str, twin: str) -> None:
    kernel = pipeliner.build(
        of_lines(*LOAD, f"for j in range({extent}):", f"    {line}", *STORE), "a100"
    )
    (a, _), out = made(kernel)
    want = a.copy()
    for row in want:
        s, v, w = row, row.view("uint8"), row.view("int32")
        for j in range(extent):
            if line.startswith("W"):
                w[j] = s[j]
            elif "2 + 2" in line:
                s[j] = v[j * 2 + 2]
            else:
                s[j * 2] = v[j + 128]
    np.testing.assert_array_equal(out["A"], want)
    assert the("share.viewed", notes(kernel))["buffer"] in ("S", "W")
    assert barriers(kernel) == 2
    apart = pipeliner.build(
        of_lines(*LOAD, f"for j in range({extent}):", f"    {twin}", *STORE), "a100"
    )
    made(apart)
    assert not says("mapped.by_one", notes(apart))


def test_along_some_axes_alone() -> None:
    func = of_lines(
        *LOAD,
        "for i, j in T.grid(32, 8):",
        "    V[i * 8] = V[i * 8] + V[i * 8 + j] * T.uint8(3)",
        *STORE,
    )
    kernel = pipeliner.build(func, "a100")
    (a, _), out = made(kernel)
    want = a.copy()
    for row in want.view("uint8").reshape(12, 32, 8):
        for j in range(8):
            row[:, 0] += row[:, j] * 3
    np.testing.assert_array_equal(out["A"], want)


def test_in_a_loop_that_is_repeated() -> None:
    func = of_lines(
        *LOAD,
        "for k in range(3):",
        "    for j in range(256):",
        "        C[bx, j] = V[255 - j] + T.cast(k, 'uint8')",
        "    for j in range(256):",
        "        V[j] = C[bx, j]",
        *STORE,
    )
    kernel = pipeliner.build(func, "a100")
    (a, _), out = made(kernel)
    want = a.view("uint8").copy()
    for k in range(3):
        want = want[:, ::-1] + np.uint8(k)
    np.testing.assert_array_equal(out["A"], np.ascontiguousarray(want).view("int16"))
    assert not says("mapped.by_one", notes(kernel))


def test_what_a_view_of_global_memory_reads_is_behind_a_barrier() -> None:
    """Before, bytes were read through the view while other threads still wrote them."""
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((2, 32), "int16"), C: T.Buffer((2, 64), "uint8")):
    T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
    V = T.decl_buffer((2, 64), "uint8", data=A.data)
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for j in range(32):
            A[bx, j] = A[bx, j] * T.int16(2)
        for j in range(64):
            C[bx, j] = V[bx, 63 - j]
        for j in range(64):
            V[bx, j] = C[bx, j] + T.uint8(1)
        for j in range(32):
            A[bx, j] = A[bx, j] + T.int16(1)
""")
    kernel = pipeliner.build(func, "a100")
    (a, _), out = made(kernel, (2, 32))
    with np.errstate(over="ignore"):
        transposed = np.ascontiguousarray((a * np.int16(2)).view("uint8")[:, ::-1])
        want = (transposed + np.uint8(1)).view("int16") + np.int16(1)
    np.testing.assert_array_equal(out["C"], transposed)
    np.testing.assert_array_equal(out["A"], want)
