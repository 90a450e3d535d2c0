"""The kernels whose plans are fixed: what each is made of, read from a line of text.

    sm_80 gemm 64x64x96 layout=NN | 32x32x32 splits=2 | depth=2 mechanism=register
    sm_90a conv 3x6x7x64 64x3x3 pad=1 of=input | 64x32x64 |
    sm_80 corpus gather_sum | | depth=3
    sm_80 function examples.streaming:add | |

A GPU and what is computed; the tile (none: the one that the model chooses); what is asked for. A
GEMM has the extents M x N x K, ``m`` for an M that a run decides; a convolution N x size x C and
K x kernel. Everything else is ``name=value``, as the classes call it.
"""

from __future__ import annotations

import ast
import importlib
import itertools
from dataclasses import dataclass
from typing import Any, Final

from pipeliner.kernel.building import pipeline_with
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate, default_candidate
from pipeliner.schedules import ConvTile, DepthwiseTile, GemmTile, NaiveTile
from pipeliner.schedules.workloads import ConvInputGrad, ConvWeightGrad, Gemm, Spec, conv
from pipeliner.targets import cuda_target

from ..corpus import annotated, branches, generated, loops, stencils, tiles

_CORPUS: Final = (loops, branches, tiles, stencils, generated, annotated)
_OF: Final = {"input": ConvInputGrad, "weight": ConvWeightGrad}
_TILES: Final[dict[str, Any]] = {"depthwise": DepthwiseTile, "naive": NaiveTile}


@dataclass(frozen=True, slots=True)
class PlanCase:
    """A function, a GPU and a request, as ``text`` says."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def target(self) -> str:
        return self.text.split()[0]

    @property
    def request(self) -> Request:
        return Request(**_options(self._parts[2].split()))

    def function(self) -> Any:
        """The function that is pipelined: a schedule of a workload, or one written by hand."""
        _, kind, name, *_ = self._parts[0].split()
        if kind == "corpus":
            cases = itertools.chain(*(module.CASES for module in _CORPUS))
            return next(case for case in cases if case.name == name).build()
        if kind == "function":
            module, _, function = name.partition(":")
            return getattr(importlib.import_module(module), function)
        spec = self.workload()
        tile = self._parts[1].split()
        if not tile:
            return default_candidate(spec, cuda_target(self.target), self.request).function(spec)
        return Candidate(_tile(spec, tile)).function(spec)

    def workload(self) -> Spec:
        """What is computed, of a case that says a workload."""
        _, kind, first, *words = self._parts[0].split()
        if kind == "gemm":
            m, n, k = first.split("x")
            return Gemm(None if m == "m" else int(m), int(n), int(k), **_options(words))
        (images, *size, c), (k_out, *kernel) = _sizes(first), _sizes(words[0])
        options = _options(words[1:])
        gradient = _OF.get(options.pop("of", ""))
        forward = conv(images, size, c, k_out, kernel, **options)
        return gradient(forward) if gradient else forward

    def planned(self) -> tuple[Any, KernelPlan]:
        """The function, and the plan that is made for it today."""
        function = self.function()
        done = pipeline_with(function, self.target, self.request)
        return function, KernelPlan.from_json(str(done.attrs["pipeliner.plan"]))

    @property
    def _parts(self) -> list[str]:
        return self.text.split("|")


def _tile(spec: Spec, words: list[str]) -> Any:
    if words[0] in _TILES:
        return _TILES[words[0]](*_sizes(words[1]), **_options(words[2:]))
    kind: Any = GemmTile if isinstance(spec, Gemm) else ConvTile
    return kind(*_sizes(words[0]), **_options(words[1:]))


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split("x")]


def _options(words: list[str]) -> dict[str, Any]:
    """``name=value`` of each word; a value that is no literal of Python is a word."""
    return {name: _value(text) for name, _, text in (word.partition("=") for word in words)}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text
