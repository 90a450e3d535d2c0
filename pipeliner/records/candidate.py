"""What a tuner tries: a tile and a request; and the texts by which records know such things."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from .. import versions
from ..diagnostics import Why
from ..errors import RecordsError, ToolError
from ..kernel.chosen_tile import chosen_tile
from ..machine import Machine, machine_for
from ..plan import KernelPlan
from ..plan.request import Request
from ..schedules import (
    Attention,
    AttentionTile,
    BackToBackGemm,
    Conv,
    ConvInputGrad,
    ConvTile,
    ConvWeightGrad,
    DepthwiseTile,
    GatedGemm,
    Gemm,
    GemmTile,
    GroupedGemm,
    GroupTile,
    NaiveTile,
    PackedGemm,
    RowGemm,
    RowTile,
    ScaledGemm,
)
from ..schedules.closed_form import kernel_info
from ..schedules.scheduled import scheduled
from ..schedules.tiles import Tile
from ..schedules.workloads import Spec
from ..space.ranking import choose
from ..toolchain import nvcc
from ..values.failure import why
from ..values.released import recorded_request, recorded_tile
from .functions import AnyWorkload, FunctionWorkload, Knobs, is_function

NOTHING_ASKED: Final = Request()

_WORKLOADS: Final = {
    kind.__name__: kind
    for kind in (
        Gemm,
        GatedGemm,
        Conv,
        ConvInputGrad,
        ConvWeightGrad,
        Attention,
        RowGemm,
        BackToBackGemm,
        GroupedGemm,
        PackedGemm,
        ScaledGemm,
    )
}
_TILES: Final = {
    kind.__name__: kind
    for kind in (
        GemmTile,
        ConvTile,
        DepthwiseTile,
        GroupTile,
        NaiveTile,
        AttentionTile,
        RowTile,
        Knobs,
    )
}
_KIND: Final = "kind"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to make a workload's kernel: how it is tiled, and what is asked of the pipeliner.

    ``tile``: of a function of the user's, the knobs that it is made with. ``why``: why it is this
    one, where the model chose it.
    """

    tile: Tile | Knobs
    request: Request = NOTHING_ASKED
    why: Why = field(default="", compare=False)

    def function(self, spec: AnyWorkload) -> Any:
        """The workload, scheduled; WorkloadError: the tile is another kind's."""
        if isinstance(spec, FunctionWorkload):
            return spec.function()
        assert not isinstance(self.tile, Knobs)
        return scheduled(spec, self.tile)

    def plan(self, spec: Spec, machine: Machine) -> KernelPlan:
        """What the model makes of it, no kernel being made; PipelinerError where it is refused."""
        assert isinstance(self.tile, (GemmTile, AttentionTile, RowTile))
        return choose(kernel_info(spec, self.tile), machine, self.request)

    @property
    def family(self) -> Candidate:
        """The same with one slot: what candidates that differ in depth alone have in common."""
        return replace(self, request=replace(self.request, depth=1))

    def to_json(self) -> str:
        """As text that ``from_json`` reads, the same for the same candidate."""
        asked = self.request.as_dict()
        return json.dumps({"tile": _as_dict(self.tile), "request": asked}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Candidate:
        """The candidate of a record; RecordsError: it is none."""
        try:
            data = json.loads(text)
            tile = _of_dict(_TILES, recorded_tile(data["tile"]))
            asked = recorded_request(data["request"])
            return Candidate(tile, Request.from_dict(asked))
        except (ValueError, LookupError, TypeError, AttributeError) as err:
            raise RecordsError("tune.candidate", text=text, why=why(err)) from err


def describe(candidate: Candidate) -> tuple[str, str]:
    """The tile and what is asked of the pipeliner, in short; ``-`` where nothing is."""
    tile, request = candidate.tile, candidate.request
    if isinstance(tile, Knobs):
        asked = [f"{name} {value}" for name, value in _differing(request)]
        return tile.told, ", ".join(asked) or "-"
    sizes = [f"{name} {value}" for name, value in _differing(tile) if name not in "mnk"]
    extents = [str(getattr(tile, name)) for name in "mnk" if hasattr(tile, name)]
    asked = [f"{name} {value}" for name, value in _differing(request)]
    return ", ".join(["x".join(extents)] * bool(extents) + sizes), ", ".join(asked) or "-"


def default_candidate(
    spec: AnyWorkload, target: Any, request: Request = NOTHING_ASKED
) -> Candidate:
    """What is taken where nothing was measured: the model's choice of a tile for ``request``."""
    if isinstance(spec, FunctionWorkload):
        return Candidate(Knobs(), request)
    chosen = chosen_tile(spec, target, request)
    return Candidate(chosen.tile, request, chosen.why)


def is_workload(value: Any) -> bool:
    """Whether ``value`` is a workload, rather than a function."""
    return isinstance(value, tuple(_WORKLOADS.values()))


def workload_key(spec: AnyWorkload) -> str:
    """The text by which records know a workload; ``workload_of`` reads it.

    A field at its default is left out: one that a later version adds changes no key.
    """
    if isinstance(spec, FunctionWorkload):
        return spec.key
    return json.dumps(_as_dict(spec, defaults=False))


def workload_of(key: str) -> Spec:
    """The workload of a record; RecordsError: it is none of ours."""
    if is_function(key):
        raise RecordsError("tune.of_function", function=json.loads(key)["name"])
    try:
        spec: Spec = _of_dict(_WORKLOADS, json.loads(key))
    except (ValueError, LookupError, TypeError, AttributeError) as err:
        raise RecordsError("tune.workload", text=key, why=why(err)) from err
    return spec


def machine_key(target: Any) -> str:
    """The text by which records know a GPU, such as ``h100``."""
    return machine_for(target).key


@functools.cache
def versions_key() -> str:
    """The text by which records know what made a kernel: this library, TVM and nvcc."""
    try:
        compiler = nvcc.version(nvcc.find_nvcc())
    except ToolError:
        compiler = "missing"
    tvm = versions.installed("tvm")
    return f"pipeliner {versions.OWN}, tvm {tvm}, nvcc {compiler}"


def _as_dict(value: Any, *, defaults: bool = True) -> dict[str, Any]:
    """The fields that take part in a comparison, and which kind it is."""
    names = [field.name for field in fields(value) if field.compare]
    compared = (
        {name: getattr(value, name) for name in names} if defaults else dict(_differing(value))
    )
    inner = {
        name: _as_dict(part, defaults=defaults) if dataclasses.is_dataclass(part) else part
        for name, part in compared.items()
    }
    return {_KIND: type(value).__name__, **inner}


def _of_dict(kinds: dict[str, Any], data: dict[str, Any]) -> Any:
    values = {
        name: _of_dict(kinds, part) if isinstance(part, dict) else _tuples(part)
        for name, part in data.items()
        if name != _KIND
    }
    if data[_KIND] not in kinds:
        raise RecordsError("tune.kind", choices=tuple(kinds), value=data[_KIND])
    return kinds[data[_KIND]](**values)


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _differing(value: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass that are not as they are by default."""
    return [
        (field.name, getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.compare and getattr(value, field.name) != field.default
    ]
