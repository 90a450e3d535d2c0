"""Compile the kernels of many problems before any is timed, in processes side by side.

A worker leaves a shared library in a folder; this process loads it when the kernel's turn comes.
Compiling never runs beside timing.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tvm
import tvm_ffi

from ..diagnostics import Why
from ..errors import ToolError
from ..toolchain import nvcc
from ..workers import Pool
from .libraries import Runner
from .problems import Contender, Problem, Recipe, Say

SECONDS: Final = 600.0
"""For one kernel; nvcc takes one to five."""


@dataclass(frozen=True, slots=True)
class BuiltLibrary:
    """What a worker made: a library with the kernel ``name``, or why there is none."""

    path: str
    name: str = ""
    detail: str = ""
    failure: Why = ""

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
            return dataclasses.replace(contender, make=next(made).load)

        yield [
            dataclasses.replace(problem, contenders=tuple(map(replaced, problem.contenders)))
            for problem in problems
        ]


def compile_all(
    recipes: Sequence[Recipe], folder: Path, workers: int, say: Say
) -> list[BuiltLibrary]:
    """What became of each recipe, in order; one that ends its process costs itself alone."""
    pool = Pool(_compiler, min(workers, len(recipes)))
    threads = ThreadPoolExecutor(pool.count)

    def compiled(at: int) -> BuiltLibrary:
        path = str(folder / f"{at}.so")
        try:
            name, detail = pool.call(recipes[at], path, seconds=SECONDS)
        except ToolError as err:
            return BuiltLibrary(path, failure=err.reason)
        return BuiltLibrary(path, name, detail)

    try:
        futures = [threads.submit(compiled, at) for at in range(len(recipes))]
        for done, _ in enumerate(as_completed(futures), 1):
            say(f"compiled {done} of {len(recipes)} kernels")
        return [future.result() for future in futures]
    finally:  # after an interrupt too: what is queued is not begun, what is under way fails
        threads.shutdown(wait=False, cancel_futures=True)
        pool.end()
        threads.shutdown()
        pool.close()


def _compiler() -> Callable[[Recipe, str], tuple[str, str]]:
    """In a worker: what makes a library of a recipe."""
    return _compile


def _compile(recipe: Recipe, path: str) -> tuple[str, str]:
    kernel, detail = recipe.kernel()
    kernel.export(path, compiled=False)
    return kernel.name, detail
