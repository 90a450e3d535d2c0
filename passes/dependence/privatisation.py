"""Decide about privatisation: whether a buffer of a loop's body may have a slot per iteration.

    for k: { S[tx] = A[k, tx]; .. = S[tx] }      may: each read finds what its iteration wrote
    for k: { .. = S[tx]; S[tx] = A[k, tx] }      may not: S carries a value to the next iteration

TVM allocates a buffer in the innermost block around its accesses, also one that carries values
between iterations. A buffer may be privatised if no index moves with the loop, writes come first,
their bounds contain those of the reads, and a write that some iterations skip is read under the
same conditions only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm import tirx
from tvm.ir import TensorLoad, Var

from ...diagnostics import Reason
from ..analysis.effects import Effect, Effects
from ..ir.indexing import conjuncts
from ..ir.nodes import Buffer, const_int, has, is_among, uses
from ..ir.op_form import OpLoop
from .distances import linear

_Box: TypeAlias = "tuple[tuple[int, int] | None, ...]"
"""Inclusive bounds of each dimension; None for the whole dimension."""


def why_carried(
    buf: Buffer, form: OpLoop, found: Sequence[Effects], threads: Mapping[Var, int] | None
) -> Reason | None:
    """Return why ``buf`` may carry values between iterations; None if it does not."""
    if any(buf in op.viewed for op in found):
        return Reason("version.viewed")
    written = _Written(form.var)
    for op in found:
        mine = [access for access in op.accesses if access.buffer.same_as(buf)]
        if not mine:
            continue
        bounds: dict[Var, tuple[int, int] | None] = dict(op.locals)
        bounds.update({var: (0, extent - 1) for var, extent in (threads or {}).items()})
        for access in mine:
            if access.box is not None and any(uses(dim, [form.var]) for dim, _ in access.box):
                return Reason("version.moves")
            box = _bounds(access, form.var, bounds)
            parts = [part for guard in access.guards for part in conjuncts(guard)]
            conditions = [part for part in parts if _varies(part, form.var)]
            if access.reads and not written.covers(box, conditions):
                return written.why_not(box)
            if access.writes:
                written.add(box, parts)
    return None


@dataclass(slots=True)
class _Written:
    """The bounds of what was written, each with the conditions of the write that may differ.

    ``writes``: each with all its conditions, also those that are the same in each iteration of
    ``var``: what is written either way is written under their negation, too.
    """

    var: Var
    boxes: list[tuple[list[Any], _Box]] = field(default_factory=list)
    writes: list[tuple[list[Any], _Box]] = field(default_factory=list)

    def add(self, box: _Box, parts: list[Any]) -> None:
        conditions = [part for part in parts if _varies(part, self.var)]
        for index, (known, old) in enumerate(self.boxes):
            if _same_conditions(known, conditions):
                self.boxes[index] = (known, tuple(map(_hull, old, box)))
                break
        else:
            self.boxes.append((conditions, box))
        before = list(self.writes)
        self.writes.append((parts, box))
        for known, old in before:
            always = _either_way(known, parts)
            if always is not None and old == box:
                self.add(box, always)

    def covers(self, box: _Box, conditions: list[Any]) -> bool:
        """Whether some write's bounds contain ``box`` whenever ``conditions`` hold."""
        return any(
            all(_is_among(guard, conditions) for guard in known) and all(map(_contains, old, box))
            for known, old in self.boxes
        )

    def why_not(self, box: _Box) -> Reason:
        """Return why a read of ``box`` that no write covers may find an older value."""
        around = [known for known, old in self.boxes if all(map(_contains, old, box))]
        if not around:
            return Reason("version.read_first")
        if all(any(map(_reads_memory, known)) for known in around):
            return Reason("version.loaded_condition")
        return Reason("version.not_always_written")


def _bounds(access: Effect, loop_var: Var, bounds: Mapping[Var, Any]) -> _Box:
    """Return the bounds of an access; the whole dimension if they are unknown."""
    if access.box is None:
        return (None,) * len(access.buffer.shape)
    result: list[tuple[int, int] | None] = []
    for (start, extent), size in zip(access.box, access.buffer.shape, strict=True):
        form = linear(start, loop_var, bounds)
        whole = const_int(size)
        if (
            form is None
            or form.coefficients
            or (whole is not None and form.base.low <= 0 and form.base.high + extent >= whole)
        ):
            result.append(None)
        else:
            result.append((form.base.low, form.base.high + extent - 1))
    return tuple(result)


def _hull(a: Any, b: Any) -> Any:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _contains(outer: Any, inner: Any) -> bool:
    return outer is None or (inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1])


def _varies(guard: Any, loop_var: Var) -> bool:
    """Whether a condition may differ between iterations: it uses the loop variable or memory."""
    return _reads_memory(guard) or uses(guard, [loop_var])


def _reads_memory(guard: Any) -> bool:
    return has(guard, TensorLoad)


def _is_among(guard: Any, conditions: Sequence[Any]) -> bool:
    """Whether ``guard`` is one of ``conditions``, unchanged between the write and the read."""
    if _reads_memory(guard):
        return False
    return is_among(guard, conditions)


def _either_way(a: Sequence[Any], b: Sequence[Any]) -> list[Any] | None:
    """Return what remains of two lists of conditions if one's last is the other's, negated."""
    for one, other in ((a, b), (b, a)):
        if not other or not isinstance(other[-1], tirx.Not):
            continue
        negated = conjuncts(other[-1].a)
        first = len(one) - len(negated)
        head, tail = list(one[:first]), one[first:]
        if first >= 0 and _same_conditions(head, other[:-1]) and _same_conditions(tail, negated):
            return head
    return None


def _same_conditions(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(_is_among(guard, b) for guard in a)
