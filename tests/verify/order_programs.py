"""Random loops that wait for others, and what may not move above that.

A loop stages rows of inputs and adds them up. Somewhere, in the loop, before it or nowhere, there is
a gate: a loop that polls a flag, or a ticket that is taken. Nobody else runs in the emulator, so
that values alone do not show a load that moved: the order in which the kernel names what it reads
does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st
from tvm.ir import TensorLoad

from pipeliner.emulator.lower import is_device_function
from pipeliner.kernel.compiled import Kernel
from pipeliner.passes.ir.nodes import walk
from pipeliner.plan.request import Request

from ..refusals import says
from .random_programs import COLUMNS, MAX_TRIPS, random_arrays
from .random_strategies import Trial, runs

GATES: Final[Mapping[str, tuple[str, ...]]] = {
    "poll": ("while FL[{at}] == 0:", "    T.evaluate(0)"),
    "poll by register": ("got[0] = 0", "while got[0] == 0:", "    got[0] = FL[{at}]"),
    "ticket": ("got[0] = T.cuda.atomic_add(T.address_of(FL[bx * 64 + tx]), T.int32(1))",),
}
"""What waits for others, or depends on when they come; ``FL`` is 1 everywhere."""


@dataclass(frozen=True)
class OrderProgram:
    """``items``: of the loop's body, numbers of inputs that are staged and ``-1`` for the gate.

    Each input is added up, read by ``columns``, right behind the item after it or at the end.
    ``where`` the gate is, ``gate``: which; ``late``: all inputs are added up at the end.
    """

    blocks: int
    outer: int
    items: tuple[int, ...]
    columns: tuple[str, ...]
    where: str
    gate: str
    late: bool

    @property
    def inputs(self) -> list[int]:
        return [item for item in self.items if item >= 0]

    def arrays(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Random contents of the parameters."""
        rows = (self.blocks, self.outer * MAX_TRIPS, 64)
        shapes = {f"A{i}": (rows, "float32") for i in sorted(self.inputs)}
        shapes["Z"] = ((self.blocks, self.outer, 64), "float32")
        shapes |= {"FL": ((256,), "int32"), "flags": ((1,), "int32"), "trips": ((1,), "int32")}
        arrays = random_arrays(shapes, n, 4, seed)
        del arrays["flags"], arrays["trips"]
        arrays["FL"][:] = 1
        return arrays

    def named(self) -> list[str]:
        """What a kernel reads of memory that others may write, in the order of the program."""
        gate = [] if self.where == "nowhere" else ["FL"]
        inside = [f"A{item}" if item >= 0 else "FL" for item in self.items]
        return inside if self.where == "inside" else [*gate, *inside]


def script(program: OrderProgram) -> str:
    """``program`` as TVMScript, bound to threads."""
    arrays = program.arrays(0)
    parameters = [f"{name}: T.Buffer({a.shape}, {str(a.dtype)!r})" for name, a in arrays.items()]
    lines = [
        "@T.prim_func(s_tir=True)",
        f"def main({', '.join([*parameters, 'n: T.int32', 'm: T.int32'])}):",
        "    T.func_attr({'global_symbol': 'main', 'tirx.noalias': True})",
        f"    for bx in T.thread_binding({program.blocks}, thread='blockIdx.x'):",
        "        for tx in T.thread_binding(64, thread='threadIdx.x'):",
        "            with T.sblock('kernel'):",
        "                acc = T.sblock_alloc_buffer((1,), 'float32', scope='local')",
        "                got = T.sblock_alloc_buffer((1,), 'int32', scope='local')",
        f"                for o in T.serial({program.outer}):",
        "                    acc[0] = T.float32(0)",
    ]
    if program.where == "before":
        lines += [" " * 20 + line.format(at="o") for line in GATES[program.gate]]
    lines += [" " * 20 + "for k in T.serial(n):", " " * 24 + "with T.sblock('body'):"]
    lines += [" " * 28 + line for line in _body(program)]
    lines.append(" " * 20 + "Z[bx, o, tx] = acc[0]")
    return "\n".join(lines)


def _body(program: OrderProgram) -> Iterator[str]:
    for i in program.inputs:
        yield f"S{i} = T.sblock_alloc_buffer((64,), 'float32', scope='shared')"
    for item in program.items:
        if item < 0:
            yield from (line.format(at="k") for line in GATES[program.gate])
            continue
        yield f"with T.sblock('S{item}'):"
        yield f"    S{item}[tx] = A{item}[bx, o * {MAX_TRIPS} + k, tx]"
        if not program.late:
            yield from _added(item, program)
    for item in program.inputs if program.late else []:
        yield from _added(item, program)


def _added(item: int, program: OrderProgram) -> Iterator[str]:
    yield f"with T.sblock('sum{item}'):"
    yield f"    acc[0] = acc[0] + S{item}[{program.columns[item].format(w=64)}]"


def meaning(
    program: OrderProgram, arrays: Mapping[str, np.ndarray], n: int, m: int
) -> dict[str, np.ndarray]:
    """What is added up; of the flags it says nothing."""
    tx = np.arange(64)
    total = np.zeros_like(arrays["Z"])
    for i in program.inputs:
        rows = arrays[f"A{i}"].reshape(program.blocks, program.outer, MAX_TRIPS, 64)
        total += rows[:, :, :n].sum(2)[:, :, COLUMNS[program.columns[i]](tx, 64)]
    return {"Z": total}


def check_order(trial: Trial, kernel: Kernel) -> None:
    """What is read is first named in the order of the program, and no loop with a gate is split."""
    program = trial.program
    assert isinstance(program, OrderProgram)
    (device,) = filter(is_device_function, kernel.lowered.functions.values())
    found: dict[str, None] = {}
    walk(device.body, TensorLoad, lambda load: found.setdefault(str(load.source.name)))
    assert [name for name in found if name in program.named()] == program.named()
    loop = kernel.plan.loop("k")
    if program.where == "inside":
        assert not loop.pipelined
        assert says("loop.fence", loop.reasons)


@st.composite
def order_trials(draw: Any) -> Trial:
    """A program with or without a gate, and a run of it."""
    count = draw(st.integers(1, 3))
    items = list(range(count))
    where = draw(st.sampled_from(["inside", "inside", "before", "nowhere"]))
    if where == "inside":
        items.insert(draw(st.integers(0, count)), -1)
    program = OrderProgram(
        draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([1, 2])),
        tuple(items),
        tuple(draw(st.sampled_from(sorted(COLUMNS))) for _ in range(count)),
        where,
        draw(st.sampled_from(sorted(GATES))),
        draw(st.booleans()),
    )
    request = Request(depth=draw(st.sampled_from(["auto", "auto", 1, 2, 3])))
    target = draw(st.sampled_from(["sm_80", "sm_90", "sm_75"]))
    return draw(runs(program, request, target, program.blocks))
