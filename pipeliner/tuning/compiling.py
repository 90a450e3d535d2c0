"""Make the kernels of candidates in processes side by side."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tvm_ffi

from ..bench import compiling
from ..bench.libraries import Runner
from ..diagnostics import Reason, Why
from ..errors import ToolError
from ..kernel.building import build_with
from ..kernel.compiled import Kernel
from ..records.candidate import Candidate
from ..schedules.workloads import Spec
from ..toolchain import nvcc
from ..toolchain.machine_code import LoopCode, longest_loop
from ..workers import Pool
from .vetting import vet

SECONDS: Final = 180.0
"""For one kernel, the start of its process included; nvcc takes one to five."""

NICENESS: Final = 10
"""Of processes that compile, so that the one that times is never kept waiting."""

_COMPILE: Final = "tvm_callback_cuda_compile"


@dataclass(frozen=True, slots=True)
class BuiltCandidate:
    """A candidate's kernel of ``spec``, or why there is none (``failure``).

    ``path``, ``name``: the library and the function in it. ``slack``: the largest error that is
    accepted, over what rounding allows. ``plan``: as JSON. ``predicted_us``: by the plan.
    ``resources``: what ptxas reports. ``loop``: its longest loop in machine code, where asked for.
    """

    spec: Spec
    candidate: Candidate | None = None
    path: str = ""
    name: str = ""
    plan: str = ""
    predicted_us: float = 0.0
    resources: Mapping[str, int] = field(default_factory=dict)
    loop: LoopCode | None = None
    failure: Why = ""
    slack: float = 1.0

    def load(self) -> tuple[Runner, str]:
        """As a contender's ``make``."""
        return compiling.BuiltLibrary(self.path, self.name).load()


class Compiler:
    """Compiles candidates, ``jobs`` at a time.

    As many threads may call ``compile``. ``verify``: the emulator runs each kernel on
    smaller extents first, and one that is wrong fails. ``disassemble``: loops are read in machine
    code.
    """

    def __init__(
        self, target: Any, jobs: int, *, verify: bool = False, disassemble: bool = False
    ) -> None:
        self.jobs = jobs
        self._folder = tempfile.TemporaryDirectory(prefix="pipeliner-")
        make = functools.partial(_Compile, target, self._folder.name, verify, disassemble)
        self._pool = Pool(make, jobs)

    def start(self) -> None:
        """Start the processes: they load TVM while the space is ranked."""
        self._pool.start()

    def compile(self, spec: Spec, candidate: Candidate) -> BuiltCandidate:
        """The candidate's kernel, or why there is none; whatever happens, nothing is raised."""
        try:
            made: BuiltCandidate = self._pool.call(spec, candidate, seconds=SECONDS)
        except ToolError as err:
            return BuiltCandidate(
                spec, candidate, failure=Reason("measure.not_compiled", why=err.reason)
            )
        return made

    def end(self) -> None:
        """End what is being compiled, from any thread."""
        self._pool.end()

    def close(self) -> None:
        """End the processes and remove what they made."""
        self._pool.close()
        self._folder.cleanup()


class _Compile:
    """In a worker: a candidate in, a library out."""

    def __init__(self, target: Any, folder: str, verify: bool, disassemble: bool) -> None:
        os.nice(NICENESS)
        self._target, self._verify, self._disassemble = target, verify, disassemble
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        # What nvcc leaves behind when it is killed goes with the folder.
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder)
        self._made = 0

    def __call__(self, spec: Spec, candidate: Candidate) -> BuiltCandidate:
        kernel = build_with(candidate.function(spec), self._target, candidate.request)
        if self._verify:
            vet(spec, candidate, kernel)
        plan = kernel.plan
        path = self._folder / f"{self._made}.so"
        self._made += 1
        with _reports(kernel.arch) as made:
            kernel.export(path, compiled=False)
        return BuiltCandidate(
            spec,
            candidate,
            str(path),
            kernel.name,
            plan.to_json(),
            plan.predicted_us,
            _resources(kernel, "".join(one.log for one in made)),
            _loop(kernel, made) if self._disassemble else None,
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
