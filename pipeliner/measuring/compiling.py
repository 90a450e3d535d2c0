"""Make libraries of kernels before they are measured, in processes side by side.

A worker leaves a shared library in a folder; who measures loads it when the kernel's turn comes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tvm
import tvm_ffi

from ..diagnostics import Reason, Why
from ..errors import ToolError
from ..kernel.building import build_with
from ..kernel.compiled import Kernel
from ..passes.ir.marks import is_marked
from ..processors import processors
from ..records.candidate import Candidate
from ..records.functions import AnyWorkload
from ..toolchain import nvcc
from ..toolchain.machine_code import LoopCode, longest_loop
from ..workers import Pool
from .contenders import Inputs, Runner
from .vetting import vet

SECONDS: Final = 180.0
"""For one kernel, the start of its process included; nvcc takes one to five."""

NICENESS: Final = 10
"""Of processes that compile, so that the one that times is never kept waiting."""

_COMPILE: Final = "tvm_callback_cuda_compile"


def workers_for(cores: int) -> int:
    """Processes that compile on a machine of ``cores``: one core stays for this one."""
    return max(1, cores - 1)


class Recipe(ABC):
    """How to compile a kernel; a value that another process can be given."""

    @abstractmethod
    def kernel(self) -> tuple[Kernel, str]:
        """The kernel, and in a few words what it is."""

    def of(self) -> Candidate | None:
        """The candidate that it is of, if of one."""
        return None


@dataclass(frozen=True)
class CandidateKernel(Recipe):
    """The kernel of a candidate; ``verify``: the emulator runs it on smaller extents first."""

    spec: AnyWorkload
    candidate: Candidate
    target: Any
    verify: bool = False

    def kernel(self) -> tuple[Kernel, str]:
        """Scheduled, pipelined, vetted where that is asked for."""
        kernel = build_with(self.candidate.function(self.spec), self.target, self.candidate.request)
        if self.verify:
            vet(self.spec, self.candidate, kernel)
        return kernel, ""


@dataclass(frozen=True, slots=True)
class BuiltCandidate:
    """A kernel in a library, or why there is none (``failure``).

    ``spec`` and ``candidate``: what it is of, where it is a candidate's. ``path``, ``name``: the
    library and the function in it. ``plan``: as JSON. ``predicted_us``: by the plan. ``resources``:
    what ptxas reports. ``loop``: its longest loop in machine code, where asked for. ``detail``:
    what it is, in a few words. ``out``: the type that it writes, where not the workload's.
    ``arrange``: how it wants the inputs to lie, which is not timed. ``slack``: the largest error
    that is accepted: error / bound, where rounding gives the bound.
    """

    spec: Any = None
    candidate: Candidate | None = None
    path: str = ""
    name: str = ""
    plan: str = ""
    predicted_us: float = 0.0
    resources: Mapping[str, int] = field(default_factory=dict)
    loop: LoopCode | None = None
    failure: Why = ""
    detail: str = ""
    out: str = ""
    arrange: Callable[[Inputs], Inputs] = tuple
    slack: float = 1.0

    def load(self) -> tuple[Runner, str]:
        """The kernel as a call, and what it is; ToolError where there is none."""
        if self.failure:
            raise ToolError(self.failure)
        with nvcc.for_tvm():
            function = tvm.runtime.load_module(self.path).get_function(self.name, True)

        def run(*tensors: object) -> None:
            with tvm_ffi.use_torch_stream():
                function(*tensors)

        return run, self.detail


@dataclass(frozen=True)
class MadeAtItsTurn(BuiltCandidate):
    """A kernel that ``make`` returns where it is measured, such as a library's."""

    make: Callable[[], tuple[Runner, str]] = field(kw_only=True)

    def load(self) -> tuple[Runner, str]:
        return self.make()


class Builder:
    """Compiles recipes, ``jobs`` at a time (None: as many as there are cores but one).

    As many threads may call ``build``. ``kernels``: how many there are in all, at least.
    ``disassemble``: loops are read in machine code. ``seconds``: for each.
    """

    def __init__(
        self,
        jobs: int | None = None,
        *,
        kernels: int | None = None,
        disassemble: bool = False,
        seconds: float = SECONDS,
    ) -> None:
        jobs = workers_for(processors()) if jobs is None else jobs
        self.jobs = jobs if kernels is None else max(1, min(jobs, kernels))
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory(prefix="pipeliner-")
        self._pool = Pool(functools.partial(_Compile, self._folder.name, disassemble), self.jobs)

    def start(self) -> None:
        """Start the processes: they load TVM while the space is ranked."""
        self._pool.start()

    def build(self, recipe: Recipe) -> BuiltCandidate:
        """The recipe's kernel, or why there is none; whatever happens, nothing is raised."""
        try:
            made: BuiltCandidate = self._pool.call(recipe, seconds=self._seconds)
        except ToolError as err:
            return BuiltCandidate(failure=err.reason)
        return made

    def end(self) -> None:
        """End what is being compiled, from any thread."""
        self._pool.end()

    def close(self) -> None:
        """End the processes and remove what they made."""
        self._pool.close()
        self._folder.cleanup()


class Compiler(Builder):
    """Compiles candidates for ``target``, as ``Builder`` does."""

    def __init__(
        self, target: Any, jobs: int | None = None, *, verify: bool = False, **options: Any
    ) -> None:
        super().__init__(jobs, **options)
        self._target, self._verify = target, verify

    def compile(self, spec: AnyWorkload, candidate: Candidate) -> BuiltCandidate:
        """The candidate's kernel, or why there is none; whatever happens, nothing is raised."""
        made = self.build(CandidateKernel(spec, candidate, self._target, self._verify))
        failure = made.failure and Reason("measure.not_compiled", why=made.failure)
        return dataclasses.replace(made, spec=spec, candidate=candidate, failure=failure)


class _Compile:
    """In a worker: a recipe in, a library out."""

    def __init__(self, folder: str, disassemble: bool) -> None:
        os.nice(NICENESS)
        self._disassemble = disassemble
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        # What nvcc leaves behind when it is killed goes with the folder.
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder)
        self._made = 0

    def __call__(self, recipe: Recipe) -> BuiltCandidate:
        kernel, detail = recipe.kernel()
        plan = kernel.plan if is_marked(kernel.function) else None
        path = self._folder / f"{self._made}.so"
        self._made += 1
        with _reports(kernel.arch) as made:
            kernel.export(path, compiled=False)
        return BuiltCandidate(
            candidate=recipe.of(),
            path=str(path),
            name=kernel.name,
            plan="" if plan is None else plan.to_json(),
            predicted_us=0.0 if plan is None else plan.predicted_us,
            resources=_resources(kernel, "".join(one.log for one in made)),
            loop=_loop(kernel, made) if self._disassemble else None,
            detail=detail,
        )


@contextlib.contextmanager
def _reports(arch: str) -> Iterator[list[nvcc.Compiled]]:
    """What TVM compiles meanwhile, with what ptxas says; nothing where TVM finds no driver.

    TVM's own callback drops it, and nvcc would have to run again. That is back when the context
    ends.
    """
    fatbins: list[nvcc.Compiled] = []
    usual = tvm_ffi.get_global_func(_COMPILE)

    def compiled(code: str) -> bytes:
        made = nvcc.compile_cuda(code, arch, "fatbin")
        fatbins.append(made)
        return made.data

    tvm_ffi.register_global_func(_COMPILE, compiled, override=True)
    try:
        yield fatbins
    finally:
        tvm_ffi.register_global_func(_COMPILE, usual, override=True)


def _loop(kernel: Kernel, fatbins: list[nvcc.Compiled]) -> LoopCode | None:
    """Its longest loop, of what TVM compiled or else by another run; None without the tools."""
    with contextlib.suppress(ToolError):
        if fatbins:
            return longest_loop("".join(nvcc.disassemble(one.data, "fatbin") for one in fatbins))
    try:
        return kernel.loop_code
    except ToolError:
        return None


def _resources(kernel: Kernel, log: str) -> dict[str, int]:
    """What the device function takes that takes most, by ``log`` or else by another run of nvcc.

    Empty without nvcc, which TVM can do without.
    """
    try:
        found = kernel.resources_in(log) or kernel.all_resources
    except ToolError:
        return {}
    most = max(found, key=lambda used: (used.registers, used.shared))
    values: dict[str, Any] = dataclasses.asdict(most)
    return {name: value for name, value in values.items() if isinstance(value, int)}
