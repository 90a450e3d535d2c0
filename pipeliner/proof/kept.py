"""Proofs on disk, by the lowered IR that they are of: a kernel that was proved once is known to be.

    proofs/1f..e0.json       a proof as JSON

The name is a hash of the IR, the values of symbolic extents, the time that was given, and the
sources of what proves: a prover that was edited knows nothing. What was not decided for want of
time is not kept. Where the folder cannot be read or written, each proof is made anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from .. import knobs, versions
from ..diagnostics import Reason
from ..emulator import Hazard, Life, Site
from ..values.op import Op
from ..values.origin import Origin, Place
from .proof import ExtentValues, KernelProof, LoopCounts, Proof
from .prove import SECONDS, key_of, prove
from .running.drawn import Moment
from .running.refuted import Refuted, Trip

_FOLDER: Final = "proofs"
_MODE: Final = 0o700
_MOST: Final = 4096
"""Proofs in the folder, of which the oldest go first; those of today are some kilobytes each."""

_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        Proof,
        KernelProof,
        LoopCounts,
        ExtentValues,
        Refuted,
        Trip,
        Moment,
        Hazard,
        Site,
        Life,
        Origin,
        Place,
    )
}
"""What a proof is made of, by the name in its JSON."""

_SOURCES: Final = ("proof", "emulator", "diagnostics", "values", "passes/ir", "plan")
"""The folders of this package that decide what is proved."""


def proof_of(
    mod: Any, *, extents: Mapping[str, int] | None = None, seconds: float = SECONDS
) -> Proof:
    """Return the proof of a lowered module: the one on disk, or what ``prove`` finds."""
    place = _place(mod, extents, seconds)
    kept = _read(place)
    if kept is not None:
        return kept
    found = prove(mod, extents=extents, seconds=seconds)
    if not any(_lacks_time(kernel) for kernel in found.kernels):
        with suppress(OSError):
            _write(place, json.dumps(as_json(found)))
    return found


def known(mod: Any) -> Proof | None:
    """Return the proof of a lowered module that is on disk, if there is one."""
    return _read(_place(mod, None, SECONDS))


def _place(mod: Any, extents: Mapping[str, int] | None, seconds: float) -> Path:
    """The file in which a proof is kept."""
    return knobs.cache_folder() / _FOLDER / f"{_name(key_of(mod, extents, seconds))}.json"


def _lacks_time(kernel: KernelProof) -> bool:
    whys = (kernel.why, kernel.narrow)
    return any(isinstance(why, Reason) and why.has("proof.seconds") for why in whys)


def _name(key: tuple[Any, ...]) -> str:
    text = repr((key, _sources(), versions.installed("tvm"), versions.installed("tvm_ffi")))
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


@functools.cache
def _sources() -> str:
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b()
    for folder in _SOURCES:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()


def _read(place: Path) -> Proof | None:
    """The proof in a file; None: there is none that can be read."""
    try:
        found = from_json(json.loads(place.read_text()))
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return found if isinstance(found, Proof) else None


def _write(place: Path, text: str) -> None:
    """Write a file whole, so that no other process sees a part of it."""
    folder = place.parent
    folder.mkdir(_MODE, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(place)
    kept = [path for path in folder.iterdir() if path.is_file()]  # parts of those who were stopped
    if len(kept) > _MOST:
        for old in sorted(kept, key=lambda path: path.stat().st_mtime)[: len(kept) - _MOST]:
            old.unlink(missing_ok=True)


def as_json(value: Any) -> Any:
    """Return a proof, or what it is made of, as JSON has it."""
    if isinstance(value, Reason):
        return {"reason": value.as_dict()}
    if isinstance(value, Op):
        return {"op": str(value)}
    if isinstance(value, tuple):
        return [as_json(one) for one in value]
    if is_dataclass(value):
        parts = {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
        return {"is": type(value).__name__, **parts}
    return value


def from_json(data: Any) -> Any:
    """Return what ``as_json`` wrote; LookupError, TypeError, ValueError: it is none of that."""
    if isinstance(data, list):
        return tuple(from_json(one) for one in data)
    if not isinstance(data, dict):
        return data
    if "is" not in data:
        return Reason.from_dict(data["reason"]) if "reason" in data else Op.parse(data["op"])
    parts = {name: from_json(one) for name, one in data.items() if name != "is"}
    return _KINDS[data["is"]](**parts)
