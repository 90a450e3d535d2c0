"""All mutants of a lowered module: one for each synchronising operation and each ring index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import tvm

from ..emulator.lower import is_device_function
from ..plan import PLAN_ATTR, KernelPlan
from ..values.origin import Origin
from .indices import advance, indices
from .operations import operations, weaken
from .slots import PlacedRing, SlotUse, fragment_bytes, rings_of, shift, slot_uses

_REMEMBERED: Final = 4
"""Lowered modules whose rings are remembered: all mutants of one ask for them."""

MutantKind: TypeAlias = Literal["barrier", "wait", "commit", "fence", "arrival", "slot", "phase"]
"""What a mutant changes."""


@dataclass(frozen=True, slots=True)
class Twin:
    """What the mutants of a kernel's relatives have in common that do the same: where and what.

    ``place``: among those of one kernel that are alike otherwise.
    """

    kind: MutantKind
    what: str
    op: str
    phase: str
    place: int

    def is_like(self, other: Twin) -> bool:
        """Whether two are the same; a statement that no iteration reaches has lost its phase."""
        return self == (other if other.phase else replace(other, phase=self.phase))


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect to plant in a kernel.

    ``kernel``: name of the device function. ``number``: among its synchronising operations, or
    among its ring indices for the kinds ``slot`` and ``phase``. ``what``: the operation, or the
    ring and its slot.
    ``change``: what the mutant does to it. ``origin``: of the statement; ``statement``: its number
    in the kernel, in preorder, sequences and attributes not counted. ``twin``: the same for the
    mutants of other trip counts or shapes that do the same to the same statement.
    """

    kernel: str
    kind: MutantKind
    number: int
    what: str
    change: str
    origin: Origin | None
    statement: int
    twin: Twin

    @property
    def synchronises(self) -> bool:
        """Whether it is of a synchronising operation."""
        return self.kind not in ("slot", "phase")

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.what} {self.change}{where}"


def mutants(mod: Any) -> tuple[Mutant, ...]:
    """The mutants of every device function of a lowered module, in program order."""
    rings = _rings(mod)
    found: list[Mutant] = []
    for name, func in device_functions(mod)[0].items():
        found += _of_kernel(name, func, rings, _uses(mod, name))
    return tuple(found)


def mutated(mod: Any, mutant: Mutant) -> Any:
    """Return ``mod`` with one defect more."""
    functions = dict(mod.functions.items())
    for var, func in functions.items():
        if str(var.name_hint) != mutant.kernel:
            continue
        if mutant.synchronises:
            functions[var] = weaken(func, mutant.number)
        elif not (rings := _rings(mod)):
            functions[var] = advance(func, indices(func)[mutant.number])
        else:
            use = _uses(mod, mutant.kernel)[mutant.number]
            functions[var] = shift(func, use, rings[use.buffer])
    return tvm.IRModule(functions, attrs=mod.attrs)


def _of_kernel(
    name: str, func: Any, rings: Mapping[str, PlacedRing], uses: Sequence[SlotUse]
) -> list[Mutant]:
    """The mutants of one device function."""
    found: list[Mutant] = []
    alike: Counter[Twin] = Counter()

    def add(
        kind: MutantKind, number: int, what: str, change: str, origin: Origin | None, statement: int
    ) -> None:
        here = origin or Origin()
        first = Twin(kind, what.partition("[")[0], here.op, here.phase, 0)
        twin = replace(first, place=alike[first])
        alike[first] += 1
        found.append(Mutant(name, kind, number, what, change, origin, statement, twin))

    for at, op in enumerate(operations(func)):
        add(op.kind, at, op.name, op.weakening, op.origin, op.statement)
    for at, use in enumerate(uses):
        what = f"{use.buffer}[{use.slot}]"
        add("slot", at, what, "one slot further", use.origin, use.statement)
    for at, index in enumerate(() if rings else indices(func)):
        kind: MutantKind = "phase" if index.is_phase else "slot"
        change = "the other phase" if index.is_phase else "one slot further"
        add(kind, at, index.text, change, index.origin, index.statement)
    return found


def device_functions(mod: Any) -> tuple[dict[str, Any], Any]:
    """The kernels of a lowered module by name, and its host function."""
    named = {str(var.name_hint): func for var, func in mod.functions.items()}
    kernels = {name: func for name, func in named.items() if is_device_function(func)}
    (host,) = (func for name, func in named.items() if name not in kernels)
    return kernels, host


def is_planned(mod: Any) -> bool:
    """Whether a function of the module carries a plan."""
    return any(PLAN_ATTR in (func.attrs or {}) for func in mod.functions.values())


@lru_cache(maxsize=_REMEMBERED)
def _uses(mod: Any, kernel: str) -> tuple[SlotUse, ...]:
    """The uses of slots of the rings in a kernel."""
    return slot_uses(device_functions(mod)[0][kernel], _rings(mod))


@lru_cache(maxsize=_REMEMBERED)
def _rings(mod: Any) -> dict[str, PlacedRing]:
    """The rings of the plan that a function of the module carries; none without a plan."""
    for func in mod.functions.values():
        text = func.attrs.get(PLAN_ATTR) if func.attrs else None
        if text is not None:
            kernels = device_functions(mod)[0].values()
            fragments = {name: n for one in kernels for name, n in fragment_bytes(one).items()}
            return rings_of(KernelPlan.from_json(str(text)), fragments)
    return {}
