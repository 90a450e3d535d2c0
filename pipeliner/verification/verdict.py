"""Whether a kernel is right: run on the CPU under adversarial timing, judged and compared.

The emulator executes the lowered kernel and objects to every access that nothing orders; what it
computes is compared, each element with a tolerance of its own, with a reference. Each run has its
own timing of asynchronous copies and its own order of warps. Of a large grid whose CTAs provably do
not meet, some are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import Reason, Why
from ..emulator import Emulation, Hazard, emulate
from ..emulator.engine.scheduler import ORDERS
from ..emulator.units.cp_async import TIMINGS
from ..errors import WorkloadError
from ..kernel.compiled import Kernel
from ..proof.kept import proof_of
from ..proof.proof import Proof
from ..schedules.workloads import each_of, results_of
from ..values.elements import element
from .accessed import Block
from .accuracy import as_stored, poisoned, workload_bounds
from .compared import Compared, compare
from .magnitudes import magnitude_rule
from .ownership import Owned, ownership
from .runs import AdversarialRuns, OnProgress, Outputs, Run
from .sampling import ALL, ALL_CTAS, Sample, sample
from .subjects import GivenInputs, Subject, arguments, has_atomics, has_same_sums, subject_of
from .tolerance import AbsoluteBounds, Asked, Equal, Tolerance, asked

if TYPE_CHECKING:
    from ..schedules.workloads import Spec


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of all runs of one kernel.

    ``against``: what the outputs were compared with. ``outputs``: of the first run, by parameter.
    ``tolerance``: what each element may differ by. ``ran``: which CTAs were run. ``between``: what
    is known of races between CTAs that were not run together, empty where all were. ``ctas``: by
    the name of a kernel of which not all CTAs were run, blockIdx of those that were. ``proof``:
    what holds for every trip count and every interleaving, where that was asked for.
    """

    title: str
    against: Reason
    runs: tuple[Run, ...]
    outputs: Outputs = field(default_factory=dict, repr=False, compare=False)
    tolerance: Why = ""
    ran: Reason = ALL_CTAS
    between: Why = ""
    ctas: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    proof: Proof | None = None

    @property
    def ok(self) -> bool:
        """Whether every run is right: every element that was compared, and no hazard.

        This speaks of the CTAs that ran; whether it holds for others too says ``between``.
        """
        wrong = self.proof is not None and bool(self.proof.wrong)
        return all(run.ok for run in self.runs) and not wrong

    @property
    def speaks_of_all(self) -> bool:
        """Whether what holds for the CTAs that ran holds for all."""
        return not isinstance(self.between, Reason) or not self.between.has("ownership.only_run")

    @property
    def notes(self) -> tuple[Why, ...]:
        """What else is to be known of the outputs, such as where they are NaN; each once."""
        return tuple(dict.fromkeys(note for run in self.runs for note in run.notes))

    @property
    def worst(self) -> float:
        """The largest error in units of what is allowed, so right means at most 1.

        NaN where an element is NaN, as where it was not written.
        """
        return float(np.max([run.worst for run in self.runs]))

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """What the emulator objects to: each pair of statements once, of the first run with it."""
        found: dict[tuple[Any, ...], Hazard] = {}
        for run in self.runs:
            for hazard in run.hazards:
                other = hazard.other.statement if hazard.other else ""
                key = (hazard.kind, hazard.site.statement, other, hazard.buffer)
                found.setdefault(key, hazard)
        return tuple(found.values())


def verify(
    func: Any,
    inputs: GivenInputs | None = None,
    *,
    target: Any = None,
    reference: Callable[..., Any] | None = None,
    timings: Sequence[str] = TIMINGS,
    orders: Sequence[str] = ORDERS,
    seed: int = 0,
    blocks: str | Iterable[Block] | Mapping[int, Iterable[Block]] | None = None,
    integers: bool = False,
    extents: Mapping[str, int] | None = None,
    tolerance: Asked = None,
    prove: bool = False,
    progress: OnProgress | None = None,
) -> Verdict:
    """Run ``func`` on the CPU under adversarial timing; whether it is right, and every hazard.

    Parameters
    ----------
    func
        A kernel, a PrimFunc, a Schedule, or an IRModule, also a lowered one. A function that is not
        pipelined yet is pipelined and compiled as by ``pipeliner.build``.
    inputs
        Its arguments as numpy arrays, outputs included, in order or by name; they stay as they are.
        None: random ones, standard normal, from ``seed``. A second argument of one name is
        ``NAME_1``.
    target
        As for ``pipeliner.build``.
    reference
        Given the arrays, returns what the last one must become, or a mapping of what several must
        become by name. None: the same function, not pipelined but with the same instruction and
        order of sums, run on the same arrays; what was pipelined before it came here has none, and
        only its runs are compared with each other.
    timings
        When asynchronous copies land: ``"late"``, ``"early"``, ``"random"``.
    orders
        How warps are interleaved: ``"lockstep"``, ``"round-robin"``, ``"reversed"``, ``"random"``.
        Every timing and every order is in a run, as many runs as there are of whichever are more:
        hazards are judged by happens-before, which no order hides.
    seed
        Of the arguments, random timing, random order and CTAs: the same seed gives the same
        verdict.
    blocks
        The CTAs to run: ``"all"``, or blockIdx (x, y, z) of some. None (``"auto"``): of a large
        grid in which no CTA reads or writes what another one writes, the first, the last, those at
        ragged edges and some at random; else all. What they do not own must stay as it was. Of
        several kernels each has CTAs of its own grid, given by its number, from 0, or of the last
        kernel; those of earlier ones run too that write what these read or write.
    integers
        Random arguments are small integers, whose sums are exact: every element must be equal.
    extents
        Values of the symbolic extents in the shapes of random arguments, by name.
    tolerance
        What each element may differ by, relative, or (relative, absolute). None: nothing where the
        same sums are made in the same order, as in the function itself, not pipelined; otherwise
        what rounding may make of each element, by the magnitudes of what is added up for it.
        The verdict says which was taken.
    prove
        Whether to look for a proof for every trip count and every interleaving
        (``pipeliner/proof``); a refutation makes the verdict wrong. Of symbolic extents it is for
        every value, where it can be, else for ``extents``.
    progress
        Called with what runs, how many CTAs of it have run, and how many will.

    Raises
    ------
    WorkloadError
        A shape is symbolic and ``extents`` has no value for it; or there is no such CTA.
    EmulatorError
        An operation that the emulator does not know, or arguments that do not fit.
    """
    modes = paired(timings, orders)
    subject = subject_of(func, target)
    arrays = arguments(subject.function, inputs, seed, integers=integers, extents=extents)
    names = subject.kernels
    owned = owned_by(subject, arrays, blocks, len(names))
    chosen = sample(blocks, owned, seed, subject.cluster, names)
    runner = AdversarialRuns(subject, arrays, chosen, seed, progress)
    against, wanted, rule = _reference(runner, reference, asked(tolerance), integers=integers)

    def judge(outcome: Emulation) -> Compared:
        nonlocal wanted
        wanted = wanted or outcome.outputs
        return compare(
            rule,
            arrays,
            wanted,
            outcome.outputs,
            owned,
            None if chosen.blocks is None else runner.ran(outcome),
            of_all=reference is not None,
        )

    runs, outputs = runner.run(modes, judge)
    return Verdict(
        subject.title,
        against,
        runs,
        outputs,
        rule.said,
        chosen.said,
        chosen.between,
        {names[at]: blocks for at, blocks in (chosen.blocks or {}).items()},
        _proof(subject.lowered, extents) if prove else None,
    )


def _proof(lowered: Any, extents: Mapping[str, int] | None) -> Proof:
    """What is proved for every value of symbolic extents, or else for those that are given."""
    for_all = proof_of(lowered)
    if for_all.ok or for_all.refuted is not None or not extents:
        return for_all
    return proof_of(lowered, extents=extents)


def verify_workload(
    kernel: Kernel,
    spec: Spec,
    seed: int = 0,
    timings: Sequence[str] = TIMINGS,
    orders: Sequence[str] = ORDERS,
    tolerance: Asked = None,
    progress: OnProgress | None = None,
) -> Verdict:
    """``kernel`` on random operands, compared with what ``spec`` must compute, in float64."""
    inputs = spec.inputs(seed)
    results = results_of(spec)
    outs = [poisoned(shape, dtype) for shape, dtype in results]
    subject = subject_of(kernel)
    arrays = arguments(subject.function, [*inputs, *outs])
    names = list(arrays)[-len(outs) :]
    wanted = dict(zip(names, each_of(spec.reference(*inputs))))
    rule = asked(tolerance)
    if rule is None and element(spec.storage).integer:
        rule = Equal()
        wanted = {name: as_stored(wanted[name], out) for name, out in zip(names, outs)}
    elif rule is None:
        parts = partial_sums_of(subject)
        bounds = {
            name: workload_bounds(spec, wanted[name], magnitude, parts, out=dtype)
            for name, magnitude, (_, dtype) in zip(names, each_of(spec.magnitude(*inputs)), results)
        }
        rule = AbsoluteBounds(Reason("bound.workload"), bounds)
    taken = rule

    def judge(outcome: Emulation) -> Compared:
        return compare(taken, arrays, wanted, outcome.outputs, Owned())

    runner = AdversarialRuns(subject, arrays, Sample(None, ALL_CTAS), seed, progress)
    runs, outputs = runner.run(paired(timings, orders), judge)
    return Verdict(spec.name, Reason("verification.exact"), runs, outputs, rule.said)


def paired(timings: Sequence[str], orders: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs in which every timing and every order is, the first with the first.

    WorkloadError: there are none of one of them.
    """
    if not timings or not orders:
        raise WorkloadError("verification.modes")
    count = max(len(timings), len(orders))
    return [(timings[at % len(timings)], orders[at % len(orders)]) for at in range(count)]


def partial_sums_of(subject: Subject) -> int:
    """How many partial sums, each rounded, the plan adds to a result; 0: none."""
    return (
        0 if subject.plan is None else max((s.partial_sums for s in subject.plan.stores), default=0)
    )


def owned_by(subject: Subject, arrays: Mapping[str, Any], blocks: Any, count: int) -> Owned:
    """Which CTA of each of ``count`` kernels writes what, where that matters."""
    if blocks == ALL:
        return Owned.of_unknown(Reason("ownership.all_run"), count)
    if subject.source is None:
        return Owned.of_unknown(Reason("ownership.no_source"), count)
    found = ownership(subject.source, list(arrays), list(arrays.values()))
    if len(found.kernels) != count:
        why = Reason("ownership.lowered", lowered=count, count=len(found.kernels))
        return Owned.of_unknown(why, count)
    return found


def _reference(
    runner: AdversarialRuns,
    reference: Callable[..., Any] | None,
    rule: Tolerance | None,
    *,
    integers: bool,
) -> tuple[Reason, Outputs, Tolerance]:
    """Return what outputs are compared with, also as arrays (none: the first run), and how."""
    subject, arrays = runner.subject, runner.arrays
    if integers and rule is None:
        rule = Equal()
    if reference is not None:
        wanted = reference(*arrays.values())
        if not isinstance(wanted, Mapping):
            wanted = {list(arrays)[-1]: wanted}
        found = {name: _shaped(name, want, arrays) for name, want in wanted.items()}
        return Reason("verification.reference"), found, rule or _bounded(runner, found)
    if subject.plain is None:
        exact = not partial_sums_of(subject) and not has_atomics(subject.lowered)
        if rule is None and not exact:
            rule = _bounded(runner, runner.once(subject.emulate, "the first run").outputs)
        return Reason("verification.first_run"), {}, rule or Equal()
    plain = subject.plain()
    outcome = runner.once(plain.emulate, "the same function, not pipelined")
    same = has_same_sums(subject.plan, plain.plan) and not has_atomics(subject.lowered)
    if rule is None:
        rule = Equal() if same else _bounded(runner, outcome.outputs)
    return Reason("verification.plain"), outcome.outputs, rule


def _shaped(name: str, want: Any, arrays: Mapping[str, Any]) -> Any:
    """Return ``want`` as an array; WorkloadError: no such argument, or another shape."""
    found = np.asarray(want)
    if name not in arrays:
        raise WorkloadError("verification.reference_name", expected=tuple(arrays), name=str(name))
    if found.shape != np.shape(arrays[name]):
        raise WorkloadError(
            "verification.reference_shape", expected=np.shape(arrays[name]), shape=found.shape
        )
    return found


def _bounded(runner: AdversarialRuns, wanted: Outputs) -> Tolerance:
    """Return what rounding may make of each element, by the magnitudes of its summands."""
    subject = runner.subject

    def run(mod: Any, arrays: Sequence[Any]) -> Outputs:
        def emulated(*values: Any, **options: Any) -> Emulation:
            return emulate(mod, values, **options)

        return runner.once(emulated, "the magnitudes of what is added up", arrays).outputs

    source = subject.function if subject.source is None else subject.source
    instructions = [] if subject.plan is None else [m.instruction for m in subject.plan.matmuls]
    return magnitude_rule(subject.lowered, source, runner.arrays, wanted, run, instructions)
