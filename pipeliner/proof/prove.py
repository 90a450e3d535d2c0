"""``prove``: whether a kernel is right for every trip count and every interleaving."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import tvm

from ..diagnostics import Reason
from ..plan import PLAN_ATTR, KernelPlan
from .agreement import disagreements
from .kernels import SECONDS, Found, proofs_of
from .proof import Proof
from .running.subjects import host_and_kernels, symbolic
from .values import proofs_of_all

_REMEMBERED: Final = 64
"""Proofs that are kept, by the lowered IR that they are of."""

_proofs: OrderedDict[tuple[Any, ...], Proof] = OrderedDict()


def prove(mod: Any, *, extents: Mapping[str, int] | None = None, seconds: float = SECONDS) -> Proof:
    """Return what can be proved of a lowered module, walking each kernel for so many ``seconds``.

    ``extents``: values of the symbolic extents in the shapes of its arguments, by name. None: it is
    proved for all of them, together with its other scalar arguments, as far as it can be.
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
    names = symbolic(host)
    if names - set(extents):
        found = proofs_of_all(host, kernels, names, extents, seconds)
    else:
        found = proofs_of(host, kernels, extents, seconds)
    proofs = tuple(found.kernels.values())
    assumed = [Reason("proof.of_model"), Reason("proof.of_global"), *found.assumed]
    otherwise: tuple[Reason, ...] = ()
    if PLAN_ATTR in host.attrs and found.ran and not any(proof.data for proof in proofs):
        plan = KernelPlan.from_json(str(host.attrs[PLAN_ATTR]))
        otherwise = disagreements(plan, found.ran, is_partial=bool(names))
    return Proof(proofs, tuple(dict.fromkeys(assumed)), otherwise)


__all__ = ["SECONDS", "Found", "key_of", "prove"]
