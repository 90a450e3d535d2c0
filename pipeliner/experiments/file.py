"""An experiment as a TOML file: workloads times variants, on the machines it is for.

title = "..."
machines = ["h100"]                # default: any

[[workload]]
kind = "gemm"                      # gemm, conv1d, conv2d or conv3d, with its own fields
square = [1024, 4096]              # m = n = k; a list of values makes as many workloads
[[workload]]
suite = "conv"                     # gemm or conv; dtype, and only = a part of a name

[[variant]]
name = "depth {depth}"             # the options of pipeliner.pipeline by their names
depth = [2, 4]                     # a list makes as many variants
tile = { m = 128, n = 128, k = 64 }  # default: the model's choice
workload = { dtype = "bf16" }      # other fields of the workload
[[variant]]
name = "cuBLAS"
peer = "cublas"                    # or cudnn, triton
for = "gemm"                       # of this suite or kind only
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..bench.suites import suite
from ..candidate import NOTHING_ASKED, Tile
from ..errors import PipelinerError, ToolError, WorkloadError
from ..request import Request
from ..schedules import (
    ConvTile,
    DepthwiseTile,
    Gemm,
    GemmTile,
    NaiveTile,
    conv1d,
    conv2d,
    conv3d,
)
from ..schedules.workloads import Spec

SHIPPED: Final = ("ladder", "depths")
"""Experiments that come with the library, by name."""

PEERS: Final = {"cublas": "cuBLAS", "cudnn": "cuDNN", "triton": "Triton"}

_MAKERS: Final[Mapping[str, Callable[..., Spec]]] = {
    "gemm": Gemm,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv3d": conv3d,
}
_TILES: Final = {
    "gemm": GemmTile,
    "conv": ConvTile,
    "depthwise": DepthwiseTile,
    "naive": NaiveTile,
}
_OPTIONS: Final = tuple(field.name for field in dataclasses.fields(Request) if field.name != "plan")
_TOP: Final = ("title", "machines", "workload", "variant")
_VARIANT: Final = ("name", "tile", "workload", "peer", "for", *_OPTIONS)
_EXTENTS: Final = ("m", "n", "k", "batch", "c", "d", "h", "w", "r", "s", "t", "dtype", "layout")
_LISTED: Final = (
    "depth",
    "mechanism",
    "instruction",
    "cluster",
    "store",
    "roles",
    "consumers",
    "epilogue",
)


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of an experiment, by the ``label`` that it has there, of a suite or ``kind``."""

    label: str
    kind: str
    spec: Spec


@dataclass(frozen=True, slots=True)
class Variant:
    """What is done with each workload.

    ``tile``: None for the model's choice. ``changes``: fields of the workload that are otherwise.
    ``peer``: whose kernel it is, where not ours. ``only``: of this suite or kind.
    """

    name: str
    tile: Tile | None = None
    request: Request = NOTHING_ASKED
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    peer: str = ""
    only: str = ""

    def spec(self, workload: Workload) -> Spec:
        """The workload as this variant has it; of another type, with that type's own results."""
        types = {"accumulator": "", "out": ""} if "dtype" in self.changes else {}
        return dataclasses.replace(workload.spec, **types | dict(self.changes))


@dataclass(frozen=True, slots=True)
class Experiment:
    """Workloads times variants; ``machines``: keys of the GPUs that it is for, empty: any."""

    title: str
    workloads: tuple[Workload, ...]
    variants: tuple[Variant, ...]
    machines: tuple[str, ...] = ()

    def of(self, workload: Workload) -> tuple[Variant, ...]:
        """The variants of a workload."""
        return tuple(one for one in self.variants if one.only in ("", workload.kind))


def read_experiment(file: str | Path) -> Experiment:
    """The experiment in ``file``, or a shipped one by its name; WorkloadError: what is wrong."""
    path = Path(file)
    if str(file) in SHIPPED and not path.exists():
        path = Path(__file__).with_name(f"{file}.toml")
    data = _load(path)
    try:
        _check_names(data, _TOP, "the file")
        workloads = tuple(w for table in _tables(data, "workload") for w in _workloads(table))
        variants = tuple(v for table in _tables(data, "variant") for v in _variants(table))
        _check_unique("workload", [one.label for one in workloads])
        _check_unique("variant", [one.name for one in variants])
        for workload, variant in itertools.product(workloads, variants):
            if variant.only in ("", workload.kind):
                variant.spec(workload)
        machines = tuple(data.get("machines", ()))
        return Experiment(str(data.get("title", path.stem)), workloads, variants, machines)
    except (PipelinerError, TypeError, ValueError, AttributeError) as err:
        raise WorkloadError(f"cannot read experiment '{path}': {err}") from err


def _load(path: Path) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError as err:
        raise ToolError("cannot read an experiment: tomllib comes with Python 3.11") from err
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        known = ", ".join(SHIPPED)
        reason = f"{err.strerror}; shipped are {known}"
        raise WorkloadError(f"cannot read experiment '{path}': {reason}") from err
    except ValueError as err:  # TOML, or UTF-8
        raise WorkloadError(f"cannot read experiment '{path}': {err}") from err


def _tables(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    tables = data.get(name)
    if not isinstance(tables, list) or not tables:
        raise WorkloadError(f"expected at least one [[{name}]]")
    return tables


def _workloads(table: dict[str, Any]) -> Iterator[Workload]:
    if "suite" in table:
        _check_names(table, ("suite", "dtype", "only"), "a suite")
        name = str(table["suite"])
        for label, spec in suite(name, table.get("dtype", "float16")).items():
            if table.get("only", "") in label:
                yield Workload(label, name, spec)
        return
    kind = str(table.get("kind", ""))
    if kind not in _MAKERS:
        raise WorkloadError(f"expected kind of {', '.join(_MAKERS)}, or a suite, not {kind!r}")
    values = {name: value for name, value in table.items() if name not in ("kind", "square")}
    for extent in _listed(table.get("square")):
        square = {} if extent is None else dict.fromkeys("mnk", extent)
        many = {name: _listed(value) for name, value in values.items() if name in _EXTENTS}
        rest = {name: _pair(value) for name, value in values.items() if name not in _EXTENTS}
        for chosen in itertools.product(*many.values()):
            made = _MAKERS[kind](**square, **rest, **dict(zip(many, chosen)))
            family = "gemm" if kind == "gemm" else "conv"
            yield Workload(made.name if extent is None else f"{extent}^3", family, made)


def _variants(table: dict[str, Any]) -> Iterator[Variant]:
    _check_names(table, _VARIANT, "a variant")
    if "name" not in table:
        raise WorkloadError("expected each [[variant]] to have a name")
    peer = table.get("peer", "")
    if peer and peer not in PEERS:
        raise WorkloadError(f"expected peer of {', '.join(PEERS)}, not {peer!r}")
    many = {name: _listed(table[name]) for name in _LISTED if name in table}
    fixed = {name: _pair(table[name]) for name in ("warps", "thread_tile") if name in table}
    for chosen in itertools.product(*many.values()):
        made = dict(zip(many, chosen))
        yield Variant(
            str(table["name"]).format(**made),
            _tile(table["tile"]) if "tile" in table else None,
            Request(**made, **fixed),
            table.get("workload", {}),
            PEERS.get(peer, ""),
            table.get("for", ""),
        )


def _tile(table: Mapping[str, Any]) -> Tile:
    kind = table.get("kind", "gemm")
    if kind not in _TILES:
        raise WorkloadError(f"expected a tile's kind of {', '.join(_TILES)}, not {kind!r}")
    values = {name: _pair(value) for name, value in table.items() if name != "kind"}
    tile: Tile = _TILES[kind](**values)
    return tile


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_names(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:
            raise WorkloadError(f"expected {where} to have {', '.join(known)}, not '{name}'")


def _check_unique(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise WorkloadError(f"expected {what} names to differ, '{name}' is there twice")
