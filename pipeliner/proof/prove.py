"""``prove``: whether a kernel is right for every trip count and every interleaving."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm

from ..diagnostics import Reason, Why
from ..emulator import Hazard
from ..emulator.launch.host import Launch
from ..plan import PLAN_ATTR, KernelPlan
from .agreement import disagreements
from .ctas import blocks_to_run
from .execution import Launched
from .proof import KernelProof, LoopCounts, Proof
from .reading.deciding import deciding
from .reading.loops import Family
from .reading.scopes import at_gpu_scope
from .refuted import Refuted, repeated
from .subjects import host_and_kernels, launches, subject, symbolic
from .walk import Walk

SECONDS: Final = 120.0
"""What the walks of one kernel may take, before it is run with its own trip counts alone."""

OWN_SECONDS: Final = 10.0
"""What that run may take, more where walks may take more."""

_SHARE: Final = 0.75
"""What each attempt may take of the time that is left: the next one claims less."""

_LAPS: Final = 6
"""Trip counts of an inner loop from which on a walk leaves them open, each run's its own.

Those below are walked one by one. Any number is right; with less than the slots of a ring there are
many states, as runs through several loops are in the ring at once. The longest proof of the suites,
of rings of four slots, has 183 states with 4, 139 with 6 and 105 with 8, which takes longer again.
"""


_REMEMBERED: Final = 64
"""Proofs that are kept, by the lowered IR that they are of."""

_proofs: OrderedDict[tuple[Any, ...], Proof] = OrderedDict()


def prove(mod: Any, *, extents: Mapping[str, int] | None = None, seconds: float = SECONDS) -> Proof:
    """Return what can be proved of a lowered module, walking each kernel for so many ``seconds``.

    ``extents``: values of the symbolic extents in the shapes of its arguments, by name.
    """
    key = key_of(mod, extents, seconds)
    if key not in _proofs:
        _proofs[key] = _proved(getattr(mod, "lowered", mod), extents or {}, seconds)
        if len(_proofs) > _REMEMBERED:
            _proofs.popitem(last=False)
    return _proofs[key]


def key_of(mod: Any, extents: Mapping[str, int] | None, seconds: float) -> tuple[Any, ...]:
    """Return what a proof is known by: a hash of the lowered IR, and what else it is made with."""
    text = tvm.ir.save_json(getattr(mod, "lowered", mod)).encode()
    return hashlib.blake2b(text).hexdigest(), tuple(sorted((extents or {}).items())), seconds


def _proved(mod: Any, extents: Mapping[str, int], seconds: float) -> Proof:
    host, kernels = host_and_kernels(mod)
    missing = symbolic(host) - set(extents)
    if missing:
        why = Reason("proof.extents", names=tuple(sorted(missing)))
        return Proof(tuple(_unknown(name, func, why) for name, func in kernels.items()))
    proofs: dict[str, KernelProof] = {}
    ran: list[tuple[Any, Launched]] = []
    assumed = [Reason("proof.of_model"), Reason("proof.of_global")]
    for launch in _different(launches(host, kernels, extents)):
        name = launch.kernel
        if name in proofs and not proofs[name].ok:
            continue
        func = kernels[name]
        own = subject(func, launch)
        if name not in proofs:
            ran.append((func, own))
        calls = at_gpu_scope(func)
        if calls:
            assumed.append(Reason("proof.at_gpu_scope", kernel=name, calls=calls))
        own_seconds = OWN_SECONDS * max(1.0, seconds / SECONDS)
        found = [_of_kernel(own, seconds, own_seconds)]
        names = {loop.name for loop in found[0].loops if loop.only}
        counted = [family for family in own.families if _counts(family).name in names]
        firsts, all_alike = blocks_to_run(func, launch, own, counted)
        found += [
            _of_kernel(subject(func, launch, first), seconds, own_seconds) for first in firsts[1:]
        ]
        if not all_alike:
            assumed.append(Reason("proof.of_ctas"))
        one = next((one for one in found if not one.ok), found[-1])
        spent = one.seconds if name not in proofs else one.seconds + proofs[name].seconds
        proofs[name] = replace(one, seconds=spent)
    otherwise: tuple[Reason, ...] = ()
    if PLAN_ATTR in host.attrs and not any(proof.data for proof in proofs.values()):
        plan = KernelPlan.from_json(str(host.attrs[PLAN_ATTR]))
        otherwise = disagreements(plan, ran, is_partial=bool(extents))
    return Proof(tuple(proofs.values()), tuple(dict.fromkeys(assumed)), otherwise)


def _different(found: Sequence[Launch]) -> Iterator[Launch]:
    """The launches of each kernel that differ in what decides: numbers and dimensions."""
    seen = set()
    for launch in found:
        numbers = tuple(value for value in launch.args if isinstance(value, int | float))
        key = launch.kernel, numbers, tuple(launch.dims.items()), launch.dependent
        if key not in seen:
            seen.add(key)
            yield launch


def _unknown(name: str, func: Any, why: Reason) -> KernelProof:
    data = deciding(func).because
    return KernelProof(name, data=data[0] if data else "", why=why)


def _of_kernel(whole: Launched, seconds: float, own_seconds: float) -> KernelProof:
    """Return what can be proved of one kernel: of as many trip counts as are right."""
    begun = time.perf_counter()

    def spent() -> float:
        return time.perf_counter() - begun

    name = whole.kernel.name
    if whole.deciding.because:
        data = whole.deciding.because[0]
        return KernelProof(name, data=data, why=data, seconds=spent())
    if whole.uneven:
        return KernelProof(name, why=whole.uneven, seconds=spent())
    beyond: Refuted | None = None
    narrow: Why = ""
    too_long = len(whole.families) + 1  # so many open loops take longer than there is time
    for claim in _claims(whole):
        if claim.open_loops >= too_long or (beyond is not None and claim.admits(beyond)):
            continue
        left = (seconds - spent()) * _SHARE if claim.open_loops else own_seconds
        end = spent() + left
        walks: list[Walk] = []
        for families in claim.walked:
            walks.append(_walked(whole, families, end - spent()))
            if not walks[-1].is_complete:
                break
        last = walks[-1]
        if last.is_complete:
            break
        if last.out_of_time:
            narrow, too_long = Reason("proof.seconds", seconds=seconds), claim.open_loops
        beyond = beyond or last.refuted
    return KernelProof(
        name,
        claim.loops,
        sum(walk.states for walk in walks),
        sum(len(walk.steps) for walk in walks),
        max(walk.longest for walk in walks),
        why=narrow if last.out_of_time else _order(walks),
        narrow=narrow,
        refuted=last.refuted,
        beyond=None if last.refuted else beyond,
        seconds=spent(),
    )


def _walked(whole: Launched, families: tuple[Family, ...], seconds: float) -> Walk:
    """Walk the short form of a kernel; what is wrong with that is looked for in the whole one."""
    begun, judged = time.perf_counter(), _judge(whole)
    end = begun + seconds
    walk = Walk(whole.short(families), judged, seconds).explore()
    if walk.refuted is None:
        return walk
    exact = replace(whole, families=families)
    found = repeated(exact, walk.refuted, judged, end)
    if found is None:
        return Walk(exact, judged, end - time.perf_counter()).explore()
    walk.refuted = found
    return walk


def _order(walks: list[Walk]) -> Why:
    """Why one order of threads may not decide all."""
    names = {name for walk in walks for name in walk.unordered}
    return Reason("proof.generations", names=tuple(sorted(names))) if names else ""


@dataclass(frozen=True)
class _Claim:
    """Trip counts, and the open loops of the walks that show that they are right, all together."""

    loops: tuple[LoopCounts, ...]
    walked: tuple[tuple[Family, ...], ...]

    @property
    def open_loops(self) -> int:
        """How many loops are left open."""
        return len(self.walked[0])

    def admits(self, refuted: Refuted) -> bool:
        """Whether a wrong execution has trip counts that are claimed."""
        return any(
            all(any(map(trip.is_of, families)) for trip in refuted.trips)
            for families in self.walked
        )


def _claims(whole: Launched) -> Iterator[_Claim]:
    """What may be claimed of the trip counts of a kernel, the most first."""
    names = {family.name for family in whole.families}
    inner = [family for family in whole.families if names & set(family.around)]
    outer = [family for family in whole.families if family not in inner]
    if len(inner) == 1:
        for around in _outer(outer):
            yield from _of_inner(around, inner[0])
    for around in _outer(outer) if outer and not any(one.varies for one in inner) else ():
        own = [_counts(family, family.text) for family in inner]
        yield _Claim((*map(_counts, around), *own), (tuple(around),))
    own = [_counts(family, family.text) for family in whole.families]
    yield _Claim(tuple(own), ((),))


def _outer(outer: list[Family]) -> Iterator[list[Family]]:
    """Loops with every trip count that is claimed of them: those as launched are among these."""
    for least in (0, 1):
        if all(least <= family.fewest for family in outer):
            yield [replace(family, least=least) for family in outer]


def _of_inner(around: list[Family], inner: Family) -> Iterator[_Claim]:
    """What may be claimed of a loop in others: as many iterations each time, or any number."""
    counts = [_counts(family) for family in around]
    if inner.varies:
        least = min(1, inner.fewest)
        walked = (*around, replace(inner, least=least))
        yield _Claim((*counts, LoopCounts(inner.name, least)), (walked,))
    elif inner.fewest:
        walks = [(*around, replace(inner, least=_LAPS))]
        walks += [(*around, replace(inner, fixed=n)) for n in range(1, _LAPS)]
        yield _Claim((*counts, LoopCounts(inner.name, 1)), tuple(walks))


def _counts(family: Family, only: str = "") -> LoopCounts:
    """The trip counts of a family, with the most that some of its loops make beyond the others."""
    more = max(family.more.values(), default=0)
    return LoopCounts(f"{family.name} (+ {more})" if more else family.name, family.least, only)


def _judge(subject: Launched) -> Callable[[Hazard], bool]:
    """Whether a hazard counts: bounds of global memory do not, where trip counts are left open."""
    arrays = {name.removesuffix("_ptr") for name in subject.kernel.params}

    def counts(hazard: Hazard) -> bool:
        return hazard.kind != "out-of-bounds" or hazard.buffer not in arrays

    return counts
