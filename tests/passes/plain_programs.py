"""Functions that bind blocks to CTAs and nothing to threads, of all that people write in loops.

Two outputs, reductions to one element, loops of statements that only one thread can make, triangles,
tiles beyond shared memory. Each with its arguments and what it makes of them, by numpy; values are
small integers, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script import tirx as T

Arrays = Mapping[str, np.ndarray]


@T.prim_func(s_tir=True)
def two_outputs(A: T.Buffer((2, 40, 24), "float32"), B: T.Buffer((2, 24, 40), "float32"),
                C: T.Buffer((2, 40, 40), "float32"), D: T.Buffer((2, 40, 40), "float32")):  # fmt: skip
    """A product and its transposed, added to what is there."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for i, j, k in T.grid(40, 40, 24):
            with T.sblock("product"):
                C[bx, i, j] = C[bx, i, j] + A[bx, i, k] * B[bx, k, j]
        for i, j, k in T.grid(40, 40, 24):
            with T.sblock("transposed"):
                D[bx, j, i] = D[bx, j, i] + A[bx, i, k] * B[bx, k, j]


@T.prim_func(s_tir=True)
def whole_sum(X: T.Buffer((3, 1000), "float32"), Y: T.Buffer((3, 3), "float32")):
    """Sum, largest and least of a row: one element each."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(3, thread="blockIdx.x"):
        with T.sblock("cta"):
            t = T.sblock_alloc_buffer((3,), "float32", scope="local")
            t[0] = T.float32(0)
            t[1] = T.min_value("float32")
            t[2] = T.max_value("float32")
            for j in T.serial(1000):
                with T.sblock("sum"):
                    t[0] = t[0] + X[bx, j]
            for j in T.serial(1000):
                with T.sblock("most"):
                    t[1] = T.max(X[bx, j], t[1])
            for j in T.serial(1000):
                with T.sblock("least"):
                    t[2] = T.min(t[2], X[bx, j])
            for i in T.serial(3):
                with T.sblock("out"):
                    Y[bx, i] = t[i]


@T.prim_func(s_tir=True)
def few_rows(X: T.Buffer((2, 5, 7, 33), "int8"), Y: T.Buffer((2, 5), "int32")):
    """Five sums of 231 terms, some of which do not count."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for i, r, j in T.grid(5, 7, 33):
            with T.sblock("sum"):
                T.where(r * 33 + j < 200)
                Y[bx, i] = Y[bx, i] + T.Cast("int32", X[bx, i, r, j])


@T.prim_func(s_tir=True)
def argmax(X: T.Buffer((2, 300), "float32"), at: T.Buffer((2,), "int32"), M: T.Buffer((2,), "float32")):  # fmt: skip
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        M[bx] = T.min_value("float32")
        for j in T.serial(300):
            if M[bx] < X[bx, j]:
                M[bx] = X[bx, j]
                at[bx] = j


@T.prim_func(s_tir=True)
def conditional(X: T.Buffer((2, 64, 9), "float32"), on: T.Buffer((2, 64), "bool"), Y: T.Buffer((2, 64, 9), "float32"),
                F: T.Buffer((2, 64), "bool")):  # fmt: skip
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for i, j in T.grid(64, 9):
            with T.sblock("taken"):
                T.where(on[bx, i])
                Y[bx, i, j] = X[bx, i, j] * T.float32(2)
        for i in T.serial(64):
            with T.sblock("flag"):
                F[bx, i] = on[bx, i] and X[bx, i, 0] > T.float32(0)


@T.prim_func(s_tir=True)
def triangular(A: T.Buffer((2, 24, 24), "float32"), Y: T.Buffer((2, 24), "float32")):
    """Forward substitution: row i needs all rows before it."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for i in T.serial(24):
            for j in T.serial(i):
                Y[bx, i] = Y[bx, i] - A[bx, i, j] * Y[bx, j]


@T.prim_func(s_tir=True)
def halved_until(X: T.Buffer((2, 64), "int32"), Y: T.Buffer((2, 64), "int32")):
    """How often each can be halved: a while loop for each element."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            v = T.sblock_alloc_buffer((1,), "int32", scope="local")
            for i in T.serial(64):
                v[0] = X[bx, i]
                Y[bx, i] = 0
                while v[0] % 2 == 0:
                    v[0] = v[0] // 2
                    Y[bx, i] = Y[bx, i] + 1


@T.prim_func(s_tir=True)
def casts(X: T.Buffer((2, 70), "int8"), U: T.Buffer((2, 70), "uint8"), H: T.Buffer((2, 70), "float16"),
          B: T.Buffer((2, 70), "bool")):  # fmt: skip
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for i in T.serial(70):
            with T.sblock("bytes"):
                U[bx, i] = T.Cast("uint8", T.Cast("int32", X[bx, i]) + 100)
        for i in T.serial(70):
            with T.sblock("halves"):
                H[bx, i] = T.Cast("float16", X[bx, 69 - i]) * T.float16(0.5)
        for i in T.serial(70):
            with T.sblock("bools"):
                B[bx, i] = X[bx, i] != T.int8(0)


@T.prim_func(s_tir=True)
def histogram(X: T.Buffer((2, 200), "int32"), H: T.Buffer((2, 16), "int32")):
    """One count after the other, as the loop says: no atomic."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            count = T.sblock_alloc_buffer((16,), "int32", scope="shared")
            for b in T.serial(16):
                with T.sblock("zero"):
                    count[b] = 0
            for i in T.serial(200):
                with T.sblock("count"):
                    count[X[bx, i]] = count[X[bx, i]] + 1
            for b in T.serial(16):
                with T.sblock("out"):
                    H[bx, b] = count[b]


@T.prim_func(s_tir=True)
def prefix_sum(X: T.Buffer((2, 257), "float32"), Y: T.Buffer((2, 257), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        Y[bx, 0] = X[bx, 0]
        for i in T.serial(256):
            with T.sblock("prefix"):
                Y[bx, i + 1] = Y[bx, i] + X[bx, i + 1]


@T.prim_func(s_tir=True)
def large_tile(A: T.Buffer((2,), "float64"), C: T.Buffer((2, 128, 256), "float64"),
               R: T.Buffer((2, 128), "float64")):  # fmt: skip
    """A tile of results of 256 KiB, of which sums are made when it is done."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            acc = T.sblock_alloc_buffer((128, 256), "float64", scope="local")
            total = T.sblock_alloc_buffer((128,), "float64", scope="local")
            for i, j in T.grid(128, 256):
                with T.sblock("product"):
                    acc[i, j] = A[bx] * T.Cast("float64", i * 256 + j)
            for i in T.serial(128):
                with T.sblock("total_zero"):
                    total[i] = T.float64(0)
            for i, j in T.grid(128, 128):
                with T.sblock("total"):
                    total[i] = total[i] + acc[j, i]
            for i, j in T.grid(128, 256):
                with T.sblock("out"):
                    C[bx, i, j] = acc[i, j]
            for i in T.serial(128):
                with T.sblock("out_total"):
                    R[bx, i] = total[i]


@T.prim_func(s_tir=True)
def large_step(A: T.Buffer((2, 64, 2048), "float32"), B: T.Buffer((48, 2048), "float32"),
               C: T.Buffer((2, 64, 48), "float32")):  # fmt: skip
    """Tiles of an operand of 512 KiB in shared memory."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            S = T.sblock_alloc_buffer((64, 2048), "float32", scope="shared")
            for i, k in T.grid(64, 2048):
                with T.sblock("copy"):
                    S[i, k] = A[bx, i, k]
            for i, j in T.grid(64, 48):
                with T.sblock("zero"):
                    C[bx, i, j] = T.float32(0)
            for i, j in T.grid(64, 48):
                with T.sblock("some"):
                    C[bx, i, j] = C[bx, i, j] + S[i, j * 40] * B[j, i * 30]


@T.prim_func(s_tir=True)
def second_kernel(X: T.Buffer((2, 96), "float32"), Y: T.Buffer((2, 96), "float32"), Z: T.Buffer((4,), "float32")):  # fmt: skip
    """Two kernels, of which the second has a nest that needs the first's results."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for j in T.serial(96):
            with T.sblock("doubled"):
                Y[bx, j] = X[bx, j] * T.float32(2)
    for by in T.thread_binding(4, thread="blockIdx.x"):
        Z[by] = T.float32(0)
        for i, j in T.grid(2, 24):
            with T.sblock("sum"):
                Z[by] = Z[by] + Y[i, by * 24 + j]


def _integers(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(dtype)


@dataclass(frozen=True)
class Program:
    """A function, its arguments by name, and the arrays that it makes of them."""

    func: Any
    arrays: Callable[[np.random.Generator], dict[str, np.ndarray]]
    meaning: Callable[[Arrays], Arrays]
    says: tuple[str, dict[str, object]] | None = None
    """The code and some arguments of a reason that its plan has."""


def _substituted(arrays: Arrays) -> Arrays:
    y = arrays["Y"].copy()
    for i in range(24):
        for j in range(i):
            y[:, i] -= arrays["A"][:, i, j] * y[:, j]
    return {"Y": y}


def _triangle(rng: np.random.Generator) -> dict[str, np.ndarray]:
    a = rng.integers(-1, 2, (2, 24, 24)) * (rng.random((2, 24, 24)) < 0.2)
    return {"A": a.astype("float32"), "Y": _integers(rng, 2, 24)}


def _halvings(arrays: Arrays) -> Arrays:
    x = arrays["X"]
    return {"Y": np.vectorize(lambda v: (int(v) & -int(v)).bit_length() - 1)(x)}


def _of_tile(arrays: Arrays) -> Arrays:
    c = arrays["A"][:, None, None] * np.arange(128 * 256).reshape(128, 256)
    return {"C": c, "R": c[..., :128].sum(1)}


def _of_step(arrays: Arrays) -> Arrays:
    a, b = arrays["A"], arrays["B"]
    return {"C": a[:, :, np.arange(48) * 40] * b[:, np.arange(64) * 30].T}


PROGRAMS = {
    "two outputs": Program(
        two_outputs,
        lambda r: {"A": _integers(r, 2, 40, 24), "B": _integers(r, 2, 24, 40),
                   "C": _integers(r, 2, 40, 40), "D": _integers(r, 2, 40, 40)},
        lambda a: {"C": a["C"] + a["A"] @ a["B"],
                   "D": a["D"] + (a["A"] @ a["B"]).transpose(0, 2, 1)},
    ),
    "whole sum": Program(
        whole_sum,
        # No maximum of the first row, and no minimum of the last, is 0 or beyond.
        lambda r: {"X": _integers(r, 3, 1000) + np.array([[-9], [0], [9]], "float32"),
                   "Y": np.zeros((3, 3), "float32")},
        lambda a: {"Y": np.stack([a["X"].sum(1), a["X"].max(1), a["X"].min(1)], 1)},
        ("mapped.in_parts", {"threads": 256, "buffer": "t", "block": "sum"}),
    ),
    "few rows": Program(
        few_rows,
        lambda r: {"X": _integers(r, 2, 5, 7, 33, dtype="int8"),
                   "Y": _integers(r, 2, 5, dtype="int32")},
        lambda a: {"Y": a["Y"] + a["X"].reshape(2, 5, -1)[..., :200].sum(2, dtype="int32")},
        ("mapped.in_parts", {"buffer": "Y", "block": "sum", "elements": 5}),
    ),
    "argmax": Program(
        argmax,
        lambda r: {"X": _integers(r, 2, 300) * _integers(r, 2, 300), "at": np.full(2, -1, "int32"),
                   "M": np.zeros(2, "float32")},
        lambda a: {"at": a["X"].argmax(1), "M": a["X"].max(1)},
        ("share.nothing", {}),
    ),
    "conditional stores": Program(
        conditional,
        lambda r: {"X": _integers(r, 2, 64, 9), "on": r.random((2, 64)) < 0.5,
                   "Y": _integers(r, 2, 64, 9), "F": np.zeros((2, 64), bool)},
        lambda a: {"Y": np.where(a["on"][..., None], 2 * a["X"], a["Y"]),
                   "F": a["on"] & (a["X"][..., 0] > 0)},
    ),
    "triangular loops": Program(triangular, _triangle, _substituted, ("share.nothing", {})),
    "while loop": Program(
        halved_until,
        lambda r: {"X": r.integers(1, 200, (2, 64)).astype("int32"),
                   "Y": np.zeros((2, 64), "int32")},
        _halvings,
        ("share.nothing", {}),
    ),
    "casts": Program(
        casts,
        lambda r: {"X": _integers(r, 2, 70, dtype="int8"), "U": np.zeros((2, 70), "uint8"),
                   "H": np.zeros((2, 70), "float16"), "B": np.zeros((2, 70), bool)},
        lambda a: {"U": a["X"].astype("int32") + 100, "H": a["X"][:, ::-1] / 2, "B": a["X"] != 0},
    ),
    "histogram": Program(
        histogram,
        lambda r: {"X": r.integers(0, 16, (2, 200)).astype("int32"),
                   "H": np.zeros((2, 16), "int32")},
        lambda a: {"H": np.stack([np.bincount(row, minlength=16) for row in a["X"]])},
        ("mapped.by_one", {"block": "count"}),
    ),
    "prefix sum": Program(
        prefix_sum,
        lambda r: {"X": _integers(r, 2, 257), "Y": np.zeros((2, 257), "float32")},
        lambda a: {"Y": a["X"].cumsum(1)},
        ("share.block", {"block": "prefix"}),
    ),
    "a tile beyond shared memory": Program(
        large_tile,
        lambda r: {"A": _integers(r, 2, dtype="float64"), "C": np.zeros((2, 128, 256)),
                   "R": np.zeros((2, 128))},
        _of_tile,
        ("mapped.workspace", {"buffer": "acc", "nbytes": 262144}),
    ),
    "a step beyond shared memory": Program(
        large_step,
        lambda r: {"A": _integers(r, 2, 64, 2048), "B": _integers(r, 48, 2048),
                   "C": np.zeros((2, 64, 48), "float32")},
        _of_step,
        ("mapped.workspace", {"buffer": "S", "nbytes": 524288}),
    ),
    "a second kernel": Program(
        second_kernel,
        lambda r: {"X": _integers(r, 2, 96), "Y": np.zeros((2, 96), "float32"),
                   "Z": np.zeros(4, "float32")},
        lambda a: {"Y": 2 * a["X"], "Z": 2 * a["X"].reshape(2, 4, 24).sum((0, 2))},
    ),
}  # fmt: skip
