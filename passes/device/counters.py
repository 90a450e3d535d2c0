"""Replace the remainders that select ring slots by counters that a steady loop carries.

    for k in range(n):                 slot = local int32[1]; slot[0] = 0
        ... ring[(k + 2) % 3] ...      for k in range(n):
        ... ring[k % 3] ...               now = slot[0]
                                 =>       ahead = select(now >= 1, now - 1, 2)   # (k + 2) % 3
                                          ... ring[ahead] ... ring[now] ...
                                          slot[0] = select(now >= 2, 0, now + 1)

A modulo by a constant that is no power of two is eight dependent instructions on a GPU, and every
use of the ring waits for them. A counter is a compare and a select. Powers of two stay, as they are
one mask. The slot of a clamped iteration, ``min(k + 1, last) % 3``, selects between two.

The pass runs on device functions, behind everything that distinguishes slots by their modulo, and
behind the last pass that simplifies: that would put a derived slot back into every use.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ...values.origin import PHASE, STEADY
from ..ir import nodes as ir
from ..ir.linear import affine
from ..ir.named_pass import named_pass

Key: TypeAlias = "tuple[int, int]"
"""What a counter counts: the step of an iteration and the modulus, ``step * k % modulus``."""


@named_pass("RollCounters")
def roll_counters(func: Any) -> Any:
    """Return ``func`` with counters for slots in steady loops; the same object without any."""

    def rewrite(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        return _Loop(node).rolled() if _is_steady(node) else node

    body = tvm_ffi.structural_mutate(func.body, [(tirx.For, rewrite)])
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def has_steady_loop(func: Any) -> bool:
    """Whether a loop of ``func`` was pipelined."""
    return ir.has(func.body, tirx.For, _is_steady)


def _is_steady(loop: Any) -> bool:
    return (
        loop.kind == ir.ForKind.SERIAL
        and str(loop.annotations.get(PHASE, "")) == STEADY
        and (loop.step is None or ir.const_int(loop.step) == 1)
    )


class _Loop:
    """One steady loop: the counters that it carries, and the slots that each step derives."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._var = loop.loop_var
        self._dtype = str(loop.loop_var.ty.dtype)
        self._prover = sym.Analyzer()
        self._prover.bind(self._var, Range.from_min_extent(loop.min, loop.extent))
        self._counters: dict[Key, Any] = {}
        self._now: dict[Key, Any] = {}
        self._slots: dict[tuple[Key, int], Any] = {}
        self._derived: list[Any] = []

    def rolled(self) -> Any:
        """The loop with counters around and in it; the loop itself when nothing is counted."""
        body = tvm_ffi.structural_mutate(self._loop.body, [(tirx.FloorMod, self._remainder)])
        if not self._counters:
            return self._loop
        before, first, last = [], [], []
        for key, counter in self._counters.items():
            step, modulus = key
            start = tirx.floormod(self._loop.min * self._const(step), self._const(modulus))
            here = [ir.i32(0)]
            before += [
                tirx.AllocBuffer(counter),
                tirx.BufferStore(counter, ir.simplify(start), here),
            ]
            first.append(tirx.Bind(self._now[key], tirx.BufferLoad(counter, here)))
            last.append(tirx.BufferStore(counter, self._ahead(key, step % modulus), here))
        loop = tirx.For(
            self._var,
            self._loop.min,
            self._loop.extent,
            self._loop.kind,
            ir.seq(*first, *self._derived, body, *last),
            self._loop.thread_binding,
            self._loop.annotations,
            self._loop.step,
        )
        return ir.seq(*before, loop)

    def _remainder(self, node: Any, mutator: Any) -> Any:
        """Return a slot in place of a modulo that can be counted."""
        modulus = ir.const_int(node.b) if isinstance(node.b, tirx.IntImm) else None
        if modulus is None or modulus & (modulus - 1) == 0 or not ir.uses(node.a, [self._var]):
            return mutator.default_mutate(node)
        if str(node.ty.dtype) != self._dtype:
            return mutator.default_mutate(node)
        if isinstance(node.a, tirx.Min):
            clamped = self._clamped(node.a, modulus)
            return mutator.default_mutate(node) if clamped is None else clamped
        slot = self._slot(node.a, modulus)
        return mutator.default_mutate(node) if slot is None else slot

    def _slot(self, expr: Any, modulus: int) -> Any | None:
        """Return the variable with ``expr % modulus`` if ``expr`` is ``step * k + c``."""
        known = affine(expr, [self._var])
        offset = None if known is None else ir.const_int(known.base)
        if known is None or offset is None or not known.coefficients:
            return None
        step = known.coefficients[self._var]
        return None if step < 0 else self._derive((step, modulus), offset % modulus)

    def _clamped(self, least: Any, modulus: int) -> Any | None:
        """Return ``min(k + 1, last) % modulus`` if no ``k`` is past ``last``."""
        for ahead, end in ((least.a, least.b), (least.b, least.a)):
            known = affine(ahead, [self._var])
            if known is None or known.coefficients != {self._var: 1}:
                continue
            if ir.const_int(known.base) != 1 or ir.uses(end, [self._var]):
                continue
            if not self._prover.can_prove(self._var <= end):
                continue
            key = (1, modulus)
            return tirx.Select(self._var < end, self._derive(key, 1), self._derive(key, 0))
        return None

    def _derive(self, key: Key, offset: int) -> Any:
        """Return the variable with ``(step * k + offset) % modulus``."""
        if key not in self._counters:
            step, modulus = key
            name = f"{self._var.name}_mod_{modulus}" + (f"_by_{step}" if step != 1 else "")
            self._counters[key] = ir.buffer([1], self._dtype, f"{name}_slot", "local")
            self._now[key] = ir.Var(name, self._var.ty)
        if offset == 0:
            return self._now[key]
        if (key, offset) not in self._slots:
            slot = ir.Var(f"{self._now[key].name}_plus_{offset}", self._var.ty)
            self._derived.append(tirx.Bind(slot, self._ahead(key, offset)))
            self._slots[key, offset] = slot
        return self._slots[key, offset]

    def _ahead(self, key: Key, offset: int) -> Any:
        """Return ``(now + offset) % modulus``, with both addends in ``0 .. modulus - 1``."""
        known = self._slots.get((key, offset))
        if known is not None:
            return known
        modulus, now = key[1], self._now[key]
        back = modulus - offset
        if offset == 0:
            return now
        wrapped = self._const(0) if offset == 1 else now - self._const(back)
        further = self._const(offset) if back == 1 else now + self._const(offset)
        return tirx.Select(now >= self._const(back), wrapped, further)

    def _const(self, value: int) -> Any:
        return tirx.const(value, self._dtype)
