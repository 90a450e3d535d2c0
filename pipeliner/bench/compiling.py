"""Compile the kernels of many problems before any is timed, in processes side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ..measuring import Contender, Recipe, Say, cores, workers_for
from ..measuring.compiling import compiled
from .problems import Problem

SECONDS: Final = 600.0
"""For one kernel; nvcc takes one to five."""


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
    with compiled(recipes, count, say, SECONDS) as built:
        made = iter(built)

        def replaced(contender: Contender) -> Contender:
            if not isinstance(contender.make, Recipe):
                return contender
            return dataclasses.replace(contender, make=next(made).load)

        yield [
            dataclasses.replace(problem, contenders=tuple(map(replaced, problem.contenders)))
            for problem in problems
        ]
