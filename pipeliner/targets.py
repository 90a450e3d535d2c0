"""From what a person calls a GPU to a TVM target."""

from __future__ import annotations

import re
from typing import Any, Final

from .errors import TargetError
from .machine import MACHINES

NAMES: Final = {machine.name.split()[0].lower(): machine.arch for machine in MACHINES}
"""GPUs by name (``a100``), with the architecture that their kernels are compiled for."""


def cuda_target(spec: Any = None) -> Any:
    """The TVM target for ``spec``: ``sm_80``, ``sm_90a``, ``a100``, ``h100``, a TVM target or None.

    None is the GPU of this machine; TargetError says so when there is none.
    """
    from tvm.target import Target

    if spec is None or spec == "cuda":
        return _present()
    if isinstance(spec, Target):
        return _checked(spec)
    if not isinstance(spec, str) or spec.startswith(("cuda ", "nvidia/")):
        return _checked(Target(spec))
    arch = NAMES.get(spec.lower(), spec.lower())
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise TargetError(f"expected target to be one of {_choices()} or sm_NN, not {spec!r}")
    return Target({"kind": "cuda", "arch": arch})


def accelerated(target: Any) -> Any:
    """``target``, sm_90 as sm_90a: every GPU of sm_90 runs it, and only it has wgmma (PTX ISA)."""
    from tvm.target import Target

    if str(target.attrs.get("arch", "")) != "sm_90":
        return target
    return Target({"kind": "cuda", **dict(target.attrs), "arch": "sm_90a"})


def gpu() -> Any | None:
    """The first CUDA device that TVM can use, or None."""
    import tvm

    device = tvm.cuda(0)
    return device if device.exist else None


def gpu_arch() -> str | None:
    """The architecture of this machine's GPU, such as ``sm_90``; None: there is none."""
    device = gpu()
    return None if device is None else "sm_" + str(device.compute_version).replace(".", "")


def _present() -> Any:
    from tvm.target import Target

    arch = gpu_arch()
    if arch is None:
        raise TargetError(
            f"cannot choose a target: no GPU is visible; name one of {_choices()} or sm_NN"
        )
    return Target({"kind": "cuda", "arch": arch})


def _checked(target: Any) -> Any:
    if target.kind.name != "cuda":
        raise TargetError(f"cannot pipeline for target '{target.kind.name}': expected cuda")
    return target


def _choices() -> str:
    return ", ".join(NAMES)
