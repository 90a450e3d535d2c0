"""What can be proved of the kernels of one module, as a host launches them with given values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..emulator import Hazard
from ..emulator.launch.host import Launch
from ..emulator.memory.grid import Block
from .claims import Counts, claims, counts
from .ctas import blocks_to_run
from .proof import KernelProof, weakest
from .reading.loops import Family
from .reading.overtaking import may_overtake
from .reading.scopes import at_gpu_scope
from .running.branching import side_by_side
from .running.launched import Launched, Reading
from .running.refuted import Refuted, repeated
from .running.subjects import beginning_at, launches, subject
from .running.walk import Walk, Walked

SECONDS: Final = 120.0
"""What the walks of one kernel may take, before it is run with its own trip counts alone."""

OWN_SECONDS: Final = 10.0
"""What that run may take, more where walks may take more."""

_SHARE: Final = 0.75
"""What each attempt may take of the time that is left: the next one claims less."""


@dataclass
class Found:
    """What was found of each kernel, by its name; ``ran``: device functions with one launch.

    ``assumed``: what it stands on.
    """

    kernels: dict[str, KernelProof] = field(default_factory=dict)
    ran: list[tuple[Any, Launched]] = field(default_factory=list)
    assumed: list[Reason] = field(default_factory=list)


def proofs_of(
    host: Any,
    kernels: Mapping[str, Any],
    extents: Mapping[str, int],
    seconds: float,
    least: Mapping[str, int] | None = None,
) -> Found:
    """Return what can be proved of each kernel in ``seconds``, as launched with ``extents``.

    ``least``: parameters that may have any value from these on; ``extents`` has one of each, and
    what decides repeats from there on as it is with that one.
    """
    found = Found()
    for launch in _different(launches(host, kernels, extents)):
        name = launch.kernel
        if name in found.kernels and not found.kernels[name].ok:
            continue
        func = kernels[name]
        early = launch.dependent and may_overtake(func)
        own = subject(func, replace(launch, dependent=early), least=least)
        if name not in found.kernels:
            found.ran.append((func, own))
        calls = at_gpu_scope(func)
        if calls:
            found.assumed.append(Reason("proof.at_gpu_scope", kernel=name, calls=calls))
        own_seconds = OWN_SECONDS * max(1.0, seconds / SECONDS)
        proofs, all_alike = _of_ctas(own, seconds, own_seconds, least)
        if not all_alike:
            found.assumed.append(Reason("proof.of_ctas"))
        if name in found.kernels:
            proofs.append(found.kernels[name])
        found.kernels[name] = together(proofs)
    return found


def _of_ctas(
    own: Launched, seconds: float, own_seconds: float, least: Mapping[str, int] | None
) -> tuple[list[KernelProof], bool]:
    """What can be proved of one CTA of each kind, and whether these are all.

    Where some are proved for their own trip counts alone, these tell CTAs apart, too.
    """
    proofs: dict[Block, KernelProof] = {}
    counted: list[Family] = []
    while True:
        kinds, all_alike = blocks_to_run(own.func, own.launch, own, counted)
        for first, trips in kinds.items():
            if first in proofs:
                continue
            one = beginning_at(own, first).of_kind(trips)
            proofs[first] = _of_kernel(one, seconds, own_seconds, least)
            if not proofs[first].ok:
                return list(proofs.values()), all_alike
        names = {
            loop.name
            for proof in proofs.values()
            for loop in proof.loops
            if loop.only and loop.most is None
        }
        more = [family for family in own.families if counts(family).name in names]
        if len(more) == len(counted):
            return list(proofs.values()), all_alike
        counted = more


def together(proofs: Sequence[KernelProof]) -> KernelProof:
    """What is proved of one kernel by proofs of several launches; of one that is not, that one."""
    spent = sum(proof.seconds for proof in proofs)
    wrong = next((proof for proof in proofs if not proof.ok), None)
    if wrong is not None:
        return replace(wrong, seconds=spent)
    loops = weakest(proofs)
    is_all = not any(loop.only for loop in loops)
    others = [  # not of CTAs that make as few iterations as they all do
        proof.beyond
        for proof in proofs
        if not (is_all and any(loop.most is not None for loop in proof.loops))
    ]
    return replace(
        max(proofs, key=lambda proof: proof.states),
        loops=loops,
        narrow=next((proof.narrow for proof in proofs if proof.narrow), ""),
        beyond=next((beyond for beyond in others if beyond is not None), None),
        seconds=spent,
    )


def _different(found: Sequence[Launch]) -> Iterator[Launch]:
    """The launches of each kernel that differ in what decides: numbers and dimensions."""
    seen = set()
    for launch in found:
        numbers = tuple(value for value in launch.args if isinstance(value, int | float))
        key = launch.kernel, numbers, tuple(launch.dims.items()), launch.dependent
        if key not in seen:
            seen.add(key)
            yield launch


def _of_kernel(
    whole: Launched, seconds: float, own_seconds: float, least: Mapping[str, int] | None
) -> KernelProof:
    """Return what can be proved of one kernel: of as many trip counts as are right."""
    begun = time.perf_counter()

    def spent() -> float:
        return time.perf_counter() - begun

    name = whole.kernel.name
    why = next(iter(whole.deciding.because), whole.uneven or whole.unbounded)
    if why:
        data = why if whole.deciding.because else ""
        return KernelProof(name, data=data, why=why, seconds=spent())
    beyond: dict[Reading, Refuted] = {}
    narrow: Why = ""
    walks: list[Walked] = []
    too_long: dict[Reading, int] = {}  # so many open loops take longer than there is time
    for read, claim in _attempts(whole, least):
        known = beyond.get(read.reading)
        is_known = known is not None and claim.admits(known)
        if is_known or claim.open_loops >= too_long.get(read.reading, len(whole.families) + 1):
            continue
        left = (seconds - spent()) * _SHARE if claim.open_loops else own_seconds
        tried = _tried(read, claim, time.perf_counter() + left)
        # What one order does not decide for some trip counts it may for fewer of them.
        is_proved = tried[-1].is_complete and not _order(tried)
        if is_proved or not read.is_other:
            walks, claimed, last = tried, claim, tried[-1]
        if is_proved:
            break
        if tried[-1].out_of_time:
            too_long[read.reading] = claim.open_loops
            narrow = narrow if read.is_other else Reason("proof.seconds", seconds=seconds)
        if tried[-1].refuted is not None:
            beyond.setdefault(read.reading, tried[-1].refuted)
    if not walks:
        grown = tuple(family.name for family in whole.families if family.grows)
        why = Reason("proof.loops_that_grow", loops=grown)
        return KernelProof(name, why=why, seconds=spent())
    others = None if last.refuted or read.is_other else beyond.get(Reading.AS_WRITTEN)
    return KernelProof(
        name,
        claimed.loops,
        sum(walk.states for walk in walks),
        sum(len(walk.steps) for walk in walks),
        max(walk.longest for walk in walks),
        why=narrow if last.out_of_time else _order(walks),
        narrow="" if read.is_other and last.is_complete else narrow,
        refuted=last.refuted,
        beyond=others,
        seconds=spent(),
    )


def _attempts(
    whole: Launched, least: Mapping[str, int] | None
) -> Iterator[tuple[Launched, Counts]]:
    """What may be claimed, and of which reading of the code: of more trip counts first.

    A text that was made for some trip counts is read for others before it is run with its own.
    """
    every = list(claims(whole))
    yield from ((whole, claim) for claim in every if claim.is_open)
    own = [claim for claim in every if not claim.is_open]
    if own or any(family.grows for family in whole.families):
        for near in _readings(whole, least):
            yield from ((near, claim) for claim in claims(near) if claim.is_open)
    yield from ((whole, claim) for claim in own)


def _readings(whole: Launched, least: Mapping[str, int] | None) -> Iterator[Launched]:
    """A kernel as its text is read for other trip counts, where that leaves its loops open."""
    numbers = {family.numbers for family in whole.families}
    for reading in (Reading.BY_ENDS, Reading.BY_COUNTS):
        first, counted = whole.blocks[0][1], whole.families
        near = subject(whole.source, whole.launch, first, least, reading=reading, counted=counted)
        asked = [
            family
            for family in near.families
            if (family.by_end if reading == Reading.BY_ENDS else family.count is not None)
        ]
        if asked and not near.unbounded and numbers <= {one.numbers for one in near.families}:
            yield near


def _tried(whole: Launched, claim: Counts, end: float) -> list[Walked]:
    """Walk all that a claim needs, up to the first that is wrong or takes too long."""
    tried: list[Walked] = []
    _ = whole.short(claim.walked[0]).entry  # what all of them run is made once
    works = [partial(_walked, whole, families, end) for families in claim.walked]
    with closing(side_by_side(works, end)) as walks:
        for walked in walks:
            tried.append(walked)
            if not walked.is_complete:
                break
    return tried


def _walked(whole: Launched, families: tuple[Family, ...], end: float) -> Walked:
    """Walk the short form of a kernel; what is wrong with that is looked for in the whole one."""
    judged = _judge(whole)
    walked = Walk(whole.short(families), judged, end - time.perf_counter()).explore()
    if walked.refuted is None:
        return walked
    exact = whole.opened(families)
    found = repeated(exact, walked.refuted, judged, end)
    if found is None:
        return Walk(exact, judged, end - time.perf_counter()).explore()
    return replace(walked, refuted=found)


def _order(walks: list[Walked]) -> Why:
    """Why one order of threads may not decide all."""
    names = {name for walk in walks for name in walk.unordered}
    return Reason("proof.generations", names=tuple(sorted(names))) if names else ""


def _judge(subject: Launched) -> Callable[[Hazard], bool]:
    """Whether a hazard counts: bounds of global memory do not, where trip counts are left open."""
    arrays = {name.removesuffix("_ptr") for name in subject.kernel.params}

    def counts(hazard: Hazard) -> bool:
        return hazard.kind != "out-of-bounds" or hazard.buffer not in arrays

    return counts
