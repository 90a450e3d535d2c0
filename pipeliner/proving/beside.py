"""Prove kernels in a copy of this process while another process compiles them.

    with beside(lowered) as found:
        nvcc(...)
    found.proofs        # and found.why, where some are missing

nvcc runs in a process of its own and this one waits for it, so a proof that takes less costs no
time. One that takes longer is stopped as soon as nvcc is done: the kernel is not proved, which
``why`` says. Proofs are kept on disk, so that no kernel is proved twice.

Only functions of which a loop was pipelined are proved so: others are what they were before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tvm
from tvm import ir

from .. import knobs
from ..diagnostics import Reason, Why
from ..emulator.lower import is_device_function
from ..errors import LoweringError
from ..passes.ir.calls import called
from ..passes.ir.nodes import collect
from ..plan import PLAN_ATTR, KernelPlan
from ..processors import processors
from ..proof.kept import known, proof_of
from ..proof.proof import Proof
from ..proof.prove import SECONDS
from ..proof.running.branching import begin
from ..values.failure import why as why_failed

_Found: TypeAlias = Proof | str | Reason | None

_LAUNCH: Final = "tirx.call_ffi_kernel"
_PROCESSORS: Final = 2
"""Processors that a proof beside nvcc needs: one for each."""


@dataclass
class Beside:
    """What came of proofs beside a compilation: those that were made, and why others were not."""

    proofs: tuple[Proof, ...] = ()
    why: Why = ""

    @property
    def said(self) -> tuple[Why, ...]:
        """What was proved of each kernel, and why of others nothing was."""
        statements = tuple(one for proof in self.proofs for one in proof.statement)
        return (*statements, self.why) if self.why else statements


def is_possible() -> bool:
    """Whether kernels are proved beside nvcc: there are processors, and nobody forbids it."""
    return processors() >= _PROCESSORS and knobs.proves()


@contextmanager
def beside(lowered: Any) -> Iterator[Beside]:
    """Prove the functions of a lowered module while the body of ``with`` runs.

    LoweringError, behind the body: a kernel is refuted.
    """
    parts = pipelined_parts(lowered)
    proofs: list[_Found] = [known(part) for part in parts]
    left = [at for at, proof in enumerate(proofs) if proof is None]
    begun = time.perf_counter()
    branch = begin(begun + SECONDS * len(left), own_group=True) if left else None
    if branch is not None and branch.is_own:
        branch.answer_with(lambda: [_proved(parts[at]) for at in left])
    found, answer = Beside(), None
    try:
        yield found
    finally:
        answer = None if branch is None else branch.stopped()
    too_long = Reason("proof.beside_nvcc", seconds=time.perf_counter() - begun)
    for at, one in zip(left, answer or [None] * len(left), strict=True):
        proofs[at] = known(parts[at]) or one or too_long
    found.proofs = tuple(one for one in proofs if isinstance(one, Proof))
    found.why = next((one for one in proofs if isinstance(one, str | Reason)), "")
    wrong = [statement for proof in found.proofs for statement in proof.refutations]
    if wrong:
        raise LoweringError("proof.wrong", said=tuple(wrong))


def _proved(part: Any) -> _Found:
    """The proof of a module, or why there is none, in a copy of the process."""
    try:
        return proof_of(part)
    except Exception as err:  # also a bug of ours stops nobody's compilation, and is told
        return why_failed(err)


def pipelined_parts(lowered: Any) -> list[Any]:
    """For each host function of which a loop was pipelined, a module of it and its kernels."""
    functions = dict(lowered.functions.items())
    on_device = {var for var, func in functions.items() if is_device_function(func)}
    kernels = {str(var.name_hint): var for var in on_device}
    parts = []
    for var, func in functions.items():
        if var not in on_device and _is_pipelined(func):
            own = [kernels[name] for name in _launched(func) if name in kernels]
            parts.append(tvm.IRModule({one: functions[one] for one in (var, *own)}))
    return parts


def _is_pipelined(func: Any) -> bool:
    text = func.attrs.get(PLAN_ATTR) if func.attrs else None
    return text is not None and any(
        loop.pipelined for loop in KernelPlan.from_json(str(text)).loops
    )


def _launched(func: Any) -> list[str]:
    """The names of the kernels that a host function launches, each once."""
    calls = [call for call in collect(func.body, ir.Call) if called(call) == _LAUNCH]
    return list(dict.fromkeys(str(call.args[0].value) for call in calls))
