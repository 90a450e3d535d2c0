"""What to build for a workload: the fastest that was measured, or else the model's choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from .. import knobs
from ..diagnostics import Reason, Why, all_of
from ..errors import PipelinerError
from ..kernel.compiled import Kernel, plan_of
from ..plan import PLAN_ATTR, KernelPlan
from ..plan.request import Request
from ..values.failure import why as why_failed
from . import OURS, Record, Records
from .candidate import (
    NOTHING_ASKED,
    Candidate,
    default_candidate,
    machine_key,
    versions_key,
    workload_key,
)
from .functions import AnyWorkload

_PROOFS: Final = ("recorded.proved", "recorded.not_proved")
"""Codes of what a plan on record says of a proof."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate, and what its plan is to say of where it comes from (nothing: empty)."""

    candidate: Candidate
    why: Why = ""


def recorded(spec: AnyWorkload, target: Any, request: Request, db: str | Path | None) -> Choice:
    """The candidate to build for ``spec``.

    ``db``: the file of records; None: what PIPELINER_DB names, if anything. What is requested is
    done whatever the records say. RecordsError: ``db`` is missing, or no file of records.
    """
    named = db or knobs.records()
    if named is None:
        return _by_model(spec, target, request)
    path = Path(named)
    if request != NOTHING_ASKED:
        why = Reason("recorded.not_used", file=path.name)
        return _by_model(spec, target, request, why)
    if db is None and not path.exists():
        why = Reason("recorded.no_file", file=path.name)
        return _by_model(spec, target, request, why)
    key = (workload_key(spec), machine_key(target), versions_key())
    with Records(path, create=False) as records:
        best = records.best(*key)
        found = records.find(*key, plans=False)
        tried = len({one.candidate for one in found if one.contender == OURS})
        elsewhere = records.best(key[0], key[1]) if best is None else None
    if best is not None:
        why = Reason("recorded.tuned", us=best.us, tried=tried, file=path.name)
        proof = proof_in(best)
        if proof is not None:
            why = Reason("recorded.with_proof", why=why, proof=proof)
        return Choice(Candidate.from_json(best.candidate), why)
    asked = {"file": path.name, "versions": key[2]}
    why = Reason("recorded.no_record", machine=key[1], **asked)
    if elsewhere is not None:
        why = Reason("recorded.other_versions", found=elsewhere.versions, **asked)
    return _by_model(spec, target, request, why)


def _by_model(spec: AnyWorkload, target: Any, request: Request, why: Why = "") -> Choice:
    """What the model chooses; ``why``: what the plan is to say beside that."""
    candidate = default_candidate(spec, target, request)
    return Choice(candidate, all_of((why, candidate.why)))


def with_proof(record: Record, kernel: Kernel) -> Record:
    """The record of a kernel with its plan, which says whether the kernel was proved."""
    try:
        proof = kernel.proof
        said: tuple[Why, ...] = (*proof.statement, *proof.disagreements)
        reason = Reason("recorded.proved" if proof.ok else "recorded.not_proved", said=said)
    except PipelinerError as err:  # the emulator does not know an operation
        reason = Reason("recorded.not_proved", said=(why_failed(err),))
    plan = replace(kernel.plan, reasons=(reason, *kernel.plan.reasons))
    return replace(record, plan=plan.to_json())


def proof_in(record: Record) -> Reason | None:
    """What the plan of a record says of whether its kernel was proved; None: nobody tried."""
    try:
        plan = KernelPlan.from_json(record.plan)
    except PipelinerError:  # there is none, as of what was imported
        return None
    proofs = (why for why in plan.reasons if isinstance(why, Reason) and why.code in _PROOFS)
    return next(proofs, None)


def with_reason(function: Any, why: Why) -> Any:
    """A pipelined function whose plan says ``why``, before everything else."""
    if not why:
        return function
    plan = plan_of(function)
    return function.with_attr(PLAN_ATTR, replace(plan, reasons=(why, *plan.reasons)).to_json())
