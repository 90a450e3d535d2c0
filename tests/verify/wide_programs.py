"""Random programs whose arrays have 2^31 elements and more: a few CTAs run, on sparse memory.

Each CTA walks some tiles of ``A``, through shared memory or not, and stores what it made of them
where their places are in ``D``, as large as ``A``, or what all of them come to in ``C``. Places are
written as a user would: in 32 bits where each index fits, and where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from pipeliner.emulator import sparse

FORMS: Final = ("flat", "rows", "columns", "deep", "divided")

Places = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Some:
    """What an array holds at some flat places."""

    places: Places
    values: Places


@dataclass(frozen=True)
class WideProgram:
    """``form``: how places are written. ``width``: of a row. ``step``: rows, or elements of
    ``flat``, that a CTA is from the next. ``trips``: tiles of a CTA, or the argument ``n``."""

    form: str
    dtype: str
    threads: int
    ctas: int
    width: int
    step: int
    trips: int | str
    shared: bool
    streams: bool
    guard: int
    cta: int

    @property
    def indices(self) -> tuple[str, ...]:
        """Indices of the element that thread ``x`` reads in step ``t`` of CTA ``b``."""
        w, s, n = self.width, self.step, self.threads
        return {
            "flat": (f"b * {s} + t * {n} + x",),
            "rows": (f"b * {s} + t", "x + 8"),
            "columns": (f"b * {s}", f"t * {n} + x"),
            "deep": (f"b // {s}", f"b % {s}", f"t * {n} + x"),
            "divided": (
                f"(b * {s * w} + t * {n} + x) // {w}",
                f"(b * {s * w} + t * {n} + x) % {w}",
            ),
        }[self.form]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ``A`` and ``D``."""
        rows = self.ctas * self.step + 16
        return {
            "flat": (rows + 16 * self.threads,),
            "deep": (self.ctas // self.step + 1, self.step, self.width),
        }.get(self.form, (rows, self.width))

    @property
    def blocks(self) -> list[tuple[int, int, int]]:
        """The CTAs that run: at both ends, where 32 bits end, and any."""
        middle = int(self.ctas * 2**31 / prod(self.shape))
        found = {0, self.cta, middle - 1, middle, self.ctas - 1}
        return [(n, 0, 0) for n in sorted(found) if 0 <= n < self.ctas]

    def steps(self, n: int) -> Iterator[tuple[int, int, Places]]:
        """Each step of each CTA that runs, with the flat places of its threads."""
        trips = n if self.trips == "n" else int(self.trips)
        x = np.arange(self.threads)
        for b, _, _ in self.blocks:
            for t in range(trips):
                known = {"b": b, "t": t, "x": x}
                index = [np.broadcast_to(eval(part, {}, known), x.shape) for part in self.indices]
                yield b, t, np.ravel_multi_index(index, self.shape)

    def arrays(self, n: int) -> dict[str, Any]:
        """Arguments: numbers wherever a CTA that runs reads."""
        a = sparse(self.shape, self.dtype)
        for _, _, places in self.steps(n):
            a.reshape(-1)[places] = numbers(places)
        out = ("D", self.shape) if self.streams else ("C", (self.ctas, self.threads))
        return {"A": a, out[0]: sparse(out[1], "int32")}


def numbers(places: Places) -> Places:
    """What ``A`` holds at ``places``."""
    return (places.astype("uint64") * 2654435761 >> 13).astype("int64") % 17 - 8


def meaning(program: WideProgram, arrays: Mapping[str, Any], n: int, m: int) -> dict[str, Some]:
    """What the arrays hold where CTAs that run write."""
    places, values = [], []
    sums = {b: np.full(program.threads, m) for b, _, _ in program.blocks}
    for b, t, here in program.steps(n):
        read = numbers(here) if t >= program.guard else np.zeros_like(here)
        seen = read[::-1] if program.shared else read
        sums[b] = sums[b] * 3 + seen
        places.append(here)
        values.append(sums[b])
    if not program.streams:
        places = [b * program.threads + np.arange(program.threads) for b in sums]
        values = list(sums.values())
    name = "D" if program.streams else "C"
    empty = [np.zeros(0, "int64")]
    return {name: Some(np.concatenate(places or empty), np.concatenate(values or empty))}


def script(program: WideProgram) -> str:
    """The program as TVMScript."""
    index = ", ".join(program.indices)
    load = f"A[{index}]"
    if program.guard:
        load = f'T.if_then_else(t >= {program.guard}, {load}, T.Cast("{program.dtype}", 0))'
    lines = [f"with T.sblock('load'): S[x] = {load}"] if program.shared else []
    seen = f"S[{program.threads - 1} - x]" if program.shared else load
    lines.append(f"with T.sblock('add'): acc[0] = acc[0] * 3 + T.Cast('int32', {seen})")
    if program.streams:
        lines.append(f"with T.sblock('store'): D[{index}] = acc[0]")
    shape = program.shape if program.streams else (program.ctas, program.threads)
    out = f'{"D" if program.streams else "C"}: T.Buffer({shape}, "int32")'
    text = f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer({program.shape}, "{program.dtype}"), {out}, n: T.int32, m: T.int32):
    T.func_attr({{"global_symbol": "main"}})
    for b in T.thread_binding({program.ctas}, thread="blockIdx.x"):
        for x in T.thread_binding({program.threads}, thread="threadIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((1,), "int32", scope="local")
                S = T.sblock_alloc_buffer(({program.threads},), "{program.dtype}", scope="shared")
                acc[0] = m
                for t in T.serial({program.trips}):
"""
    text += "".join(f"                    {line}\n" for line in lines)
    return text if program.streams else text + "                C[b, x] = acc[0]\n"


@st.composite
def wide_programs(draw: Any) -> WideProgram:
    """A program whose array ends between 2^31 and 2^33 elements."""
    form = draw(st.sampled_from(FORMS))
    threads = draw(st.sampled_from([32, 64]))
    width = draw(st.sampled_from([4096, 12345, 65536, 65537, 2**20]))
    elements = draw(st.integers(2**31, 2**33))
    step = draw(st.sampled_from([16, 23] if form == "rows" else [1, 7, 16]))
    ctas = max(elements // (width * step), 64)
    if form == "flat":
        step = draw(st.sampled_from([width, 16 * threads, 65536]))
        ctas = elements // step
    if form == "deep":
        step = draw(st.sampled_from([3, 64, 1000]))
        ctas = max(elements // width, 64)
    return WideProgram(
        form,
        draw(st.sampled_from(["int8", "int32", "float16"])),
        threads,
        ctas,
        width,
        step,
        draw(st.sampled_from([1, 2, 3, 5, 8, "n"])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([0, 0, 1])),
        draw(st.integers(0, ctas - 1)),
    )
