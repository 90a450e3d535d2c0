"""Read calls: the operation's name, whether it is pure or an address, its PTX operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import ir
from tvm.backend.cuda.ptx import TABLE
from tvm.backend.cuda.ptx.table import mods, operand_layout

from ...errors import EmulatorError
from ..base import mathfn

ADDRESSES: Final = {
    "tirx.address_of",
    "tirx.tvm_access_ptr",
    "tirx.buffer_data",
    "tirx.handle_add_byte_offset",
    "tirx.ptr_byte_offset",
    "tirx.cuda.cvta_generic_to_shared",
    "tirx.ptx.addr",
}
"""Operations that denote an address."""

_PURE: Final = {
    "prim.if_then_else",
    "prim.likely",
    "tirx.tvm_thread_invariant",
    "tirx.reinterpret",
    "tirx.isnan",
    "tirx.isinf",
    "tirx.isfinite",
    "tirx.popcount",
    "tirx.ctpop",
    *ADDRESSES,
}
"""Operations that neither read memory nor depend on active threads, beside math functions."""

TRIP_COUNT: Final = "pipeliner_trip_count"
"""The external function by which a proof asks for the trip count of a loop around, by the number of
its statement and its extent."""


def op_name(call: Any) -> str:
    """Name of the operation called."""
    return str(getattr(call.op, "name", call.op))


def string(node: Any) -> str:
    """Value of a StringImm."""
    return str(node.value)


def math_function(name: str) -> str | None:
    """The math function that an operation is, None for another."""
    own = name.startswith(("tirx.", "prim."))
    return mathfn.canonical(name.rpartition(".")[2]) if own else None


def is_pure(call: Any) -> bool:
    """Whether the operation itself neither reads memory nor depends on active threads."""
    name = op_name(call)
    if name == "tirx.call_pure_extern":
        return is_trip_count(call) or mathfn.canonical(str(call.args[0].value)) is not None
    return name in _PURE or math_function(name) is not None


def is_trip_count(call: Any) -> bool:
    """Whether a call asks for the trip count of a loop around, as the code of a proof does."""
    return op_name(call) == "tirx.call_pure_extern" and str(call.args[0].value) == TRIP_COUNT


def is_address(node: Any) -> bool:
    """Whether a node is a call that denotes an address."""
    return isinstance(node, ir.Call) and op_name(node) in ADDRESSES


def address_name(node: Any) -> str:
    """Name of the buffer that an address expression points into, as the kernel declares it."""
    while isinstance(node, ir.Call) and op_name(node) != "tirx.address_of":
        node = node.args[1] if op_name(node) == "tirx.tvm_access_ptr" else node.args[0]
    if isinstance(node, ir.Call):
        return str(node.args[0].source.name)
    return str(getattr(node, "name", "shared"))


@dataclass(frozen=True)
class PtxInstruction:
    """A decoded call: modifiers and operands by the names of TVM's table."""

    name: str
    modifiers: dict[str, str]
    operands: dict[str, list[Any]]
    predicate: Any

    def one(self, operand: str) -> Any:
        """The first value of an operand."""
        return self.operands[operand][0]

    def expect(self, **known: tuple[str, ...]) -> None:
        """Check modifiers by their name; EmulatorError: one is none of those that are emulated."""
        for slot, tokens in known.items():
            token = self.modifiers.get(slot, "")
            if token not in tokens:
                raise EmulatorError("ptx.modifier", instruction=self.name, modifier=token)


def decode(call: Any) -> PtxInstruction:
    """The PTX instruction that ``call`` is; EmulatorError: it has sunk destinations.

    Arguments of a call are ``[operands..., predicate?] [modifiers] [flags]``.
    """
    name = str(call.op.name).removeprefix("tirx.ptx.")
    entry = TABLE[name]
    count = len(entry.slots)
    args = list(call.args)
    flags = str(args[-1].value).split(",")
    tokens = [str(a.value) for a in args[len(args) - count - 1 : -1]]
    values = args[: len(args) - count - 1]
    by_name = mods(entry, tokens)
    if any(f.startswith("s") and f[1:].isdigit() for f in flags):
        raise EmulatorError("ptx.sunk", instruction=name)
    predicate = values.pop() if "pred" in flags else None
    operands = {slot.name: values[i : i + n] for slot, i, n in operand_layout(entry, by_name) if n}
    modifiers = {slot.name: token for slot, token in zip(entry.slots, tokens, strict=True)}
    return PtxInstruction(name, modifiers, operands, predicate)
