"""Barriers of random kernels: the emulator finds no race, and deleting any barrier makes one.

The second half is asked of loops without conditions: there each barrier that is reached orders
something, unless two conflicting statements share one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .lowering_tools import marked, ordered, run, without_barrier

THREADS = 8
SLOTS = 3
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))

columns = st.sampled_from(["tx", "7 - tx", "(tx + 3) % 8", "tx // 2 * 2"])
slots = st.one_of(
    st.integers(0, SLOTS - 1).map(str),
    st.integers(0, 4).map(lambda c: f"(k + {c}) % {SLOTS}"),
    st.just(f"T.min(k + 1, 4) % {SLOTS}"),
)
conditions_of_all = st.sampled_from(["k < n", "k + 2 < n", "k < 2", "k > 1", "k % 2 == 0", "n < 3"])
conditions_of_some = st.sampled_from(["tx < 5", "tx >= 3", "tx % 2 == 0", "tx + k < 7"])
buffers = st.sampled_from(["S", "U"])
own_columns = st.sampled_from(["tx", "7 - tx", "(tx + 3) % 8"])


@st.composite
def statements(draw: Any) -> list[str]:
    """One store to shared memory or one load from it, perhaps under a condition or in a loop."""
    buffer, slot = draw(buffers), draw(slots)
    if draw(st.booleans()):
        line = f"{buffer}[{slot}, {draw(own_columns)}] = A[k, tx]"
    else:
        line = f"C[k, tx] = C[k, tx] + {buffer}[{slot}, {draw(columns)}]"
    shape = draw(st.sampled_from(["plain", "plain", "plain", "uniform", "divergent", "loop"]))
    wrap = {
        "uniform": f"if {draw(conditions_of_all)}:",
        "divergent": f"if {draw(conditions_of_some)}:",
        "loop": "for i in range(2):",
    }.get(shape)
    return [line] if wrap is None else [wrap, "    " + line]


@st.composite
def kernels(draw: Any, conditions: bool = True) -> str:
    """A loop of random statements, with some before and after it."""
    parts = st.lists(statements(), min_size=1, max_size=5)
    before, body, after = draw(parts), draw(parts), draw(parts)
    if not conditions:
        before, body, after = (
            [part for part in group if len(part) == 1] for group in (before, body, after)
        )
    head = [line.replace("k", "0") for part in before for line in part]
    tail = [line.replace("k", "4") for part in after for line in part]
    inner = [line for part in body for line in part] or ["T.evaluate(0)"]
    return "\n".join(
        [
            "@T.prim_func(s_tir=True)",
            "def main(A: T.Buffer((5, 8)), C: T.Buffer((5, 8)), n: T.int32):",
            "    for bx in T.thread_binding(1, thread='blockIdx.x'):",
            "        for tx in T.thread_binding(8, thread='threadIdx.x'):",
            "            with T.sblock('kernel'):",
            "                T.reads(A[0:5, 0:8], C[0:5, 0:8])",
            "                T.writes(C[0:5, 0:8])",
            f"                S = T.sblock_alloc_buffer(({SLOTS}, 8), scope='shared')",
            f"                U = T.sblock_alloc_buffer(({SLOTS}, 8), scope='shared')",
            "                for z in range(3):",
            "                    S[z, tx] = A[z, tx]",
            "                    U[z, tx] = A[z, tx]",
            *(" " * 16 + line for line in head),
            "                for k in range(5):",
            *(" " * 20 + line for line in inner),
            *(" " * 16 + line for line in tail),
            "                C[0, tx] = C[0, tx] + S[0, 7 - tx] + U[1, 7 - tx]",
        ]
    )


def arguments(n: int = 3) -> list[Any]:
    source = np.random.default_rng(0).standard_normal((5, THREADS)).astype("float32")
    return [source, np.zeros_like(source), n]


@QUICK
@given(kernels())
@pytest.mark.slow
def test_no_race_is_left(source: str) -> None:
    done, smem, _ = ordered(tvm.script.from_source(source))
    hazards = run(marked(done, smem), arguments()).hazards
    assert not hazards, source + "\n" + "\n".join(map(str, hazards))


@QUICK
@given(kernels(conditions=False))
@pytest.mark.deep("tests/passes/test_sync.py::test_every_barrier_is_missed_when_it_is_gone")
def test_no_barrier_is_spare(source: str) -> None:
    done, smem, sync = ordered(tvm.script.from_source(source))
    for number in range(sync.barriers):
        broken = marked(without_barrier(done, number), smem)
        assert run(broken, arguments()).hazards, f"{source}\n{sync.reasons[number]} is spare"
