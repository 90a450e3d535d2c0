"""Compile the kernels of many problems before any is timed, in processes side by side.

A worker leaves a shared library in a folder; this process loads it when the kernel's turn comes.
Compiling never runs beside timing.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi

from .. import nvcc
from ..errors import ToolError
from .libraries import Runner
from .problems import Contender, Problem, Recipe
from .results import reason

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Built:
    """What a worker made: a library with the kernel ``name``, or why there is none, in one line."""

    path: str
    name: str = ""
    detail: str = ""
    failure: str = ""

    def load(self) -> tuple[Runner, str]:
        """As a contender's ``make``; ToolError where the worker failed."""
        if self.failure:
            raise ToolError(self.failure)
        with nvcc.for_tvm():
            function = tvm.runtime.load_module(self.path).get_function(self.name, True)

        def run(*tensors: object) -> None:
            with tvm_ffi.use_torch_stream():
                function(*tensors)

        return run, self.detail


def workers_for(cores: int) -> int:
    """Processes that compile on a machine of ``cores``: one core stays for this one."""
    return max(1, cores - 1)


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def compiled_ahead(
    problems: Sequence[Problem], say: Say, workers: int | None = None
) -> Iterator[list[Problem]]:
    """The problems with what can be compiled ahead compiled, by ``workers`` processes.

    With one worker, or one kernel, nothing is done ahead: each is compiled at its turn.
    """
    count = workers_for(cores()) if workers is None else workers
    recipes = [
        contender.make
        for problem in problems
        for contender in problem.contenders
        if isinstance(contender.make, Recipe)
    ]
    if min(count, len(recipes)) < 2:
        yield list(problems)
        return
    with tempfile.TemporaryDirectory(prefix="pipeliner-") as folder:
        built = compile_all(recipes, Path(folder), count, say)
        made = iter(built)

        def replaced(contender: Contender) -> Contender:
            if not isinstance(contender.make, Recipe):
                return contender
            found = next(made)
            return contender if found is None else dataclasses.replace(contender, make=found.load)

        yield [
            dataclasses.replace(problem, contenders=tuple(map(replaced, problem.contenders)))
            for problem in problems
        ]


def compile_all(
    recipes: Sequence[Recipe], folder: Path, workers: int, say: Say
) -> list[Built | None]:
    """What became of each recipe, in order; None where its worker died: compile it here."""
    pool = ProcessPoolExecutor(
        min(workers, len(recipes)),
        mp_context=multiprocessing.get_context("spawn"),  # a GPU's context does not survive fork
        initializer=_end_silently,
    )
    try:
        futures = [
            pool.submit(_compile, recipe, folder / f"{at}.so") for at, recipe in enumerate(recipes)
        ]
        for done, _ in enumerate(as_completed(futures), 1):
            say(f"compiled {done} of {len(recipes)} kernels")
    except BaseException:  # an interrupt too: what is queued is not begun
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    broken = [future for future in futures if isinstance(future.exception(), BrokenProcessPool)]
    if broken:
        say(f"compiling {len(broken)} kernels at their turn: {broken[0].exception()}")
    return [None if future in broken else future.result() for future in futures]


def _end_silently() -> None:
    """^C goes to every process of a terminal: a worker just ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _compile(recipe: Recipe, path: Path) -> Built:
    """In a worker: a library at ``path``. Errors become text: TVM's do not travel.

    Every error: one that cannot be sent would end all workers, and with them every other kernel.
    """
    try:
        kernel, detail = recipe.kernel()
        kernel.export(path)
    except Exception as err:
        return Built(str(path), failure=reason(err))
    return Built(str(path), kernel.name, detail)
