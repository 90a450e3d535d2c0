"""Random calls with arrays that overlap, of functions that do not promise the contrary.

Each iteration reads a row of ``A`` and writes one of ``C``, elementwise or by way of shared memory.
At the call ``C`` is apart from ``A``, the same array, or begins some elements before or behind it.
A call is refused, or it does what the program means whichever CTA and whichever thread comes first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from pipeliner.plan.request import Request

from .random_programs import MAX_TRIPS, random_arrays
from .random_strategies import Trial, runs

THREADS: Final = 32
COLUMNS: Final = {"tx": lambda tx: tx, "31 - tx": lambda tx: 31 - tx, "tx // 2": lambda tx: tx // 2}
DISJOINT: Final = "disjoint"


@dataclass(frozen=True)
class ArgumentProgram:
    """Row ``k + up`` of ``C``, at ``to``, becomes row ``k`` of ``A``, at ``of``, and one.

    ``staged``: by way of shared memory, read there at ``read``. ``rows``: of a CTA, from ``by`` on
    for each before it. ``behind``: the row is read once more behind the store, and added up.
    ``shift``: elements that ``C`` begins behind ``A`` at the call.
    """

    blocks: int
    by: int
    up: int
    of: str
    to: str
    read: str
    staged: bool
    behind: bool
    shift: int | str

    @property
    def shape(self) -> tuple[int, int]:
        return (self.by * self.blocks + 2 * MAX_TRIPS + 2, THREADS)

    def arrays(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """``A`` and ``C``, in one memory where they are not apart, and sums."""
        rows, columns = self.shape
        size = rows * columns
        room = ((3 * size,), "float32")
        shapes = {"room": room, "flags": ((1,), "int32"), "trips": ((1,), "int32")}
        memory = random_arrays(shapes, n, 4, seed)["room"]
        first = memory[size : 2 * size]
        if self.shift == DISJOINT:
            second = np.array(memory[:size])
        else:
            begin = size + int(self.shift)
            second = memory[begin : begin + size]
        sums = np.zeros((self.blocks, THREADS), "float32")
        return {"A": first.reshape(self.shape), "C": second.reshape(self.shape), "sums": sums}


def script(program: ArgumentProgram) -> str:
    """``program`` as TVMScript, bound to threads, without tirx.noalias."""
    row = f"bx * {program.by} + k + 1"
    value = f"A[{row}, {program.of}]"
    shared = f"S[{program.read}]"
    store = f"C[{row} + {program.up}, {program.to}] = {shared if program.staged else value}"
    body = [
        *(["with T.sblock('load'):", f"    S[tx] = {value}"] if program.staged else []),
        *["with T.sblock('store'):", f"    {store} + T.float32(1)"],
        *(["with T.sblock('again'):", f"    acc[0] = acc[0] + {value}"] * program.behind),
    ]
    buffer = f"T.Buffer({program.shape}, 'float32')"
    shared_buffer = f"T.sblock_alloc_buffer(({THREADS},), 'float32', scope='shared')"
    sums = f"T.Buffer(({program.blocks}, {THREADS}), 'float32')"
    return "\n".join(
        [
            "@T.prim_func(s_tir=True)",
            f"def main(A: {buffer}, C: {buffer}, sums: {sums}, n: T.int32, m: T.int32):",
            "    T.func_attr({'global_symbol': 'main'})",
            f"    for bx in T.thread_binding({program.blocks}, thread='blockIdx.x'):",
            f"        for tx in T.thread_binding({THREADS}, thread='threadIdx.x'):",
            "            with T.sblock('kernel'):",
            "                acc = T.sblock_alloc_buffer((1,), 'float32', scope='local')",
            "                acc[0] = T.float32(0)",
            "                for k in T.serial(n):",
            "                    with T.sblock('body'):",
            f"                        S = {shared_buffer}",
            *[" " * 24 + line for line in body],
            "                sums[bx, tx] = acc[0]",
        ]
    )


def meaning(
    program: ArgumentProgram, arrays: Mapping[str, np.ndarray], n: int, m: int
) -> dict[str, np.ndarray]:
    """What is written, the same whoever comes first; AssertionError: it is not."""
    backwards = (False, True)
    found = [_run(program, arrays, n, *order) for order in itertools.product(backwards, backwards)]
    for other in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(other[name], array, err_msg="no one meaning")
    return found[0]


def _run(
    program: ArgumentProgram, arrays: Mapping[str, np.ndarray], n: int, last: bool, late: bool
) -> dict[str, np.ndarray]:
    """One CTA after the other, and one thread: from barrier to barrier where there must be one."""
    meets = program.staged and program.read != "tx"
    a, c, sums = _copied(arrays, program)
    order = range(THREADS)[:: -1 if late else 1]
    for bx in range(program.blocks)[:: -1 if last else 1]:
        acc = np.zeros(THREADS, "float32")
        for k in range(n):
            row, shared = bx * program.by + k + 1, np.zeros(THREADS, "float32")
            for tx in order if meets else ():
                shared[tx] = a[row, COLUMNS[program.of](tx)]
            for tx in order:
                here = a[row, COLUMNS[program.of](tx)]
                value = shared[COLUMNS[program.read](tx)] if meets else here
                c[row + program.up, COLUMNS[program.to](tx)] = value + 1
                if program.behind:
                    acc[tx] += a[row, COLUMNS[program.of](tx)]
        sums[bx] = acc
    return {"C": c, "sums": sums}


def _copied(
    arrays: Mapping[str, np.ndarray], program: ArgumentProgram
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copies that share memory as the arrays do."""
    a, c, sums = (arrays[name] for name in ("A", "C", "sums"))
    if program.shift == DISJOINT:
        return a.copy(), c.copy(), sums.copy()
    shift, size = int(program.shift), a.size
    memory = np.zeros(size + abs(shift), "float32")
    one, two = memory[max(0, -shift) :][:size], memory[max(0, shift) :][:size]
    one[:], two[:] = a.ravel(), c.ravel()
    return one.reshape(a.shape), two.reshape(a.shape), sums.copy()


def is_refused(trial: Trial, message: str) -> bool:
    """Whether a call may be refused with ``message``: never where the arrays are apart."""
    program = trial.program
    assert isinstance(program, ArgumentProgram)
    shift = program.shift
    rows, columns = program.shape
    overlaps = shift != DISJOINT and abs(int(shift)) < rows * columns
    return overlaps and "overlaps argument #1 'C'" in message and "'A'" in message


@st.composite
def argument_trials(draw: Any) -> Trial:
    """A program, most often one that may be used in place or nearly, and a call."""
    columns = st.sampled_from(["tx", "tx", "tx", *COLUMNS])
    blocks = draw(st.sampled_from([1, 2]))
    by = draw(st.sampled_from([MAX_TRIPS, MAX_TRIPS, 2 * MAX_TRIPS, 3, 0]))
    size = (by * blocks + 2 * MAX_TRIPS + 2) * THREADS
    program = ArgumentProgram(
        blocks,
        by,
        draw(st.sampled_from([0, 0, 0, 1, -1])),
        draw(columns),
        draw(st.sampled_from(["tx", "tx", "31 - tx"])),
        draw(columns),
        draw(st.booleans()),
        draw(st.sampled_from([False, False, True])),
        draw(st.sampled_from([0, 0, 0, DISJOINT, 4, -THREADS, THREADS, 1, size, -size])),
    )
    request = Request(depth=draw(st.sampled_from(["auto", "auto", 1, 2, 3])))
    target = draw(st.sampled_from(["sm_80", "sm_90", "sm_75"]))
    return draw(runs(program, request, target, program.blocks))
