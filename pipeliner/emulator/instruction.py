"""Decode ``T.ptx`` calls with TVM's own instruction table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.backend.cuda.ptx import TABLE
from tvm.backend.cuda.ptx.table import mods, operand_layout

from ..errors import EmulatorError


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
