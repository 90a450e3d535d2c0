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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from ..diagnostics import Reason, Why
from ..emulator import Emulation, emulate
from ..emulator.base.report import CudaLine
from ..emulator.emulate import Programs
from ..emulator.engine.scheduler import ORDERS
from ..emulator.launch.arguments import bind_arguments
from ..emulator.launch.host import run_host
from ..emulator.units.cp_async import TIMINGS
from ..errors import WorkloadError
from ..verification.accuracy import equal
from ..verification.subjects import GivenInputs, arguments, subject_of
from ..verification.verdict import paired, verify
from .equivalence import equivalent
from .mutants import Mutant, device_functions, is_planned, mutants, mutated
from .needless import needless

Relatives: TypeAlias = "Mapping[str, Callable[[], Any]]"
"""Kernels of the same function for other extents, by name; made when needed."""

DEFAULT_MODES: Final = tuple(paired(TIMINGS, ORDERS))
"""Timings of copies and orders of warps, the quickest first."""

_CLUSTER: Final = "clusterCtaIdx"
"""Launch dimensions of a cluster begin so."""


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
    """The fates of all mutants of one kernel. ``mutants``: how many there are to run."""

    title: str
    mutants: int
    fates: tuple[Fate, ...]

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
    return MutationReport(campaign.title, len(campaign.mutants), tuple(campaign.run()))


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
        self._hosts = [_Host("", subject.lowered, list(given.values()), self._modes, seed)]
        if reference is not None:
            self._hold_against(reference, func, target)
        self._makers: list[tuple[str, Callable[[], _Host]]] = []
        for number, arrays in enumerate(others, 2):
            self._add(f"inputs {number}", lambda: func, first, arrays)
        for values in further:
            self._add(", ".join(f"{k} = {v}" for k, v in values.items()), lambda: func, values)
        for name, make in (relatives or {}).items():
            self._add(name, make, {})
        self._target = target
        self.mutants = mutants(subject.lowered)

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
            blocks=host.blocks,
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
            return _Host(name, subject.lowered, list(arrays.values()), self._modes, self._seed)

        self._makers.append((name, host))

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
            broken = mutated(host.lowered, twin)
            programs: Programs = {}
            for mode in self._modes:
                runs += 1
                cause = host.objection(broken, mode, programs)
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


@dataclass
class _Host:
    """A kernel and arguments that mutants are run on; '' names the kernel itself."""

    name: str
    lowered: Any
    arrays: Sequence[Any]
    modes: Sequence[tuple[str, str]]
    seed: int
    blocks: list[tuple[int, int, int]] | None = field(init=False)
    outputs: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = _corners(self.lowered, self.arrays)
        self.outputs = {}
        programs: Programs = {}
        # A relative needs no verdict, only its outputs.
        for mode in self.modes[:1] if self.name else self.modes:
            outcome = self._emulate(self.lowered, mode, programs)
            self.outputs = self.outputs or outcome.outputs
            cause = self._cause(outcome)
            if cause:
                raise WorkloadError("mutation.wrong_kernel", cause=cause)

    def twin(self, mutant: Mutant) -> Mutant | None:
        """The mutant of this kernel that does what ``mutant`` does to another."""
        alike = [m for m in mutants(self.lowered) if m.twin.is_like(mutant.twin)]
        return alike[0] if alike else None

    def objection(self, broken: Any, mode: tuple[str, str], programs: Programs) -> Why:
        """What shows that ``broken`` is not this kernel, '' where nothing does."""
        return self._cause(self._emulate(broken, mode, programs))

    def _emulate(self, mod: Any, mode: tuple[str, str], programs: Programs) -> Emulation:
        timing, order = mode
        return emulate(
            mod,
            self.arrays,
            timing=timing,
            order=order,
            seed=self.seed,
            blocks=self.blocks,
            programs=programs,
            only_first=True,
        )

    def _cause(self, outcome: Emulation) -> Why:
        if outcome.hazards:
            kind, title = outcome.hazards[0].kind, outcome.hazards[0].title
            return Reason("mutation.hazard", hazard=kind, where=title.removeprefix(kind))
        for name, want in self.outputs.items():
            wrong = int(np.count_nonzero(~equal(outcome.outputs[name], want)))
            if wrong:
                return Reason("mutation.differs", wrong=wrong, size=want.size, output=name)
        return ""


def _corners(mod: Any, arrays: Sequence[Any]) -> list[tuple[int, int, int]] | None:
    """Return blockIdx of the first and the last CTA: a full tile and perhaps a ragged one.

    None, which is all, for clusters, whose CTAs run together, and for several kernels: one reads
    what the CTAs of another wrote.
    """
    kernels, host = device_functions(mod)
    found: list[tuple[int, int, int]] = [(0, 0, 0)]
    launches = run_host(host, kernels, bind_arguments(host, arrays)[0])
    if len(launches) > 1:
        return None
    for launch in launches:
        if any(tag.startswith(_CLUSTER) for tag in launch.dims):
            return None
        x, y, z = (launch.extent(f"blockIdx.{axis}") - 1 for axis in "xyz")
        found.append((x, y, z))
    return list(dict.fromkeys(found))
