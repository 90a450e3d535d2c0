"""A function of knobs that tunes itself: the decorator that Triton's users know."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import WorkloadError
from ..kernel.building import build_with, target_for
from ..kernel.compiled import Kernel
from ..records import Records
from ..records.candidate import (
    NOTHING_ASKED,
    Candidate,
    machine_key,
    versions_key,
    workload_key,
)
from ..records.settings import KnobValues, knobs_of, name_of
from ..targets import gpu
from .subjects import subject_of
from .tuner import TRIALS, Tuned, TuneOptions, records_path, tune

if TYPE_CHECKING:
    from typing_extensions import Unpack


def autotune(
    *,
    key: Sequence[str] = (),
    space: KnobValues | None = None,
    target: Any = None,
    **options: Unpack[TuneOptions],
) -> Callable[[Callable[..., Any]], Autotuned]:
    """Make a function of knobs one of kernels: called, it returns the fastest that is found.

        @pipeliner.autotune(key=["m", "n", "k"], space={"tile": TILES, "depth": [2, 3, 4]})
        def gemm(m, n, k, tile): ...  # a schedule, or what holds one

        kernel = gemm(4096, 4096, 4096)  # tuned at the first call
        kernel(a, b, c)

    Parameters
    ----------
    key
        Parameters whose values are tuned for, each combination by itself; default: all but the
        knobs. A call that differs in others takes what was found for the first.
    space, target, options
        As for ``tune``. What the records ``db`` have is not measured again, and needs no GPU.

    Raises
    ------
    WorkloadError
        There is no knob, or ``key`` or ``space`` names no parameter.
    """

    def made(function: Callable[..., Any]) -> Autotuned:
        return Autotuned(function, key, space or {}, target, options)

    return made


class Autotuned:
    """A function of knobs, and the kernels that it has been tuned to; see ``autotune``."""

    def __init__(
        self,
        function: Callable[..., Any],
        key: Sequence[str],
        space: KnobValues,
        target: Any,
        options: TuneOptions,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.space = dict(space)
        self._target, self._options = target, options
        signature = inspect.signature(function)
        lists = [one.name for one in signature.parameters.values() if isinstance(one.default, list)]
        knobs = {name for name in signature.parameters if name in self.space} | set(lists)
        if not knobs and not self.space:
            raise WorkloadError("tune.no_knobs", function=name_of(function))
        others = [one for one in signature.parameters.values() if one.name not in knobs]
        self._signature = signature.replace(parameters=others)
        knobs_of(function, self.space, {one.name: None for one in others})  # WorkloadError
        unknown = [name for name in key if name not in self._signature.parameters]
        if unknown:
            raise WorkloadError(
                "tune.unknown_key",
                function=name_of(function),
                key=unknown[0],
                parameters=tuple(self._signature.parameters),
            )
        self._key = tuple(key) or tuple(self._signature.parameters)
        self._found: dict[tuple[Any, ...], Candidate] = {}
        self._kernels: dict[tuple[Any, ...], Kernel] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Kernel:
        """The fastest kernel for these arguments; raises what ``tune`` raises."""
        given = self.given(*args, **kwargs)
        called = tuple(map(_hashable, given.values()))
        if called not in self._kernels:
            key = self._key_of(given)
            if key not in self._found:
                self._found[key] = self._recorded(given) or self._tuned(given).candidate
            chosen = self._found[key]
            function = self.function(**given, **dict(getattr(chosen.tile, "values", ())))
            target = target_for(self._target, NOTHING_ASKED)
            self._kernels[called] = build_with(function, target, chosen.request)
        return self._kernels[called]

    def tune(self, *args: Any, **kwargs: Any) -> Tuned:
        """Tune for these arguments, whatever was found before; what is recorded counts."""
        given = self.given(*args, **kwargs)
        found = self._tuned(given)
        self._found[self._key_of(given)] = found.candidate
        return found

    def _tuned(self, given: dict[str, Any]) -> Tuned:
        return tune(self.function, self._target, space=self.space, given=given, **self._options)

    def given(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The parameters that are no knobs, by name; TypeError: they do not fit."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def _recorded(self, given: dict[str, Any]) -> Candidate | None:
        """The fastest that the records have; None: more is to be tried, and there is a GPU."""
        path, trials = records_path(self._options.get("db")), self._options.get("trials", TRIALS)
        if not path.exists():
            return None
        target = target_for(self._target, NOTHING_ASKED)
        workload = subject_of(self.function, target, self.space, given).workload
        with Records(path, create=False) as records:
            key = (workload_key(workload), machine_key(target), versions_key())
            best = records.best(*key)
            tried = {one.candidate for one in records.find(*key, plans=False)}
        if best is None or (len(tried) < trials and gpu() is not None):
            return None
        return Candidate.from_json(best.candidate)

    def _key_of(self, given: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_hashable(given[name]) for name in self._key)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value
