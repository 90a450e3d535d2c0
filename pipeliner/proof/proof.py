"""What was proved of a kernel: for which trip counts, under which assumptions, or why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..diagnostics import Reason, Why
from .running.refuted import Refuted


@dataclass(frozen=True, slots=True)
class LoopCounts:
    """The trip counts of one loop that a proof is about: ``least`` and more, or ``only`` one.

    ``by_end``: its text, made for one trip count, was read for others: what it compares with
    constants near the end is as far from the end of these. ``fewest``: that some
    CTA makes, at least. ``most``: with ``only``, that all CTAs which are alike make just so many.
    """

    name: str
    least: int
    only: str = ""
    by_end: bool = False
    fewest: int = 0
    most: int | None = None

    @property
    def said(self) -> Reason:
        """In words."""
        if self.by_end and not self.only:
            return Reason("proof.all_ends", loop=self.name, least=self.least)
        if self.only:
            return Reason("proof.only", loop=self.name, count=self.only)
        return Reason("proof.all", loop=self.name, least=self.least)


@dataclass(frozen=True, slots=True)
class ExtentValues:
    """The values of a symbolic extent that a proof has: ``least`` and more, or ``only`` one."""

    name: str
    least: int = 0
    only: str = ""

    @property
    def said(self) -> Reason:
        """In words."""
        if self.only:
            return Reason("proof.value", name=self.name, value=self.only)
        return Reason("proof.values", name=self.name, least=self.least)


@dataclass(frozen=True, slots=True)
class KernelProof:
    """What was found of one device function.

    ``values``: of symbolic extents, where none were given. ``loops``: those in which threads wait,
    but for those whose trip counts are all that these values give. ``states``: different ones at
    the heads of open loops; ``bound``: decisions after which every run has come back to one of
    them. ``data``: why what is loaded may decide the way of a thread; empty: it does not, so that
    one order of threads decides all. ``why``: why it is not proved, empty where it is. ``narrow``:
    why trip counts are not left open that could be. ``refuted``: an execution that is wrong.
    ``beyond``: one of other trip counts than those that are proved, which the kernel was not made
    for.
    """

    kernel: str
    loops: tuple[LoopCounts, ...] = ()
    states: int = 0
    steps: int = 0
    bound: int = 0
    data: Why = ""
    why: Why = ""
    narrow: Why = ""
    refuted: Refuted | None = None
    beyond: Refuted | None = None
    seconds: float = 0.0
    values: tuple[ExtentValues, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it is proved."""
        return not self.why and self.refuted is None

    @property
    def interleavings(self) -> Reason:
        """Whether one order of threads decides all."""
        if self.data:
            return Reason("proof.order_matters", why=self.data)
        return Reason("proof.every_order")

    @property
    def statement(self) -> Reason:
        """What holds, in one sentence, or what does not."""
        counts = (*(one.said for one in self.values), *(loop.said for loop in self.loops))
        counts = counts or (Reason("proof.no_loops"),)
        if self.refuted is not None:
            hazard = str(self.refuted.hazard)
            return Reason("proof.refuted", kernel=self.kernel, counts=counts, hazard=hazard)
        if self.why:
            return Reason("proof.unproved", kernel=self.kernel, why=self.why)
        every = Reason("proof.proved", kernel=self.kernel, counts=counts)
        if not self.states:
            return every
        return Reason("proof.with_states", said=every, states=self.states, bound=self.bound)


def weakest(proofs: Sequence[KernelProof]) -> tuple[LoopCounts, ...]:
    """The trip counts of loops that are in all proofs of a kernel, of other CTAs or launches."""
    found: dict[tuple[str, int], list[LoopCounts]] = {}
    for proof in proofs:
        seen: Counter[str] = Counter()
        for loop in proof.loops:
            found.setdefault((loop.name, seen[loop.name]), []).append(loop)
            seen[loop.name] += 1  # several loops may have one name
    return tuple(map(_weakest, found.values()))


def _weakest(loops: Sequence[LoopCounts]) -> LoopCounts:
    """What is proved of one loop by several proofs of it.

    Some may be of CTAs that all make few iterations: those that make more are proved by others.
    """
    few = [loop for loop in loops if loop.most is not None]
    many = [loop for loop in loops if loop.most is None]
    if not many:
        return few[0] if len(few) == 1 else replace(few[0], most=None)
    only = next((loop.only for loop in many if loop.only), "")
    least = max(loop.least for loop in many)
    for loop in sorted(few, key=lambda one: one.least, reverse=True):
        if loop.most is not None and loop.most < least - 1:
            only = only or loop.only  # between these are some that nobody makes
        least = min(least, loop.least)
    if few:
        least = max(least, min(loop.fewest for loop in loops))
    by_end = any(loop.by_end for loop in many)
    return replace(many[0], least=least, only=only, by_end=by_end)


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found of every kernel of a module, each under ``assumptions``.

    ``disagreements``: where the code does otherwise than the plan that it carries.
    """

    kernels: tuple[KernelProof, ...]
    assumptions: tuple[Reason, ...] = ()
    disagreements: tuple[Reason, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every kernel is proved, and does what the plan says."""
        return all(kernel.ok for kernel in self.kernels) and not self.disagreements

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def refuted(self) -> Refuted | None:
        """An execution that is wrong, of the first kernel that has one."""
        return next((one.refuted for one in self.kernels if one.refuted is not None), None)

    @property
    def wrong(self) -> tuple[Reason, ...]:
        """What is wrong: kernels that are refuted, and what the plan says otherwise."""
        otherwise = Reason("proof.otherwise", said=self.disagreements)
        return (*self.refutations, otherwise) if self.disagreements else self.refutations

    @property
    def refutations(self) -> tuple[Reason, ...]:
        """What refutes each kernel that is refuted."""
        return tuple(one.statement for one in self.kernels if one.refuted is not None)

    @property
    def statement(self) -> tuple[Reason, ...]:
        """What holds of each kernel, or what does not."""
        return tuple(kernel.statement for kernel in self.kernels)

    @property
    def interleavings(self) -> tuple[Reason, ...]:
        """Of each kernel, whether one order of threads decides all."""
        return tuple(kernel.interleavings for kernel in self.kernels)
