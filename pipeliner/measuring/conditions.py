"""Under which conditions something was measured: the GPU, its clocks, the versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from .. import versions
from ..errors import TargetError, ToolError
from ..targets import gpu, gpu_arch

_SMI: Final = "nvidia-smi"
_SMI_SECONDS: Final = 20
_SM_CLOCK: Final = "clocks.sm"
_QUERIED: Final = {
    "driver": "driver_version",
    "largest SM clock, MHz": "clocks.max.sm",
    "memory clock, MHz": "clocks.mem",
    "power limit, W": "power.limit",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """``versions`` of what the contenders are made of; ``settings`` of the GPU, as it reports them.

    ``settings`` is empty where nvidia-smi does not answer.
    """

    gpu: str
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def flat(self) -> dict[str, str]:
        """All of it by name."""
        return {"gpu": self.gpu, **self.versions, **self.settings}


def check_gpu() -> None:
    """TargetError without a GPU, ToolError without PyTorch, which is not loaded for that."""
    if gpu() is None:
        raise TargetError("gpu.none")
    if "torch" not in sys.modules and find_spec("torch") is None:
        raise ToolError("gpu.torch_missing")


def require_gpu() -> Any:
    """The torch module; TargetError without a GPU, ToolError without PyTorch."""
    check_gpu()
    try:
        import torch
    except ImportError as err:
        raise ToolError("gpu.torch_missing") from err
    if not torch.cuda.is_available():
        raise TargetError("gpu.torch_blind")
    return torch


def device_name() -> str:
    """The GPU and the libraries of the peers."""
    torch = require_gpu()
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}"


def current_conditions() -> Conditions:
    """The GPU, the versions, and the settings that nvidia-smi knows."""
    torch = require_gpu()
    found = {
        "torch": str(torch.__version__),
        "CUDA of torch": str(torch.version.cuda),
        "cuDNN": _cudnn_version(torch),
        "TVM": versions.installed("tvm"),
        "Triton": _triton_version(),
    }
    known = {name: text for name, text in found.items() if text}
    answers = _ask(list(_QUERIED.values()))
    settings = dict(zip(_QUERIED, answers)) if answers else {}
    return Conditions(str(torch.cuda.get_device_name()), known, settings)


def gpu_conditions() -> dict[str, str]:
    """What a measurement on the GPU of this process says of it."""
    now = current_conditions()
    return {"gpu": now.gpu, "arch": str(gpu_arch()), **now.flat()}


def sm_clock() -> int | None:
    """The clock of the SMs in MHz, now; None where nvidia-smi does not tell."""
    answers = _ask([_SM_CLOCK])
    return int(answers[0]) if answers and answers[0].isdigit() else None


def _ask(fields: Sequence[str]) -> list[str] | None:
    """What nvidia-smi says of torch's GPU, or None."""
    program = shutil.which(_SMI)
    if program is None:
        return None
    query = [f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            [program, *query, *_which_gpu()],
            check=True,
            capture_output=True,
            text=True,
            timeout=_SMI_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    answers = [answer.strip() for answer in done.stdout.strip().partition("\n")[0].split(",")]
    return answers if len(answers) == len(fields) else None


def _which_gpu() -> list[str]:
    """The GPU of torch by its UUID: nvidia-smi counts those that CUDA_VISIBLE_DEVICES hides."""
    torch = require_gpu()
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return [] if uuid is None else ["--id", f"GPU-{uuid}"]


def _cudnn_version(torch: Any) -> str:
    """As text: 91002 is 9.10.2 (cudnn_version.h). Torch refuses a cuDNN that it does not fit."""
    try:
        number = torch.backends.cudnn.version()
    except RuntimeError:
        return "that torch cannot use"
    if number is None:
        return ""
    major = 10_000 if number >= 90_000 else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _triton_version() -> str:
    if find_spec("triton") is None:
        return ""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("triton")
    except PackageNotFoundError:
        return "of unknown version"
