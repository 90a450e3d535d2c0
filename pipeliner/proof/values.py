"""Proofs for every value of symbolic extents: the least values one by one, all others together.

What decides in a kernel depends on such a value n in three ways that are understood
(``reading/loops.py``): not at all any more from some value on; by what it leaves, divided by a
constant; or as the trip count of a loop around, compared with the variable of that loop. So from
some value on one walk with the trip counts left open stands for all, or one for each remainder.
What is smaller is proved by itself, one for each group of values of which all that decides is the
same. With several extents all are large in those walks; for each small value of one of them
everything begins again with that one known.

A walk leaves more open than there is: two loops of n iterations each come to make different ones.
So an execution that it refutes is looked for with values, and counts where it is met there.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice, product
from math import lcm, prod
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..emulator.launch.evaluate import evaluate
from ..errors import EmulatorError
from ..passes.ir.nodes import uses, variables
from .claims import counts
from .kernels import Found, proofs_of, together
from .kinds import Kinds, Parts
from .proof import ExtentValues, KernelProof
from .reading.arguments import obstacle, of_grids
from .reading.deciding import deciding
from .reading.extents import least_count
from .reading.idle import idle
from .reading.loops import Family
from .reading.reaching import GRID, Reaching
from .running.launched import Launched
from .running.refuted import Refuted
from .running.subjects import admitted, launches, subject

_MOST: Final = 1 << 12
"""Values of an extent that are proved one by one, or in groups, at most."""

_MOST_GROUPS: Final = 256
"""Groups of such values, and remainders, of which one each is proved: each takes as long as one."""

_MOST_TRIED: Final = 16
"""Values that are tried at most where a walk refutes what is left open."""

_USUAL: Final = 64
"""What values of an extent are at least that stand for all others."""


def proofs_of_all(
    host: Any,
    kernels: Mapping[str, Any],
    names: set[str],
    known: Mapping[str, int],
    seconds: float,
) -> Found:
    """Return what can be proved of each kernel for all values of ``names``, but for those known."""
    return _All(host, kernels, seconds).proved({n: known[n] for n in names & set(known)}, names)


class _All:
    """Proofs of one module, until one fails or there is no more time."""

    def __init__(self, host: Any, kernels: Mapping[str, Any], seconds: float) -> None:
        self._host, self._kernels, self._seconds = host, kernels, seconds
        self._end = time.perf_counter() + seconds
        self._kinds = Kinds(host, kernels)
        self._far_parts: dict[Any, dict[str, Parts] | None] = {}
        self._found = Found()
        self._proofs: dict[str, list[KernelProof]] = {name: [] for name in kernels}
        self._grown: set[str] = set()  # loops whose trip counts the values give

    def proved(self, known: dict[str, int], names: set[str]) -> Found:
        """Everything that there is to prove, and what came of it."""
        data = {name: next(iter(deciding(f).because), "") for name, f in self._kernels.items()}
        why = next(filter(None, data.values()), obstacle(self._host, self._kernels, names))
        if why:
            for name, own in data.items():
                self._found.kernels[name] = KernelProof(name, data=own, why=own or why)
            return self._found
        values = tuple(
            ExtentValues(name, only=str(known[name]) if name in known else "")
            for name in sorted(names)
        )
        if self._cover(known, names - set(known)):
            for name, proofs in self._proofs.items():
                if proofs:
                    self._found.kernels[name] = replace(together(proofs), values=values)
        for name, proof in self._found.kernels.items():
            loops = tuple(loop for loop in proof.loops if loop.name not in self._grown)
            self._found.kernels[name] = replace(proof, loops=loops)
        return self._found

    def _cover(self, known: dict[str, int], names: set[str]) -> bool:
        """Prove all values of ``names``, with others known; whether that went well."""
        if not names:
            return self._one(known)
        least, every = self._thresholds(known, names)
        if least is None:
            return False
        if prod(every.values()) > _MOST or max(least.values()) >= _MOST:
            return self._failed(Reason("proof.many_values", names=tuple(sorted(names))))
        for name in sorted(names):
            groups: dict[Any, int] = {}
            for value in range(least[name]):
                kind = self._kinds.kind({**known, name: value}) if len(names) == 1 else value
                groups.setdefault(kind, value)
            if len(groups) > _MOST_GROUPS:
                return self._failed(Reason("proof.many_values", names=(name,)))
            for value in groups.values():
                if not self._cover({**known, name: value}, names - {name}):
                    return False
        kinds: dict[Any, dict[str, int]] = {}
        for rest in product(*(range(every[name]) for name in least)):
            values = {name: least[name] + more for name, more in zip(least, rest, strict=True)}
            tried = self._tried(known, values, every)
            if tried is None:
                return False
            kinds.setdefault(self._far_kind({**known, **tried}, least), values)
        if len(kinds) > _MOST_GROUPS:
            return self._failed(Reason("proof.many_values", names=tuple(sorted(names))))
        return all(self._far(known, values, every, least) for values in kinds.values())

    def _far_kind(self, values: dict[str, int], least: dict[str, int]) -> Any:
        """What is the same for large values with which all is the same, but for trip counts."""
        key = tuple(sorted(least)), tuple(sorted(values.keys() - least.keys()))
        if key not in self._far_parts:
            made = list(self._subjects(values, least))
            linked = any(one.remainder[0] > 1 for launched in made for one in launched.families)
            parts = {launched.kernel.name: Parts(launched.func) for launched in made}
            self._far_parts[key] = None if linked else parts
        itself, known = tuple(sorted(values.items())), self._far_parts[key]
        if known is None:
            return itself  # what these values leave, divided, is what trip counts leave
        try:
            found = launches(self._host, self._kernels, values)
            return tuple(known[launch.kernel].kind(launch) for launch in found)
        except EmulatorError:
            return itself

    def _one(self, known: dict[str, int]) -> bool:
        """Prove the kernels with values of all extents; whether they are right."""
        if not admitted(self._host, self._kernels, known):
            return True  # nothing is launched with them
        return self._take(proofs_of(self._host, self._kernels, known, self._left), known)

    @property
    def _left(self) -> float:
        return max(0.0, self._end - time.perf_counter())

    def _take(self, found: Found, known: Mapping[str, int]) -> bool:
        """Take in what was proved; whether all of it is right."""
        self._found.assumed += found.assumed
        self._found.ran = found.ran or self._found.ran
        late = self._left == 0.0
        for name, proof in found.kernels.items():
            if not proof.ok:
                values = tuple(ExtentValues(n, only=str(v)) for n, v in sorted(known.items()))
                self._failed(proof.why, name, replace(proof, values=values))
                return False
            self._proofs[name].append(proof)
        return not late or self._failed(Reason("proof.seconds", seconds=self._seconds))

    def _failed(self, why: Any, name: str = "", proof: KernelProof | None = None) -> bool:
        """Note why something is not proved, of one kernel or all."""
        for one in self._kernels:
            given = proof if proof is not None and one == name else KernelProof(one, why=why)
            if not name or one == name:
                spent = sum(past.seconds for past in self._proofs[one])
                self._found.kernels[one] = replace(given, seconds=spent + given.seconds)
            elif self._proofs[one]:
                self._found.kernels[one] = together(self._proofs[one])
        return False

    # Large values, all at once

    def _thresholds(
        self, known: dict[str, int], names: set[str]
    ) -> tuple[dict[str, int] | None, dict[str, int]]:
        """From which value of each extent on walks stand for all, for how many remainders.

        No value: what decides depends on them otherwise, which was noted.
        """
        tried = self._tried(known, dict.fromkeys(names, 0), dict.fromkeys(names, 1))
        if tried is None:
            return None, {}
        least, every = dict.fromkeys(names, 0), dict.fromkeys(names, 1)
        for launched in self._subjects({**known, **tried}, least):
            why = launched.unbounded or self._by_place(launched, names)
            if why:
                self._failed(why)
                return None, {}
            self._grown |= {
                counts(family).name
                for family in launched.families
                if uses(family.whole, launched.parameters)
            }
            for name, (after, often) in launched.repeats.items():
                least[name] = max(least[name], after)
                every[name] = lcm(every[name], often)
            for family in launched.families:
                start = bisect_left(
                    range(_MOST), family.far, key=partial(_fewest, launched, family)
                )
                for var in variables(family.whole) & set(launched.parameters):
                    least[str(var.name)] = max(least[str(var.name)], start)
        return least, every

    def _by_place(self, launched: Launched, names: set[str]) -> Why:
        """Why CTAs that other values have may do otherwise than those that there are."""
        if launched.kernel.name not in of_grids(self._host, self._kernels, names):
            return ""
        reaching = Reaching(launched.func, launched.deciding)
        nothing = idle(launched.func, launched.deciding)
        trips = {number for family in launched.families for number in family.numbers}
        exprs = [family.whole for family in launched.families]
        exprs += [
            expr
            for expr, number in (*launched.deciding.roots, *launched.deciding.stored)
            if number not in nothing | trips
        ]
        for expr in exprs:
            if GRID in reaching.origins(expr):
                return Reason("proof.grid_grows", names=tuple(sorted(names)), decides=str(expr))
        return ""

    def _tried(
        self, known: dict[str, int], least: dict[str, int], every: dict[str, int]
    ) -> dict[str, int] | None:
        """Values from ``least`` on, that are like these, with which the host launches its kernels.

        Not the first ones: with few elements, arrays are too small for what is copied.
        """
        for more in range(_MOST_GROUPS):
            values = {
                name: value + -(-max(_USUAL - value, 0) // every[name] + -more) * every[name]
                for name, value in least.items()
            }
            found = admitted(self._host, self._kernels, {**known, **values})
            if found and {launch.kernel for launch in found} == set(self._kernels):
                return values
        self._failed(Reason("proof.no_launch", names=tuple(sorted(least))))
        return None

    def _subjects(self, values: dict[str, int], least: dict[str, int]) -> Iterator[Launched]:
        for launch in launches(self._host, self._kernels, values):
            yield subject(self._kernels[launch.kernel], launch, least=least)

    def _far(
        self,
        known: dict[str, int],
        values: dict[str, int],
        every: dict[str, int],
        least: dict[str, int],
    ) -> bool:
        """Prove the kernels for all values from ``least`` on of one kind; whether that went well.

        ``values``: the first ones of that kind, and ``every`` so many there are more.
        """
        tried = self._tried(known, values, every)
        if tried is None:
            return False
        found = proofs_of(self._host, self._kernels, {**known, **tried}, self._left, least)
        for name, proof in found.kernels.items():
            wrong = proof.refuted
            if wrong is None:
                continue
            for launched in self._subjects({**known, **tried}, least):
                if launched.kernel.name == name:
                    for one in self._like(launched, wrong, values, every, tried):
                        if not self._one({**known, **one}):
                            return False
            why = Reason("proof.not_met", run=wrong.said)
            found.kernels[name] = replace(proof, refuted=None, beyond=wrong, why=why)
        return self._take(found, {})

    def _like(
        self,
        launched: Launched,
        wrong: Refuted,
        values: dict[str, int],
        every: dict[str, int],
        tried: dict[str, int],
    ) -> Iterator[dict[str, int]]:
        """Values with which loops make as many iterations as in an execution that is wrong.

        Of an extent that gives none of these the first ones, and what was ``tried``.
        """
        counted: dict[str, dict[int, None]] = {name: {} for name in values}
        for trip in wrong.trips:
            for whole in (one.whole for one in launched.families if one.name == trip.loop):
                for var in variables(whole) & set(launched.parameters):
                    more = _value(whole, launched.given, var, trip.count, values, every)
                    if more is not None:
                        counted[str(var.name)].setdefault(more)
        choices = [
            counted[name] or dict.fromkeys((value, value + every[name], tried[name]))
            for name, value in values.items()
        ]
        for some in islice(product(*choices), _MOST_TRIED):
            yield dict(zip(values, some, strict=True))


def _fewest(launched: Launched, family: Family, start: int) -> int:
    """How many iterations a loop makes at least, if all values are ``start`` or more."""
    many = dict.fromkeys(launched.parameters, start)
    return least_count(launched.func, launched.launch, family.whole, family.outside, many)


def _value(
    extent: Any,
    given: Mapping[Any, int],
    var: Any,
    count: int,
    values: Mapping[str, int],
    every: Mapping[str, int],
) -> int | None:
    """The first value of a parameter, of those that are alike, that gives so many iterations."""
    name = str(var.name)
    for value in range(values[name], values[name] + _MOST * every[name], every[name]):
        try:
            if int(evaluate(extent, {**given, var: value})) == count:
                return value
        except EmulatorError:
            return None
    return None
