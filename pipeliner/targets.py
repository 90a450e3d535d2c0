"""From what a person calls a GPU to a TVM target."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .errors import TargetError
from .machine import NAMES, SUFFIX, key_of, model_of, read_machine


def cuda_target(spec: Any = None) -> Any:
    """The TVM target for ``spec``: ``sm_80``, ``a100``, a machine file, a TVM target or None.

    Of GPUs that share an architecture, such as ``h100`` and ``h200``, the target's attribute
    ``model`` says which it is, except for the usual one; of a machine file, it is the path. None is
    the GPU of this machine; TargetError says so when there is none.
    """
    from tvm.target import Target

    if spec is None or spec == "cuda":
        return _present()
    if isinstance(spec, Target):
        return _checked(spec)
    if isinstance(spec, str) and spec.endswith(SUFFIX):
        return _of_file(Path(spec))
    if not isinstance(spec, str) or spec.startswith(("cuda ", "nvidia/")):
        return _checked(_parsed(spec))
    name = key_of(spec)
    arch = NAMES[name].arch if name in NAMES else name
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise TargetError("target.unknown", choices=_choices(), value=repr(spec))
    return _of_model(arch, name)


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


def target_of_gpu(number: int) -> Any:
    """The target for the CUDA device ``number`` of this process; TargetError: there is none."""
    import tvm

    device = tvm.cuda(number)
    if not device.exist:
        raise TargetError("target.no_gpu", choices=_choices())
    arch = "sm_" + str(device.compute_version).replace(".", "")
    return _of_model(arch, str(device.device_name))


def _present() -> Any:
    return target_of_gpu(0)


def _of_model(arch: str, name: str) -> Any:
    """The target of ``arch`` for the GPU called ``name``."""
    from tvm.target import Target

    model = model_of(arch, name)
    return Target({"kind": "cuda", "arch": arch, **({"model": model} if model else {})})


def _of_file(path: Path) -> Any:
    """The target that is planned for by the machine in a file."""
    from tvm.target import Target

    arch = read_machine(path).machine.arch
    return Target({"kind": "cuda", "arch": arch, "model": str(path.resolve())})


def _checked(target: Any) -> Any:
    if target.kind.name != "cuda":
        raise TargetError("target.kind", kind=target.kind.name)
    return target


def _parsed(spec: Any) -> Any:
    """The target that TVM makes of ``spec``; TargetError, in TVM's words, where it makes none."""
    from tvm.target import Target

    try:
        return Target(spec)
    except (ValueError, TypeError, RuntimeError, KeyError) as err:
        why = " ".join(str(err).split())
        raise TargetError("target.made", value=repr(spec), why=why) from err


def _choices() -> tuple[str, ...]:
    return tuple(NAMES)
