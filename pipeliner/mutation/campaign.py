"""Run every mutant of a kernel until something kills it.

A mutant is killed by a hazard or by an output that differs in a bit from that of the kernel itself.
It runs under one timing of copies and order of warps after the other, the quickest first, and stops
at the first that kills it. One that survives is tried again on other arguments, and on relatives:
the same function for other trip counts or shapes, where the twin of the mutant does the same to the
same statement. What survives them all is equivalent, with a proof, or stands for a synchronisation
that the kernel does not need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from ..diagnostics import Reason, Why
from ..emulator import Emulation, emulate
from ..emulator.base.report import CudaLine
from ..emulator.emulate import Programs
from ..emulator.engine.scheduler import LOCKSTEP, ORDERS
from ..emulator.launch.arguments import bind_arguments
from ..emulator.launch.host import run_host
from ..emulator.units.cp_async import TIMINGS
from ..errors import WorkloadError
from ..verification.accessed import Block
from ..verification.accuracy import equal
from ..verification.sampling import ALL_CTAS, Sample, in_turn, sample
from ..verification.subjects import GivenInputs, Subject, arguments, subject_of
from ..verification.verdict import owned_by, paired, verify
from .equivalence import equivalent
from .mutants import Mutant, device_functions, is_planned, mutants, mutated
from .needless import needless
from .schema import Schema

Relatives: TypeAlias = "Mapping[str, Callable[[], Any]]"
"""Kernels of the same function for other extents, by name; made when needed."""

DEFAULT_MODES: Final = tuple(paired(TIMINGS, ORDERS))
"""Timings of copies and orders of warps, the quickest first."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant.

    ``killed_by``: the hazard, or which output differs; '' where it survived. ``run``: under which
    timing and order, and on which relative. ``reason``: why one that survived is equivalent, ''
    where nothing shows that it is.
    """

    mutant: Mutant
    killed_by: Why
    run: str
    reason: Why
    runs: int
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether some run found the defect."""
        return bool(self.killed_by)

    @property
    def ok(self) -> bool:
        """Whether it was killed, or cannot be."""
        return self.killed or bool(self.reason)


@dataclass(frozen=True, slots=True)
class MutationReport:
    """The fates of all mutants of one kernel.

    ``mutants``: how many there are to run. ``ran``: on which CTAs, of each kernel.
    """

    title: str
    mutants: int
    fates: tuple[Fate, ...]
    ran: Reason = ALL_CTAS

    @property
    def ok(self) -> bool:
        """Whether every mutant was run, and none survived without a proof that it is equivalent."""
        return len(self.fates) == self.mutants and not self.unexplained

    @property
    def survivors(self) -> tuple[Fate, ...]:
        """What no run killed."""
        return tuple(fate for fate in self.fates if not fate.killed)

    @property
    def unexplained(self) -> tuple[Fate, ...]:
        """What survived and is not shown to be equivalent."""
        return tuple(fate for fate in self.fates if not fate.ok)


def mutate(
    func: Any,
    inputs: GivenInputs | None = None,
    *,
    target: Any = None,
    relatives: Relatives | None = None,
    timings: Sequence[str] = TIMINGS,
    orders: Sequence[str] = ORDERS,
    seed: int = 0,
    extents: Sequence[Mapping[str, int]] = ({},),
    reference: Callable[..., Any] | None = None,
    others: Sequence[GivenInputs] = (),
) -> MutationReport:
    """Delete or weaken every synchronisation of ``func``, shift every ring index, and see each die.

    Parameters
    ----------
    func, inputs, target, timings, orders, seed, reference
        As for ``pipeliner.verify``. A function that is not pipelined yet is pipelined first.
    relatives
        Functions that make the same kernel for other trip counts or shapes, by name: for mutants
        that survive on ``func``.
    extents
        Values of symbolic extents; mutants that survive the first are tried with the others.
    others
        Further arguments, each as ``inputs``, for mutants that survive those: where only the
        maximum of a row counts, it has to lie where the mutant loses it.

    Raises
    ------
    WorkloadError
        The kernel itself has a hazard, so that no mutant could be told from it, or is not what
        ``reference`` says.
    """
    modes = paired(timings, orders)
    campaign = Campaign(func, inputs, target, relatives, modes, seed, extents, reference, others)
    return campaign.report(campaign.run())


class Campaign:
    """The mutants of one kernel, and what they are run on."""

    def __init__(
        self,
        func: Any,
        inputs: GivenInputs | None = None,
        target: Any = None,
        relatives: Relatives | None = None,
        modes: Sequence[tuple[str, str]] = DEFAULT_MODES,
        seed: int = 0,
        extents: Sequence[Mapping[str, int]] = ({},),
        reference: Callable[..., Any] | None = None,
        others: Sequence[GivenInputs] = (),
    ) -> None:
        subject = subject_of(func, target)
        self.title = subject.title
        self._line = subject.line
        self._modes = tuple(modes)
        self._seed = seed
        first, *further = extents
        given = arguments(subject.function, inputs, seed, extents=first)
        self.mutants = mutants(subject.lowered)
        schema = Schema.of(subject.lowered, self.mutants)
        self._hosts = [_Host("", subject, given, self._modes, seed, schema)]
        if reference is not None:
            self._hold_against(reference, func, target)
        self._makers: list[tuple[str, Callable[[], _Host]]] = []
        for number, other in enumerate(others, 2):
            self._add(f"inputs {number}", lambda: func, first, other)
        for values in further:
            self._add(", ".join(f"{k} = {v}" for k, v in values.items()), lambda: func, values)
        for name, make in (relatives or {}).items():
            self._add(name, make, {})
        self._target = target

    def _hold_against(self, reference: Callable[..., Any], func: Any, target: Any) -> None:
        """Compare the kernel with ``reference``; WorkloadError: it is wrong itself."""
        (host,), ((timing, order), *_) = self._hosts, self._modes
        verdict = verify(
            func,
            host.arrays,
            target=target,
            reference=reference,
            timings=[timing],
            orders=[order],
            blocks=host.chosen.blocks if len(host.subject.kernels) == 1 else None,
        )
        if not verdict.ok:
            raise WorkloadError(
                "mutation.wrong_sums", error=verdict.worst, tolerance=verdict.tolerance
            )

    def _add(
        self,
        name: str,
        make: Callable[[], Any],
        extents: Mapping[str, int],
        inputs: GivenInputs | None = None,
    ) -> None:
        def host() -> _Host:
            subject = subject_of(make(), self._target)
            arrays = arguments(subject.function, inputs, self._seed, extents=extents)
            return _Host(name, subject, arrays, self._modes, self._seed)

        self._makers.append((name, host))

    @property
    def ran(self) -> Reason:
        """Which CTAs of the kernel run with each mutant."""
        return self._hosts[0].chosen.said

    def report(self, fates: Iterable[Fate]) -> MutationReport:
        """What became of the mutants, so far as ``fates`` go."""
        return MutationReport(self.title, len(self.mutants), tuple(fates), self.ran)

    def run(self) -> Iterator[Fate]:
        """Yield the fate of each mutant, in order, as soon as it is known."""
        for mutant in self.mutants:
            yield self._fate(mutant)

    def line(self, mutant: Mutant) -> CudaLine | None:
        """The lines in the CUDA of the statement that a mutant changes."""
        return self._line(mutant.kernel, mutant.statement)

    def _fate(self, mutant: Mutant) -> Fate:
        begun = time.perf_counter()
        runs = 0
        for host in self._all_hosts():
            twin = mutant if not host.name else host.twin(mutant)
            if twin is None:
                continue
            broken = host.with_defect(twin)
            for mode in self._modes:
                runs += 1
                cause = host.objection(broken, mode)
                if cause:
                    where = f"copies {mode[0]}, warps {mode[1]}"
                    where += f", {host.name}" if host.name else ""
                    return Fate(mutant, cause, where, "", runs, time.perf_counter() - begun)
        whole = self._hosts[0].lowered
        reason = equivalent(whole, mutant)
        if not reason and is_planned(whole):
            reason = needless(whole, mutant)
        return Fate(mutant, "", "", reason, runs, time.perf_counter() - begun)

    def _all_hosts(self) -> Iterator[_Host]:
        """Yield the kernel, then its relatives, each made when it is first needed."""
        for number in range(1 + len(self._makers)):
            if number == len(self._hosts):
                self._hosts.append(self._makers[number - 1][1]())
            yield self._hosts[number]


@dataclass(frozen=True)
class _Broken:
    """A kernel with a defect: a module, or a variant in the programs of the kernel's own."""

    mod: Any
    programs: Programs
    variant: int = 0


@dataclass
class _Host:
    """A kernel and arguments that mutants are run on; '' names the kernel itself."""

    name: str
    subject: Subject
    arrays: Mapping[str, Any]
    modes: Sequence[tuple[str, str]]
    seed: int
    schema: Schema = field(default_factory=Schema)
    chosen: Sample = field(init=False)
    outputs: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.chosen = _chosen(self.subject, self.arrays, self.seed)
        self.outputs = {}
        whole = _Broken(self.lowered, self.schema.programs)
        # A relative needs no verdict, only its outputs.
        for mode in self.modes[:1] if self.name else self.modes:
            outcome = self._emulate(whole, mode)
            self.outputs = self.outputs or outcome.outputs
            cause = self._cause(outcome)
            if cause:
                raise WorkloadError("mutation.wrong_kernel", cause=cause)

    @property
    def lowered(self) -> Any:
        """The module that mutants are made of."""
        return self.subject.lowered

    def twin(self, mutant: Mutant) -> Mutant | None:
        """The mutant of this kernel that does what ``mutant`` does to another."""
        alike = [m for m in self._mutants if m.twin.is_like(mutant.twin)]
        return alike[0] if alike else None

    @cached_property
    def _mutants(self) -> tuple[Mutant, ...]:
        return mutants(self.lowered)

    def with_defect(self, mutant: Mutant) -> _Broken:
        """This kernel with a defect."""
        number = self.schema.numbers.get(mutant, 0)
        if number:
            return _Broken(self.lowered, self.schema.programs, number)
        return _Broken(mutated(self.lowered, mutant), {})

    def objection(self, broken: _Broken, mode: tuple[str, str]) -> Why:
        """What shows that ``broken`` is not this kernel, '' where nothing does."""
        return self._cause(self._emulate(broken, mode))

    def _emulate(self, broken: _Broken, mode: tuple[str, str]) -> Emulation:
        timing, order = mode
        return emulate(
            broken.mod,
            self.arrays,
            timing=timing,
            order=order,
            seed=self.seed,
            blocks=self.chosen.blocks,
            in_step=self._in_step(mode),
            programs=broken.programs,
            variant=broken.variant,
            only_first=True,
        )

    def _in_step(self, mode: tuple[str, str]) -> Mapping[int, Iterable[Block]]:
        """The CTAs that do not interleave their warps: the others do in some mode."""
        turns = [each for each in self.modes if each[1] != LOCKSTEP]
        if mode not in turns:
            return {}
        return in_turn(self.chosen, turns.index(mode), len(turns), self.subject.cluster)

    def _cause(self, outcome: Emulation) -> Why:
        if outcome.hazards:
            kind, title = outcome.hazards[0].kind, outcome.hazards[0].title
            return Reason("mutation.hazard", hazard=kind, where=title.removeprefix(kind))
        for name, want in self.outputs.items():
            wrong = int(np.count_nonzero(~equal(outcome.outputs[name], want)))
            if wrong:
                return Reason("mutation.differs", wrong=wrong, size=want.size, output=name)
        return ""


def _chosen(subject: Subject, arrays: Mapping[str, Any], seed: int) -> Sample:
    """The CTAs that mutants are run on: of several kernels those that ``verify`` runs.

    Of one the first and the last, with their clusters: a full tile and perhaps a ragged one.
    """
    kernels, host = device_functions(subject.lowered)
    launches = run_host(host, kernels, bind_arguments(host, arrays)[0])
    if len(launches) > 1:
        names = subject.kernels
        owned = owned_by(subject, arrays, None, len(names))
        return sample(None, owned, seed, subject.cluster, names)
    for launch in launches:
        x, y, z = (launch.extent(f"blockIdx.{axis}") for axis in "xyz")
        if x * y * z > 2:
            ends = ((0, 0, 0), (x - 1, y - 1, z - 1))
            return Sample({0: ends}, Reason("mutation.ends", total=x * y * z))
    return Sample(None, ALL_CTAS)
