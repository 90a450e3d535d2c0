"""A builder for meta_schedule that compiles through our lowering, in processes side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..api import build
from ..errors import ToolError
from ..measuring import workers_for
from ..processors import processors
from ..workers import Pool

SECONDS: Final = 180.0


def builder(jobs: int | None = None) -> Any:
    """A builder that pipelines and compiles candidates, ``jobs`` at a time (default: cores - 1)."""
    return _Builder(workers_for(processors()) if jobs is None else jobs)


@derived_object
class _Builder(ms.builder.PyBuilder):
    """See ``builder``. What fails is a result with its reason."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self._pool = Pool(_compiler, jobs)
        self._pool.start()  # they load TVM while the space is made

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """A library for each input, or why there is none."""
        with ThreadPoolExecutor(self._pool.count) as pool:
            return list(pool.map(self._built, build_inputs))

    def _built(self, given: Any) -> Any:
        text = tvm.ir.save_json(given.mod)
        try:
            path = self._pool.call(text, dict(given.target.attrs), seconds=SECONDS)
        except ToolError as err:
            return ms.builder.BuilderResult(None, str(err))
        return ms.builder.BuilderResult(path, None)


def _compiler() -> Callable[..., str]:
    """In a worker: what makes a library of a scheduled module."""
    return _compile


def _compile(mod: str, target: dict[str, Any]) -> str:
    chosen = Target({**target, "kind": "cuda"})
    # In a folder of its own, which meta_schedule removes when it has run the kernel.
    path = Path(tempfile.mkdtemp(prefix="pipeliner-")) / "kernel.so"
    build(tvm.ir.load_json(mod), chosen, prove=False).export(path, compiled=False)
    return str(path)
