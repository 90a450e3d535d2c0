"""A failing case as one file that runs by itself: the function, its plan, the seed, the check."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..errors import InternalError
from ..kernel.compiled import Kernel, as_module
from ..records.candidate import workload_key
from ..schedules.workloads import Spec

_TEMPLATE: Final = '''\
"""{title}: run me, `python {name}`; the exit code is 1 while the kernel is wrong."""

import sys

import pipeliner
from tvm.script import from_source

# The function as it was scheduled, before it was pipelined.
FUNCTION = from_source({script!r})
TARGET = {target!r}
PLAN = pipeliner.KernelPlan.from_json({plan!r})
SEED = {seed}
TIMINGS = {timings!r}
ORDERS = {orders!r}
BLOCKS = {blocks!r}
TOLERANCE = {tolerance!r}


{check}

if __name__ == "__main__":
    kernel = pipeliner.build(FUNCTION, TARGET, plan=PLAN)
    verdict = check(kernel)
    for hazard in verdict.hazards:
        print(hazard)
    word = "right" if verdict.ok else "WRONG"
    print(word, "error / bound", verdict.worst, "with the bound", verdict.tolerance, *verdict.notes)
    sys.exit(0 if verdict.ok else 1)
'''

_OF_WORKLOAD: Final = """\
def check(kernel):
    from pipeliner.records.candidate import workload_of
    from pipeliner.verification.verdict import verify_workload

    spec = workload_of({key!r})
    return verify_workload(kernel, spec, SEED, TIMINGS, ORDERS, TOLERANCE)
"""

_OF_FUNCTION: Final = """\
import numpy as np


{reference}

def check(kernel):
    return pipeliner.verify(
        kernel,
        reference={name},
        seed=SEED,
        timings=TIMINGS,
        orders=ORDERS,
        blocks=BLOCKS,
        tolerance=TOLERANCE,
    )
"""


def reproducer(
    kernel: Kernel,
    file: str,
    *,
    seed: int,
    timings: Sequence[str],
    orders: Sequence[str],
    spec: Spec | None = None,
    reference: Callable[..., Any] | None = None,
    blocks: Any = None,
    tolerance: Any = None,
) -> str:
    """The text of a program, to be called ``file``, that verifies ``kernel`` as it was verified.

    ``spec``: the workload that it computes; or ``reference``: the function that it was compared
    with, whose source goes with it (None: the same function, not pipelined).
    """
    mod = as_module(kernel.original)
    return _TEMPLATE.format(
        title=kernel.name,
        name=shlex.quote(file),
        script=_script(mod, kernel.name),
        target=str(kernel.plan.target),
        plan=kernel.plan.to_json(),
        seed=seed,
        timings=tuple(timings),
        orders=tuple(orders),
        blocks=blocks,
        tolerance=tolerance,
        check=_OF_WORKLOAD.format(key=workload_key(spec)) if spec else _of_function(reference),
    )


def _script(mod: Any, name: str) -> str:
    """The module as TVMScript that reads back as the same; InternalError: it does not."""
    import tvm_ffi
    from tvm.script import from_source

    text = str(mod.script(show_meta=True))
    if not tvm_ffi.structural_equal(from_source(text), mod):
        raise InternalError(f"cannot save '{name}': TVMScript does not read back as the same")
    return text


def _of_function(reference: Callable[..., Any] | None) -> str:
    if reference is None:
        return _OF_FUNCTION.format(reference="", name="None").lstrip("\n")
    return _OF_FUNCTION.format(reference=inspect.getsource(reference), name=reference.__name__)
