"""``prove``: whether a kernel is right for every trip count and every interleaving."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm

from ..diagnostics import Reason, Why
from ..emulator import Hazard
from ..plan import PLAN_ATTR, KernelPlan
from .agreement import disagreements
from .deciding import deciding
from .execution import Launched
from .loops import Family
from .proof import KernelProof, LoopCounts, Proof
from .refuted import Refuted, repeated
from .scopes import at_gpu_scope
from .subjects import cta_decides, ends, host_and_kernels, launches, subject, symbolic
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
    for launch in launches(host, kernels, extents):
        name = launch.kernel
        if name in proofs:
            continue
        func = kernels[name]
        first, last = ends(launch)
        ran.append((func, subject(func, launch, first)))
        calls = at_gpu_scope(func)
        if calls:
            assumed.append(Reason("proof.at_gpu_scope", kernel=name, calls=calls))
        own = OWN_SECONDS * max(1.0, seconds / SECONDS)
        found = [_of_kernel(ran[-1][1], seconds, own)]
        by_cta = cta_decides(func) or any("blockIdx" in loop.only for loop in found[0].loops)
        if by_cta and first != last:
            found.append(_of_kernel(subject(func, launch, last), seconds, own))
            assumed.append(Reason("proof.of_ctas"))
        proofs[name] = next((one for one in found if not one.ok), found[-1])
    otherwise: tuple[Reason, ...] = ()
    if PLAN_ATTR in host.attrs and not any(proof.data for proof in proofs.values()):
        plan = KernelPlan.from_json(str(host.attrs[PLAN_ATTR]))
        otherwise = disagreements(plan, ran, is_partial=bool(extents))
    return Proof(tuple(proofs.values()), tuple(dict.fromkeys(assumed)), otherwise)


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
        for least in (0, 1):
            around = [replace(family, least=least) for family in outer]
            counts = [*(_counts(family) for family in around), LoopCounts(inner[0].name, 1)]
            walked = [(*around, replace(inner[0], least=_LAPS))]
            walked += [(*around, replace(inner[0], fixed=n)) for n in range(1, _LAPS)]
            yield _Claim(tuple(counts), tuple(walked))
    for least in (0, 1) if outer else ():
        around = [replace(family, least=least) for family in outer]
        own = [_counts(family, family.text) for family in inner]
        yield _Claim((*map(_counts, around), *own), (tuple(around),))
    own = [_counts(family, family.text) for family in whole.families]
    yield _Claim(tuple(own), ((),))


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
