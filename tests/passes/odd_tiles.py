"""A matmul of tiles with something beside it that not every instruction has room for.

A grid of two CTAs, one loop over K, nothing bound to threads. Each kind adds its own statements,
arguments and what they mean to numpy. Values are small integers: sums are exact in any order.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tvm

DEPTH: Final = 128
"""Of K."""

SUMS: Final = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "int8": "int32"}

Arrays = Mapping[str, Any]

_COPY: Final = """
for i, r in T.grid({rows}, {k}):
    with T.sblock("{tile}"):
        vi, vr = T.axis.remap("SS", [i, r])
        {tile}[vi, vr] = {value}
"""
_PRODUCT: Final = """
for i, j, r in T.grid({m}, {n}, {k}):
    with T.sblock("{acc}_product"):
        vi, vj, vr = T.axis.remap("SSR", [i, j, r])
        {acc}[vi, vj] = {acc}[vi, vj] + T.Cast("{sum}", {a}[vi, vr]) * T.Cast("{sum}", {b}[vj, vr])
"""
_WHOLE: Final = """
for i, j in T.grid({m}, {n}):
    with T.sblock("{name}"):
        vi, vj = T.axis.remap("SS", [i, j])
        {store}
"""
_ROWS: Final = """
for i in T.serial({m}):
    with T.sblock("{name}"):
        vi = T.axis.remap("S", [i])
        {store}
"""
_ALONG: Final = """
for i, j in T.grid({m}, {extent}):
    with T.sblock("{name}"):
        vi, vj = T.axis.remap("SR", [i, j])
        {store}
"""
_KERNEL: Final = """
@T.prim_func(s_tir=True)
def main({params}):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            acc = T.sblock_alloc_buffer(({m}, {n}), "{sum}", scope="local")
{allocs}
{before}
            for k0 in T.serial({steps}):
{condition}
                with T.sblock("step"):
                    S = T.sblock_alloc_buffer(({m}, {k}), "{type}", scope="shared")
                    U = T.sblock_alloc_buffer(({n}, {k}), "{type}", scope="shared")
{step}
{behind}
"""


@dataclass
class Odd:
    """What a kind adds. ``meaning``: of its arrays; ``params``: shapes and types, in order."""

    meaning: Callable[[Arrays, np.ndarray], Arrays]
    params: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    allocs: str = ""
    before: str = ""
    condition: str = ""
    left: str = ""
    step: str = ""
    behind: str = ""
    store: str = "C[bx * {m} + vi, vj] = acc[vi, vj]"


@dataclass(frozen=True)
class Case:
    """One program: a kind at a tile of M, N and K, of factors of ``dtype``."""

    kind: str
    dtype: str
    tile: tuple[int, int, int]

    @property
    def names(self) -> dict[str, Any]:
        """What the texts of a program are filled with."""
        m, n, k = self.tile
        return {"m": m, "n": n, "k": k, "type": self.dtype, "sum": SUMS[self.dtype],
                "steps": DEPTH // k, "deep": DEPTH, "rows": 2 * m}  # fmt: skip

    @property
    def odd(self) -> Odd:
        """What its kind adds."""
        return KINDS[self.kind](self)

    def params(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of every array."""
        m, n, _ = self.tile
        return {
            "A": ((2 * m, DEPTH), self.dtype),
            "B": ((n, DEPTH), self.dtype),
            **self.odd.params,
            "C": ((2 * m, n), SUMS[self.dtype]),
        }

    def function(self) -> Any:
        """The function, as TVM reads it."""
        odd, names = self.odd, self.names

        def fill(text: str, deep: int, **more: Any) -> str:
            return textwrap.indent(text.format(**names, **more).strip("\n"), " " * deep)

        left = odd.left or "A[bx * {m} + vi, k0 * {k} + vr]"
        step = _copy("S", left, "m") + _copy("U", "B[vi, k0 * {k} + vr]", "n")
        params = ", ".join(
            f'{name}: T.Buffer({shape}, "{dtype}")'
            for name, (shape, dtype) in self.params().items()
        )
        text = _KERNEL.format(
            **names,
            params=params,
            allocs=fill(odd.allocs, 12),
            before=fill(_whole("acc_zero", "acc[vi, vj] = T.{sum}(0)") + odd.before, 12),
            condition=fill(odd.condition or "if True:", 14),
            step=fill(step + _product("acc", "S", "U") + odd.step, 20),
            behind=fill(odd.behind + _whole("store", odd.store), 12),
        )
        return tvm.script.from_source(text, check_well_formed=False)

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Contents of the parameters."""
        rng = np.random.default_rng(seed)
        made = {
            name: rng.integers(-2, 3, shape).astype(_numpy(dtype))
            for name, (shape, dtype) in self.params().items()
        }
        if "to" in made:
            made["to"] = rng.permutation(len(made["to"])).astype("int32")
        return made

    def expected(self, arrays: Arrays) -> Arrays:
        """The arrays that it writes, afterwards."""
        wide = {name: array.astype(np.float64) for name, array in arrays.items()}
        return self.odd.meaning(wide, wide["A"] @ wide["B"].T)


def _numpy(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return dtype


def _copy(tile: str, value: str, rows: str) -> str:
    return _COPY.replace("{tile}", tile).replace("{value}", value).replace("{rows}", f"{{{rows}}}")


def _product(acc: str, a: str, b: str) -> str:
    named = _PRODUCT.replace("{acc}", acc)
    return named.replace("{a}", a).replace("{b}", b)


def _whole(name: str, store: str, text: str = _WHOLE) -> str:
    return text.replace("{name}", name).replace("{store}", store)


def _rows(name: str, store: str) -> str:
    return _whole(name, store, _ROWS)


def _along(name: str, store: str, extent: str) -> str:
    return _whole(name, store, _ALONG).replace("{extent}", extent)


def _alloc(name: str, shape: str, scope: str) -> str:
    return f'{name} = T.sblock_alloc_buffer({shape}, "{{sum}}", scope="{scope}")\n'


def _plain(_: Case) -> Odd:
    return Odd(lambda arrays, product: {"C": product})


def _condition(case: Case) -> Odd:
    steps, k = case.names["steps"], case.tile[2]

    def meaning(arrays: Arrays, _: np.ndarray) -> Arrays:
        taken = np.repeat(arrays["on"] > 0, k)
        return {"C": (arrays["A"] * taken) @ arrays["B"].T}

    return Odd(meaning, {"on": ((steps,), "int32")}, condition="if on[k0] > 0:")


def _two_matmuls(case: Case) -> Odd:
    _, n, _ = case.tile
    rows, sums = 2 * case.tile[0], SUMS[case.dtype]
    return Odd(
        lambda arrays, product: {"C": product, "D": arrays["A"] @ arrays["E"].T},
        {"E": ((n, DEPTH), case.dtype), "D": ((rows, n), sums)},
        allocs=_alloc("more", "({m}, {n})", "local"),
        before=_whole("more_zero", "more[vi, vj] = T.{sum}(0)"),
        step='V = T.sblock_alloc_buffer(({n}, {k}), "{type}", scope="shared")'
        + _copy("V", "E[vi, k0 * {k} + vr]", "n")
        + _product("more", "S", "V"),
        behind=_whole("store_more", "D[bx * {m} + vi, vj] = more[vi, vj]"),
    )


def _prologue(case: Case) -> Odd:
    return Odd(
        lambda arrays, _: {"C": np.maximum(arrays["A"], 0) @ arrays["B"].T},
        left="T.max(A[bx * {m} + vi, k0 * {k} + vr], T.{type}(0))",
    )


def _row_sums(scope: str) -> Callable[[Case], Odd]:
    def made(case: Case) -> Odd:
        return Odd(
            lambda arrays, product: {"C": product, "R": arrays["A"].sum(1)},
            {"R": ((2 * case.tile[0],), SUMS[case.dtype])},
            allocs=_alloc("total", "({m},)", scope),
            before=_rows("total_zero", "total[vi] = T.{sum}(0)"),
            step=_along("sum", 'total[vi] = total[vi] + T.Cast("{sum}", S[vi, vj])', "{k}"),
            behind=_rows("store_sum", "R[bx * {m} + vi] = total[vi]"),
        )

    return made


def _store_inside(case: Case) -> Odd:
    store = _whole("tap", "D[bx * {m} + vi, k0 * {k} + vj] = S[vi, vj] + T.{type}(1)")
    return Odd(
        lambda arrays, product: {"C": product, "D": arrays["A"] + 1},
        {"D": ((2 * case.tile[0], DEPTH), case.dtype)},
        step=store.replace("{n}", "{k}"),
    )


def _two_loops(case: Case) -> Odd:
    second = """
for k1 in T.serial({steps}):
    with T.sblock("second"):
        W = T.sblock_alloc_buffer(({m}, {k}), "{type}", scope="shared")
        X = T.sblock_alloc_buffer(({n}, {k}), "{type}", scope="shared")
"""
    body = _copy("W", "A[bx * {m} + vi, k1 * {k} + vr]", "m")
    body += _copy("X", "E[vi, k1 * {k} + vr]", "n") + _product("acc", "W", "X")
    return Odd(
        lambda arrays, product: {"C": product + arrays["A"] @ arrays["E"].T},
        {"E": ((case.tile[1], DEPTH), case.dtype)},
        behind=second + textwrap.indent(body, " " * 8),
    )


def _scatter(case: Case) -> Odd:
    def meaning(arrays: Arrays, product: np.ndarray) -> Arrays:
        made = np.zeros_like(product)
        made[arrays["to"].astype(int)] = product
        return {"C": made}

    rows = 2 * case.tile[0]
    return Odd(meaning, {"to": ((rows,), "int32")}, store="C[to[bx * {m} + vi], vj] = acc[vi, vj]")


def _row_maxima(scope: str) -> Callable[[Case], Odd]:
    def made(case: Case) -> Odd:
        return Odd(
            lambda arrays, product: {"C": product - product.max(1)[:, None], "R": product.max(1)},
            {"R": ((2 * case.tile[0],), SUMS[case.dtype])},
            allocs=_alloc("most", "({m},)", scope),
            behind=_rows("most_first", 'most[vi] = T.min_value("{sum}")')
            + _along("most_of", "most[vi] = T.max(most[vi], acc[vi, vj])", "{n}")
            + _rows("most_store", "R[bx * {m} + vi] = most[vi]"),
            store="C[bx * {m} + vi, vj] = acc[vi, vj] - most[vi]",
        )

    return made


KINDS: Final[dict[str, Callable[[Case], Odd]]] = {
    "plain": _plain,
    "condition": _condition,
    "two matmuls": _two_matmuls,
    "prologue": _prologue,
    "row sums": _row_sums("local"),
    "row sums in shared memory": _row_sums("shared"),
    "store inside": _store_inside,
    "two loops": _two_loops,
    "scatter": _scatter,
    "row maxima": _row_maxima("local"),
    "row maxima in shared memory": _row_maxima("shared"),
}
