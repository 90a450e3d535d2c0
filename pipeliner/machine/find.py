"""Which machine a target stands for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from ..errors import TargetError
from .ampere import A100, L40S, RTX_3090, RTX_4090
from .blackwell import B200, RTX_5090
from .earlier import GTX_1080_TI, T4, V100
from .file import SUFFIX, read_machine
from .hopper import H100, H200
from .values import Machine, capability_of, key_of

MACHINES: Final = (
    *(GTX_1080_TI, V100, T4, A100, RTX_3090, RTX_4090, L40S),
    *(H100, H200, B200, RTX_5090),
)
"""By architecture; of those of one architecture, the first stands for it."""

NAMES: Final = {machine.key: machine for machine in MACHINES}


def machine_for(target: Any) -> Machine:
    """The machine that code for ``target`` is planned for.

    ``target``: a TVM target, its text (``nvidia/nvidia-h100``, ``cuda -arch=sm_80``), the name of a
    GPU (``h200``), an architecture such as ``sm_90a`` or a machine file. A TVM target's attribute
    ``model`` tells GPUs of one architecture apart, or names a machine file. TargetError names the
    described ones: a plan for a GPU with guessed constants would explain itself with wrong numbers.
    """
    if isinstance(target, Machine):
        return target
    if isinstance(target, str) and target.endswith(SUFFIX):
        return read_machine(Path(target)).machine
    if isinstance(target, str) and key_of(target) in NAMES:
        return NAMES[key_of(target)]
    arch, model = _arch_and_model(target)
    if model.endswith(SUFFIX):
        return _of_file(Path(model), arch)
    alike = [machine for machine in MACHINES if machine.capability == capability_of(arch)]
    if not alike:
        known = tuple(dict.fromkeys(machine.arch for machine in MACHINES))
        raise TargetError("machine.unknown", arch=arch, known=known)
    return next((machine for machine in alike if machine.key == model), alike[0])


def _of_file(path: Path, arch: str) -> Machine:
    """The machine in a file, which must be one that runs code for ``arch``."""
    found = read_machine(path).machine
    if found.capability != capability_of(arch):
        raise TargetError("machine.other", arch=arch, path=str(path), found=found.arch)
    return found


def model_of(arch: str, name: str) -> str | None:
    """The ``model`` of a target for the GPU called ``name``; None: the usual one of ``arch``.

    ``name``: a machine's key, or a driver's words such as ``NVIDIA GeForce RTX 4090``.
    """
    words = key_of(name)
    alike = [machine for machine in MACHINES if machine.capability == capability_of(arch)]
    return next((machine.key for machine in alike[1:] if machine.key in words), None)


def _arch_and_model(target: Any) -> tuple[str, str]:
    if isinstance(target, str):
        found = re.search(r"\bsm_\d+[af]?\b", target)
        if found:
            return found.group(), ""
        from tvm.target import Target

        target = Target(target)
    arch = getattr(target, "arch", None)
    if not arch:
        raise TargetError("target.no_arch", target=str(target))
    return str(arch), str(target.attrs.get("model", ""))
