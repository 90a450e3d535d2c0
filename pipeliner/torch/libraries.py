"""The function of a workload for a GPU: from the cache on disk, or built now and kept there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import networkx
import tvm

from .. import knobs
from ..diagnostics import Reason
from ..errors import ToolError
from ..kernel.building import build_with
from ..kernel.compiled import Kernel
from ..records.candidate import NOTHING_ASKED, Candidate, default_candidate
from ..records.recorded import recorded
from ..schedules.workloads import Spec
from ..toolchain import nvcc
from ..values.failure import why
from .cache import KernelCache
from .keys import kernel_key
from .said import say
from .workspaces import (
    Workspace,
    with_workspaces,
    workspaces_as_text,
    workspaces_of,
    workspaces_of_text,
)

LOADED_EARLY: Final = (networkx,)
"""What planning imports only when it is needed, and a first call should not wait for."""

_FOLDER: Final = "torch"
"""Of the user's cache folder, the part that is for PyTorch's calls."""


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A function that takes a workload's arguments, and behind them the workspaces it needs.

    ``source``: ``disk``, or ``built`` in this process.
    """

    run: Callable[..., Any]
    workspaces: tuple[Workspace, ...]
    source: str


def loaded(spec: Spec, target: Any) -> LoadedKernel:
    """The kernel of ``spec``; raises what building raises where there can be none.

    With PIPELINER_DB, it is the fastest that was recorded, as ``pipeliner.build`` takes it.
    """
    cache = kernel_cache()
    candidate = None
    if knobs.records() is not None:
        candidate = recorded(spec, target, NOTHING_ASKED, None).candidate
    if cache is None:
        return built(spec, target, candidate)[1]
    key = kernel_key(spec, target, "" if candidate is None else candidate.to_json())
    with cache.making(key):
        found = _found(cache, key, spec)
        if found is not None:
            return found
        kernel, made = built(spec, target, candidate)
        try:
            cache.store(key, kernel.export, workspaces_as_text(made.workspaces))
        except (ToolError, OSError) as err:  # it runs all the same
            say("cache", Reason("cache.not_used", why=str(err)))
        return made


def built(spec: Spec, target: Any, candidate: Candidate | None) -> tuple[Kernel, LoadedKernel]:
    """The kernel of ``spec``, made here: by the model's choice, or as ``candidate`` says."""
    chosen = candidate or default_candidate(spec, target)
    kernel = with_workspaces(build_with(chosen.function(spec), target, chosen.request))
    with nvcc.for_tvm(), kernel.target:
        run = kernel.executable[kernel.name]
    return kernel, LoadedKernel(run, workspaces_of(kernel.function, len(spec.shapes())), "built")


def _found(cache: KernelCache, key: str, spec: Spec) -> LoadedKernel | None:
    """The kernel on disk; None: it has to be made. What is wrong with an entry is said once."""
    try:
        kept = cache.find(key)
    except ToolError as err:
        say("cache", err.reason)
        return None
    if kept is None:
        return None
    try:
        run = tvm.runtime.load_module(str(kept.path))[spec.name]
    except (RuntimeError, OSError, AttributeError) as err:
        if kept.path.exists():  # else a process that makes room has just removed it
            said = Reason.of(why(err))
            say("cache", Reason("cache.entry", kernel=spec.name, path=str(cache.path), why=said))
        return None
    return LoadedKernel(run, workspaces_of_text(kept.note), "disk")


@functools.cache
def kernel_cache() -> KernelCache | None:
    """The user's cache; None: it is not to be used, which is said."""
    try:
        size = knobs.cache_megabytes()
        if not size.isdecimal():
            raise ToolError("cache.bytes", value=size)
        return KernelCache.opened(knobs.cache_folder() / _FOLDER, int(size) << 20)
    except ToolError as err:
        say("cache", Reason("cache.not_used", why=err.reason))
        return None
