"""Run the pipeline and keep each pass: what it was given and what it made, TVM's passes and ours.

run_pass("Expand", func, "a100")   =>   PassRun("pipeliner.Expand", before, after), two modules
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Final

import tvm

from ..errors import PlanError
from ..kernel.building import pipeline_with
from ..kernel.compiled import as_module
from ..passes.ir.named_pass import OURS
from ..passes.lower import PIPELINE
from ..plan.request import Request
from ..targets import cuda_target
from .condensed import condensed

_ANY: Final = Request()


@dataclass(frozen=True, slots=True)
class PassRun:
    """One run of a pass: its name in TVM, and the module before and after."""

    name: str
    before: Any
    after: Any

    @property
    def texts(self) -> tuple[str, str]:
        """Both as TVM prints them."""
        return self.before.script(), self.after.script()

    @property
    def changed(self) -> bool:
        """Whether they print differently."""
        if self.before.same_as(self.after):
            return False
        before, after = self.texts
        return before != after

    def diff(self, *, condense: bool = False) -> str:
        """A unified diff of the two; ``condense``: as ``condensed`` prints them, empty if alike."""
        texts = [condensed(text) if condense else text for text in self.texts]
        before, after = (text.splitlines() for text in texts)
        lines = difflib.unified_diff(before, after, "before", "after", lineterm="", n=2)
        return "\n".join(lines)


@tvm.ir.instrument.pass_instrument
class PassTrace:
    """A TVM instrument that keeps every run of a pass.

    Use: ``with tvm.transform.PassContext(instruments=[trace]): ...``, then read ``trace.every``, or
    ``trace.runs``: what changed something, where a pass made of passes is kept as its parts.
    """

    def __init__(self) -> None:
        self.every: list[PassRun] = []
        self.runs: list[PassRun] = []
        self._open: list[tuple[Any, int]] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all passes that ran, each once, as TVM knows them."""
        return tuple(dict.fromkeys(run.name for run in self.every))

    def run_before_pass(self, mod: Any, info: Any) -> None:
        self._open.append((mod, len(self.runs)))

    def run_after_pass(self, mod: Any, info: Any) -> None:
        before, runs = self._open.pop()
        done = PassRun(str(info.name), before, mod)
        self.every.append(done)
        parts = len(self.runs) > runs
        if not parts and done.changed:
            self.runs.append(done)


def trace(func: Any, target: Any, request: Request = _ANY) -> PassTrace:
    """What passes do to ``func`` on its way to CUDA, TVM's and ours, in order."""
    seen = PassTrace()
    with tvm.transform.PassContext(instruments=[seen]):
        pipelined = pipeline_with(func, target, request)
        with cuda_target(target) as bound:
            tvm.compile(as_module(pipelined), bound, tir_pipeline=PIPELINE)
    return seen


def run_pass(name: str, func: Any, target: Any, request: Request = _ANY) -> PassRun:
    """The run of the pass ``name`` on ``func`` on its way to CUDA: the module before and after.

    Where the pass ran for several plans, it is the last run: that of the plan that was carried out.
    ``after`` is ``before`` where the pass had nothing to do. Raises PlanError if it did not run.
    """
    seen = trace(func, target, request)
    found = [run for run in seen.every if name in (run.name, _short(run.name))]
    if not found:
        ours = tuple(_short(one) for one in seen.names if one.startswith(OURS))
        raise PlanError("pass.not_run", name=name, ran=ours)
    return found[-1]


def _short(name: str) -> str:
    return name.rpartition(".")[2]
