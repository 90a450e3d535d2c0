"""Software pipelining for TensorIR: the schedule, the reasons and the CUDA, on Apache TVM.

    fast = pipeliner.pipeline(func, "h100")      # a scheduled PrimFunc in, the pipelined one out
    print(pipeliner.plan_of(fast).explain())     # what was decided, and why
    kernel = pipeliner.build(fast)               # compiled: kernel(a, b, c), kernel.cuda, ...

Names load on first use: importing the package imports no TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from . import versions

if TYPE_CHECKING:
    from . import errors, machine, meta, passes, relax, schedules
    from .api import build, pipeline
    from .emulator import emulate
    from .errors import PipelinerError
    from .kernel.compiled import Kernel, plan_of
    from .machine import Machine, machine_for
    from .mutation import MutationReport, mutate
    from .plan import KernelPlan
    from .plan.request import Request
    from .records import Record, Records
    from .tuning import Autotuned, Tuned, autotune, tune
    from .verification.verdict import Verdict, verify

__version__: Final = versions.OWN

_HOMES: Final = {
    "build": "api",
    "pipeline": "api",
    "plan_of": "kernel.compiled",
    "Kernel": "kernel.compiled",
    "emulate": "emulator",
    "PipelinerError": "errors",
    "Machine": "machine",
    "machine_for": "machine",
    "MutationReport": "mutation",
    "mutate": "mutation",
    "KernelPlan": "plan",
    "Record": "records",
    "Records": "records",
    "Request": "plan.request",
    "Autotuned": "tuning",
    "Tuned": "tuning",
    "autotune": "tuning",
    "tune": "tuning",
    "Verdict": "verification.verdict",
    "verify": "verification.verdict",
}
_MODULES: Final = ("errors", "machine", "meta", "passes", "relax", "schedules", "torch")

__all__ = [
    "Autotuned",
    "Kernel",
    "KernelPlan",
    "Machine",
    "MutationReport",
    "PipelinerError",
    "Record",
    "Records",
    "Request",
    "Tuned",
    "Verdict",
    "autotune",
    "build",
    "emulate",
    "errors",
    "machine",
    "machine_for",
    "meta",
    "mutate",
    "passes",
    "pipeline",
    "plan_of",
    "relax",
    "schedules",
    "tune",
    "verify",
]

if not versions.is_command():
    versions.require()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
