"""What decides the way of a kernel's threads and what they synchronise with.

That is every condition and trip count, every address in shared memory, every mbarrier, parity,
count and predicate; and the registers that these are computed from, and so on back. Where none of
them comes of loaded data, each thread makes the same accesses and synchronises in the same places
however the threads are interleaved (``condition`` says what follows).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import TensorLoad
from tvm_ffi.structural import WalkResult

from ...diagnostics import Reason
from ...emulator.translate.operation import ADDRESSES, decode, is_pure, op_name
from ...passes.ir.calls import ACCESS_PTR, ADDRESS_OF
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import is_global, is_shared, variables

_PTX: Final = "tirx.ptx."

_DESTINATIONS: Final = ("d", "r", "state", "wait_complete")
"""Operands that instructions write; ``r`` of stmatrix, which it reads, decides nothing either."""

_DATA: Final = (
    *_DESTINATIONS,
    "coords",
    "tmap",
    "cache_policy",
    "im2col_info",
    "scale_d",
    "scale_a",
    "scale_b",
    "time_hint",
    "src_size",
    "ignore_src",
)
"""Operands that neither say where shared memory is touched nor who waits for what."""

_IN_REGISTERS: Final = (
    *("mma", "cvt", "prmt", "lop3", "add_half", "sub_half", "mul_half", "fma_half"),
    *("wgmma_f", "wgmma_i", "wgmma_b", "wgmma_t"),
)
"""Beginnings of instructions of which descriptors alone decide."""

_DESCRIPTORS: Final = ("a_desc", "b_desc")

_SAME_IN_EVERY_RUN: Final = (
    "tirx.cuda.__shfl",
    "tirx.tvm_warp_shuffle",
    "tirx.ptx.elect_sync",
    "tirx.cuda.elect_sync",
    "tirx.ptx.mapa",
    "tirx.cuda.cluster",
    "tirx.cuda.warp",
    "tirx.tvm_warp_activemask",
    "tirx.cuda.__activemask",
)
"""Beginnings of calls whose result depends on their operands and on who runs them."""

_STORES: Final = ("st", "st_vec")
"""Instructions that store a value, which decides no more than one that TVM stores."""

_POLLS: Final = ("ld", "atom")
"""Beginnings of instructions that read what other threads may be writing."""


@dataclass
class Deciding:
    """What decides in one device function.

    ``exprs``: with the number of their statement; ``roots``: those that decide themselves, of which
    the others are made; ``stored``: those that are stored in registers which decide. ``buffers``:
    these local buffers, by name. ``named``:
    names of values that are read from these. ``because``: why the way of a thread may depend on
    what it loads, empty where it does not. ``values``: of named values.
    """

    exprs: list[tuple[Any, int]] = field(default_factory=list)
    buffers: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    because: list[Reason] = field(default_factory=list)
    values: dict[Any, Any] = field(default_factory=dict)
    roots: list[tuple[Any, int]] = field(default_factory=list)
    stored: list[tuple[Any, int]] = field(default_factory=list)


def deciding(func: Any) -> Deciding:
    """Return what decides in a lowered device function."""
    found = Deciding()
    stores: dict[str, list[tuple[Any, int]]] = {}
    written: dict[str, list[tuple[str, int]]] = {}
    for stmt, number in numbered_statements(func.body):
        for expr in _roots(stmt):
            found.exprs.append((expr, number))
            found.roots.append((expr, number))
        if isinstance(stmt, tirx.Bind):
            found.values[stmt.var] = stmt.value
        if isinstance(stmt, tirx.BufferStore) and not is_common(stmt.buffer):
            values = [stmt.value, *stmt.indices]
            stores.setdefault(stmt.buffer.name, []).extend((value, number) for value in values)
        for name, buffer in registers_written(stmt):
            written.setdefault(buffer, []).append((name, number))
    _follow(found, stores, written)
    return found


def _follow(found: Deciding, stores: Any, written: Any) -> None:
    """Add what the registers are computed from that expressions which decide read."""
    at, seen = 0, set()
    while at < len(found.exprs):
        expr, number = found.exprs[at]
        at += 1
        for node in _inside(expr):
            if isinstance(node, ir.Var) and node in found.values and node not in seen:
                seen.add(node)
                value = found.values[node]
                found.exprs.append((value, number))
                if any(isinstance(inner, TensorLoad) for inner in _inside(value)):
                    found.named.add(str(node.name))
            elif isinstance(node, TensorLoad):
                _loaded(found, node, number, stores, written)
            elif isinstance(node, ir.Call) and not _is_determined(node):
                found.because.append(Reason("proof.call_decides", call=op_name(node)))


def _loaded(found: Deciding, load: Any, number: int, stores: Any, written: Any) -> None:
    """Note that a register decides, or that loaded data does."""
    name = str(load.source.name)
    if is_common(load.source):
        found.because.append(Reason("proof.load_decides", buffer=name))
        return
    if name in found.buffers:
        return
    found.buffers.add(name)
    found.exprs.extend(stores.get(name, ()))
    found.stored.extend(stores.get(name, ()))
    for instruction, _ in written.get(name, ()):
        if not f"{_PTX}{instruction}".startswith(_SAME_IN_EVERY_RUN):
            found.because.append(Reason("proof.result_decides", buffer=name, call=instruction))


def numbered_statements(body: Any) -> Iterator[tuple[Any, int]]:
    """Every statement in preorder with its number, sequences and attributes not counted."""
    count = -1

    def visit(stmt: Any) -> Iterator[tuple[Any, int]]:
        nonlocal count
        count += not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt)
        yield stmt, count
        for inner in bodies(stmt):
            yield from visit(inner)

    return visit(body)


def _roots(stmt: Any) -> Iterator[Any]:
    """The expressions of a statement that decide, those inside it not counted."""
    if isinstance(stmt, tirx.For):
        yield from (stmt.min, stmt.extent)
    elif isinstance(stmt, tirx.IfThenElse | tirx.While):
        yield stmt.condition
    elif isinstance(stmt, tirx.BufferStore) and is_shared(stmt.buffer):
        yield from stmt.indices
    for expr in own_expressions(stmt):
        for node in everything(expr):
            if isinstance(node, TensorLoad) and is_shared(node.source):
                yield from node.indices
            elif isinstance(node, ir.Call) and op_name(node) == ACCESS_PTR:
                if "shared" in str(getattr(node.args[1].ty, "storage_scope", "")):
                    yield node.args[2]
            elif isinstance(node, ir.Call) and op_name(node) == "prim.if_then_else":
                yield from node.args[:1] if _loads_shared(node) else ()
    if isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, ir.Call):
        yield from _operands(stmt.value)


def _operands(call: Any) -> Iterator[Any]:
    """The operands of an operation that decide."""
    name = op_name(call)
    if name.startswith("tirx.cuda.mbarrier_wait"):
        yield from call.args
        return
    if not name.startswith(_PTX) or name in ADDRESSES:
        return
    instruction = decode(call)
    if instruction.predicate is not None:
        yield instruction.predicate
    short = instruction.name
    for operand, values in instruction.operands.items():
        if short.startswith(_IN_REGISTERS) and operand not in _DESCRIPTORS:
            continue
        if operand in _DATA or (operand == "p" and short.startswith("elect")):
            continue
        if operand == "r" or short.startswith(_POLLS):
            continue
        if operand == "value" and short in _STORES:
            continue
        for value in values:
            if not _is_global_address(value):
                yield value


def registers_written(stmt: Any) -> Iterator[tuple[str, str]]:
    """The instructions in a statement that write local buffers, and these, by name."""
    if not isinstance(stmt, tirx.Evaluate) or not isinstance(stmt.value, ir.Call):
        return
    name = op_name(stmt.value)
    if name.startswith(_PTX) and name not in ADDRESSES:
        instruction = decode(stmt.value)
        stores = instruction.name.startswith("stmatrix")
        for operand, values in instruction.operands.items():
            elected = operand == "p" and instruction.name.startswith("elect")
            if (operand not in _DESTINATIONS and not elected) or stores:
                continue
            for value in values:
                if isinstance(value, TensorLoad):
                    yield instruction.name, str(value.source.name)
        return
    for node in everything(stmt.value):
        taken = isinstance(node, ir.Call) and op_name(node) == ADDRESS_OF
        if taken and not is_common(node.args[0].source):
            yield name, str(node.args[0].source.name)


def _is_determined(call: Any) -> bool:
    """Whether the result of a call depends on its operands and on who runs it."""
    name = op_name(call)
    return is_pure(call) or name.startswith(_SAME_IN_EVERY_RUN) or name in ADDRESSES


def is_common(buffer: Any) -> bool:
    """Whether other threads may write a buffer."""
    return is_shared(buffer) or is_global(buffer)


def _loads_shared(expr: Any) -> bool:
    """Whether an expression loads from shared memory."""
    return any(isinstance(n, TensorLoad) and is_shared(n.source) for n in everything(expr))


def _is_global_address(expr: Any) -> bool:
    """Whether an expression points into global memory."""
    loads = [node for node in everything(expr) if isinstance(node, TensorLoad)]
    return any(is_global(load.source) for load in loads)


def own_expressions(stmt: Any) -> Iterator[Any]:
    """The expressions of a statement itself."""
    if isinstance(stmt, tirx.Bind | tirx.Evaluate):
        yield stmt.value
    elif isinstance(stmt, tirx.BufferStore):
        yield stmt.value
        yield from stmt.indices
    elif isinstance(stmt, tirx.IfThenElse | tirx.While):
        yield stmt.condition
    elif isinstance(stmt, tirx.For):
        yield from (stmt.min, stmt.extent)


def reaches(expr: Any, wanted: Collection[Any], values: Mapping[Any, Any]) -> bool:
    """Whether an expression depends on a variable that is wanted, also by ``values`` of others."""
    left, seen = [expr], set()
    while left:
        for inner in variables(left.pop()):
            if inner in wanted:
                return True
            if inner in values and inner not in seen:
                seen.add(inner)
                left.append(values[inner])
    return False


def everything(expr: Any) -> list[Any]:
    """All loads, calls and variables in an expression."""
    found: list[Any] = []
    kinds = (TensorLoad, ir.Call, ir.Var)
    tvm_ffi.structural_walk(expr, [(kind, found.append) for kind in kinds])
    return found


def _inside(expr: Any) -> list[Any]:
    """The loads, calls and variables whose values an expression depends on: no addresses."""
    found: list[Any] = []

    def load(node: Any) -> None:
        found.append(node)

    def call(node: Any) -> Any:
        found.append(node)
        if op_name(node) == ADDRESS_OF:
            inner = node.args[0]
            for index in inner.indices:
                found.extend(_inside(index))
            return WalkResult.SKIP
        return None

    tvm_ffi.structural_walk(
        expr, [(TensorLoad, load), (ir.Call, call), (ir.Var, found.append)], order="pre"
    )
    return found
