"""Random programs of several threads and CTAs that share global memory, ordered rightly or not.

Each statement is run by some threads of some CTAs: plain, strong and atomic accesses to an array
``G``, barriers of warps, CTAs and clusters, fences, and flags ``F`` that are released and acquired.
What every strong access to a flag wrote is a number of its own, and what one read is kept in
``OUT``, so that who synchronised with whom can be told afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from pipeliner.emulator.engine.scheduler import ORDERS

WARP: Final = 32
THREADS: Final = 2 * WARP
FLAGS: Final = 2
PLACES: Final = ("own", "reversed", "next", "peer", "half", "bank", "first")
"""Elements of ``G``: a thread's own, others of its CTA, of the next CTA, of its CTA's peer, that of
two threads, of every fourth, and the one element of all."""
OWN: Final = -1
"""The value of a thread and statement alone."""


@dataclass(frozen=True)
class Statement:
    """What CTA ``cta`` (None: all) does, its threads from ``first`` up to ``last``.

    ``what``: ``load``, ``store``, ``add`` (atomic), and with ``order`` (semantics and scope)
    ``ld``, ``st``, ``fence``; of the flag number ``flag``: ``signal``, ``exchange``, ``look``; or
    a barrier: ``warp``, ``cta``, ``cluster``.
    """

    what: str
    cta: int | None = None
    first: int = 0
    last: int = THREADS
    place: str = "own"
    value: int = OWN
    order: tuple[str, str] = ("relaxed", "gpu")
    flag: int = 0

    def runs(self, cta: int, thread: int) -> bool:
        """Whether a thread is among those that do it."""
        return self.cta in (None, cta) and self.first <= thread < self.last


@dataclass(frozen=True)
class RaceProgram:
    """``statements`` of ``ctas`` CTAs in clusters of ``cluster``; run with warps in ``order``."""

    ctas: int
    cluster: int
    statements: tuple[Statement, ...]
    order: str

    @property
    def elements(self) -> int:
        """Of ``G``."""
        return self.ctas * THREADS

    def place(self, statement: Statement, cta: Any, thread: Any) -> Any:
        """The element of ``G``: a number, or TVMScript of the names given."""
        mirror = THREADS - 1
        if isinstance(cta, str):
            after, peer = f"({cta} + 1) % {self.ctas}", f"T.bitwise_xor({cta}, 1)"
            reversed_, half, bank = f"{mirror} - {thread}", f"{thread} // 2", f"{thread} % 4"
            texts = {
                "own": f"{cta} * {THREADS} + {thread}",
                "reversed": f"{cta} * {THREADS} + {reversed_}",
                "next": f"{after} * {THREADS} + {thread}",
                "peer": f"{peer} * {THREADS} + {thread}",
                "half": f"{cta} * {THREADS} + {half}",
                "bank": bank,
                "first": "0",
            }
            return texts[statement.place]
        return {
            "own": cta * THREADS + thread,
            "reversed": cta * THREADS + mirror - thread,
            "next": (cta + 1) % self.ctas * THREADS + thread,
            "peer": (cta ^ 1) * THREADS + thread,
            "half": cta * THREADS + thread // 2,
            "bank": thread % 4,
            "first": 0,
        }[statement.place]

    def value(self, number: int, cta: Any, thread: Any) -> Any:
        """What the statement of that number stores: a number, or TVMScript of the names given."""
        fixed = self.statements[number].value
        if fixed != OWN:
            return fixed
        base = (number + 1) * self.ctas * THREADS
        if isinstance(cta, str):
            return f"{base} + {cta} * {THREADS} + {thread}"
        return base + cta * THREADS + thread


def script(program: RaceProgram) -> str:
    """``program`` as TVMScript."""
    count = len(program.statements)
    lines = [
        "@T.prim_func(s_tir=True)",
        f"def main(G: T.Buffer(({program.elements},), 'int32'), F: T.Buffer(({FLAGS},), 'int32'),",
        f"         OUT: T.Buffer(({count}, {program.ctas}, {THREADS}), 'int32')):",
        "    T.func_attr({'global_symbol': 'main'})",
        f"    for bx in T.thread_binding({program.ctas}, thread='blockIdx.x'):",
        f"        for cx in T.thread_binding({program.cluster}, thread='clusterCtaIdx.x'):",
        f"            for tx in T.thread_binding({THREADS}, thread='threadIdx.x'):",
        "                got = T.alloc_buffer((1,), 'int32', scope='local')",
    ]
    for number, statement in enumerate(program.statements):
        indent = " " * 16
        if statement.cta is not None:
            lines.append(f"{indent}if bx == {statement.cta}:")
            indent += "    "
        if (statement.first, statement.last) != (0, THREADS):
            lines.append(f"{indent}if tx >= {statement.first} and tx < {statement.last}:")
            indent += "    "
        lines += [indent + line for line in _lines(program, number)]
    return "\n".join(lines)


def _lines(program: RaceProgram, number: int) -> Iterator[str]:
    one = program.statements[number]
    semantics, scope = one.order
    at, value = program.place(one, "bx", "tx"), program.value(number, "bx", "tx")
    element, flag = f"T.address_of(G[{at}])", f"T.address_of(F[{one.flag}])"
    kept = f"OUT[{number}, bx, tx] = got[0]"
    if one.what == "load":
        yield f"OUT[{number}, bx, tx] = G[{at}]"
    elif one.what == "store":
        yield f"G[{at}] = {value}"
    elif one.what == "add":
        yield f"T.ptx['red.relaxed.{scope}.global.add.s32']({element}, 1)"
    elif one.what == "ld":
        yield f"T.ptx['ld.{semantics}.{scope}.global.s32'](got[0], {element})"
        yield kept
    elif one.what == "st":
        yield f"T.ptx['st.{semantics}.{scope}.global.s32']({element}, {value})"
    elif one.what == "look":
        yield f"T.ptx['ld.{semantics}.{scope}.global.s32'](got[0], {flag})"
        yield kept
    elif one.what == "signal":
        yield f"T.ptx['st.{semantics}.{scope}.global.s32']({flag}, {value})"
    elif one.what == "exchange":
        yield f"T.ptx['atom.{semantics}.{scope}.global.exch.b32'](got[0], {flag}, {value})"
        yield kept
    elif one.what == "fence":
        yield f"T.ptx['fence.{semantics}.{scope}']()"
    elif one.what == "cluster":
        yield "T.cuda.cluster_sync()"
    else:
        yield f"T.tvm_storage_sync({'warp' if one.what == 'warp' else 'shared'!r})"


@st.composite
def race_programs(draw: Any) -> RaceProgram:
    """Accesses in phases, and between two phases something that orders them, all or in part."""
    cluster = draw(st.sampled_from([1, 1, 2]))
    ctas = draw(st.sampled_from([2, 4] if cluster == 2 else [1, 2, 3]))
    statements: list[Statement] = []
    for phase in range(draw(st.integers(1, 4))):
        if phase:
            statements += draw(_between(ctas, cluster))
        for _ in range(draw(st.integers(1, 2))):
            statements.append(draw(_accesses(ctas, cluster)))
    return RaceProgram(ctas, cluster, tuple(statements), draw(st.sampled_from(ORDERS)))


@st.composite
def _accesses(draw: Any, ctas: int, cluster: int) -> Statement:
    what = draw(st.sampled_from(["load", "load", "store", "store", "store", "add", "ld", "st"]))
    places = [p for p in PLACES if p != "peer" or cluster == 2]
    first, last = draw(
        st.sampled_from([(0, THREADS)] * 4 + [(0, 1), (0, WARP), (WARP, THREADS), (5, 6)])
    )
    return Statement(
        what,
        draw(st.sampled_from([None, None, *range(ctas)])),
        first,
        last,
        draw(st.sampled_from(["own", *places])),
        draw(st.sampled_from([OWN, OWN, 7, 8])),
        ("relaxed", draw(st.sampled_from(["gpu"] * 4 + ["cta"]))),
    )


@st.composite
def _between(draw: Any, ctas: int, cluster: int) -> list[Statement]:
    ways = ["cta", "cta", "warp", *["cluster"] * 3 * (cluster - 1), *["flag"] * 4 * (ctas > 1)]
    way = draw(st.sampled_from([*ways, ""]))
    if way != "flag":
        return [Statement(way)] if way else []
    giver, taker = draw(
        st.sampled_from([(a, b) for a in range(ctas) for b in range(ctas) if a != b])
    )
    flag = draw(st.integers(0, FLAGS - 1))
    made = [Statement("cta")] * draw(st.sampled_from([1, 1, 1, 0]))
    made += draw(_release(giver, flag))
    made += draw(_acquire(taker, flag))
    return made + [Statement("cta")] * draw(st.sampled_from([1, 1, 1, 0]))


_SCOPES: Final = st.sampled_from(["gpu"] * 6 + ["sys", "cluster", "cta"])


@st.composite
def _release(draw: Any, cta: int, flag: int) -> list[Statement]:
    fenced = draw(st.booleans())
    semantics = draw(st.sampled_from(["relaxed"] if fenced else ["release"] * 4 + ["relaxed"]))
    what = draw(st.sampled_from(["signal", "exchange"]))
    if what == "exchange" and semantics == "release":
        semantics = draw(st.sampled_from(["release", "acq_rel"]))
    first, last = draw(st.sampled_from([(0, 1), (0, 1), (3, 4), (0, WARP)]))
    made = []
    if fenced:
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            made.append(Statement("fence", cta, first, last, order=("acq_rel", draw(_SCOPES))))
    return [*made, Statement(what, cta, first, last, order=(semantics, draw(_SCOPES)), flag=flag)]


@st.composite
def _acquire(draw: Any, cta: int, flag: int) -> list[Statement]:
    fenced = draw(st.booleans())
    semantics = draw(st.sampled_from(["relaxed"] if fenced else ["acquire"] * 4 + ["relaxed"]))
    what = draw(st.sampled_from(["look", "look", "exchange"]))
    if what == "exchange" and semantics == "acquire":
        semantics = draw(st.sampled_from(["acquire", "acq_rel"]))
    first, last = draw(st.sampled_from([(0, 1), (0, 1), (3, 4), (0, THREADS)]))
    made = [Statement(what, cta, first, last, order=(semantics, draw(_SCOPES)), flag=flag)]
    if fenced:
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            made.append(Statement("fence", cta, first, last, order=("acq_rel", draw(_SCOPES))))
    return made
