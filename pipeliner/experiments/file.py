"""An experiment as a TOML file: workloads times variants, on the machines it is for.

``pipeliner experiment --help`` prints a file with every kind of key; the README explains each.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..bench.results import CUBLAS, CUDNN, TORCH, TRITON
from ..diagnostics import Reason
from ..errors import PipelinerError, ToolError, WorkloadError
from ..machine import key_of
from ..plan.request import Request
from ..records.candidate import NOTHING_ASKED
from ..records.functions import AnyWorkload, FunctionWorkload
from ..schedules import (
    Attention,
    AttentionTile,
    BackToBackGemm,
    Conv,
    ConvTile,
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
    conv1d,
    conv2d,
    conv3d,
)
from ..schedules.suites import NAMES, suite
from ..schedules.tiles import Tile
from ..schedules.workloads import Spec
from ..values.failure import why
from ..values.released import options as todays
from ..values.released import recorded_tile
from .functions import FUNCTION, is_named, named_functions

SHIPPED: Final = ("ladder", "depths", "attention")
"""Experiments that come with the library, by name."""

KINDS: Final = (
    "gemm",
    "gated",
    "conv",
    "attention",
    "rows",
    "scaled",
    "grouped",
    "packed",
    "back_to_back",
    FUNCTION,
)
"""Of workloads: GEMMs, gated ones, all that is a convolution, attention, GEMMs with statistics
of rows, block-scaled ones, grouped ones, those of packed weights, two back to back, functions of
one's own."""

PEERS: Final = {"cublas": CUBLAS, "cudnn": CUDNN, "triton": TRITON, "torch": TORCH}

_MAKERS: Final[Mapping[str, Callable[..., Spec]]] = {
    "gemm": Gemm,
    "gated": GatedGemm,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv3d": conv3d,
    "attention": Attention,
    "rows": RowGemm,
    "scaled": ScaledGemm,
    "back_to_back": BackToBackGemm,
    "grouped": GroupedGemm,
    "packed": PackedGemm,
}
_TILES: Final = {
    "gemm": GemmTile,
    "conv": ConvTile,
    "depthwise": DepthwiseTile,
    "groups": GroupTile,
    "naive": NaiveTile,
    "attention": AttentionTile,
    "rows": RowTile,
}
_OPTIONS: Final = tuple(field.name for field in dataclasses.fields(Request) if field.name != "plan")
_TOP: Final = ("title", "machines", "workload", "variant")
_VARIANT: Final = ("name", "tile", "workload", "peer", "for", *_OPTIONS)
_EXTENTS: Final = (
    *("experts", "m", "n", "k", "batch", "c", "d", "h", "w", "r", "s", "t", "dtype", "layout"),
    *("heads", "kv_heads", "queries", "keys", "dim", "causal", "statistic"),
)
_CONV_OPTIONS: Final = tuple(
    field.name for field in dataclasses.fields(Conv) if field.default is not dataclasses.MISSING
)
_PAIRS: Final = ("warps", "thread_tile")
_LISTED: Final = tuple(name for name in _OPTIONS if name not in _PAIRS)
"""Options of which a list makes many variants; of a pair it is the value."""


@dataclass(frozen=True, slots=True)
class LabelledWorkload:
    """A workload of an experiment, by the ``label`` that it has there.

    ``kind``: ``gemm``, ``gated``, ``conv``, ``attention`` or ``function``.
    """

    label: str
    kind: str
    spec: AnyWorkload


@dataclass(frozen=True, slots=True)
class Variant:
    """What is done with each workload.

    ``tile``: None for the model's choice. ``changes``: fields of the workload that are otherwise.
    ``peer``: whose kernel it is, where not ours. ``only``: of this kind.
    """

    name: str
    tile: Tile | None = None
    request: Request = NOTHING_ASKED
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    peer: str = ""
    only: str = ""

    def spec(self, workload: LabelledWorkload) -> AnyWorkload:
        """The workload as this variant has it; of another type, with that type's own results."""
        if isinstance(workload.spec, FunctionWorkload):
            if self.changes or self.tile is not None or self.peer:
                raise WorkloadError("experiment.of_function", name=self.name, label=workload.label)
            return workload.spec
        known = tuple(field.name for field in dataclasses.fields(workload.spec))
        _check_names(self.changes, known, f"workload of variant '{self.name}'")
        types = {name: "" for name in ("accumulator", "out") if "dtype" in self.changes}
        types = {name: value for name, value in types.items() if name in known}
        return dataclasses.replace(workload.spec, **types | dict(self.changes))


@dataclass(frozen=True, slots=True)
class Experiment:
    """Workloads times variants; ``machines``: keys of the GPUs that it is for, empty: any."""

    title: str
    workloads: tuple[LabelledWorkload, ...]
    variants: tuple[Variant, ...]
    machines: tuple[str, ...] = ()

    def of(self, workload: LabelledWorkload) -> tuple[Variant, ...]:
        """The variants of a workload."""
        return tuple(one for one in self.variants if one.only in ("", workload.kind))


def read_experiment(file: str | Path) -> Experiment:
    """The experiment in ``file``, or a shipped one by its name; WorkloadError: what is wrong."""
    path = Path(file)
    if str(file) in SHIPPED and not path.exists():
        path = Path(__file__).with_name(f"{file}.toml")
    text, data = _read(path)

    def place(variant: int) -> Callable[[str], tuple[str, int]]:
        return lambda option: (str(path), _line_of(option, variant, text))

    try:
        _check_names(data, _TOP, "the file")
        workloads = tuple(
            one for table in _tables(data, "workload") for one in _workloads(table, path.parent)
        )
        tables = enumerate(_tables(data, "variant"))
        variants = tuple(v for at, table in tables for v in _variants(table, place(at)))
        _check_unique("workload", [one.label for one in workloads])
        _check_unique("variant", [one.name for one in variants])
        for workload, variant in itertools.product(workloads, variants):
            if variant.only in ("", workload.kind):
                variant.spec(workload)
        title = _text("title", data.get("title", path.stem))
        made = Experiment(title, workloads, variants, _machines(data.get("machines", [])))
        if not any(made.of(workload) for workload in workloads):
            raise WorkloadError("experiment.no_variant")
        return made
    except (PipelinerError, TypeError, ValueError, AttributeError) as err:
        raise WorkloadError("experiment.read", path=str(path), why=why(err)) from err


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a file, and the tables in it."""
    try:
        import tomllib
    except ImportError as err:
        raise ToolError("experiment.tomllib") from err
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as err:
        missing = Reason("experiment.missing", why=err.strerror, shipped=tuple(SHIPPED))
        raise WorkloadError("experiment.read", path=str(path), why=missing) from err
    except ValueError as err:
        raise WorkloadError("experiment.read", path=str(path), why=str(err)) from err


def _line_of(option: str, variant: int, text: str) -> int:
    """The line of the file on which that variant, counted from 0, gives ``option``."""
    key = re.compile(rf"""\s*["']?{re.escape(option)}["']?\s*=""")
    seen = -1
    for number, line in enumerate(text.splitlines(), 1):
        seen += line.strip().startswith("[[variant]]")
        if seen == variant and key.match(line):
            return number
    return 1  # the table is written in another way, such as inline


def _tables(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    tables = data.get(name)
    if not isinstance(tables, list) or not tables:
        raise WorkloadError("experiment.no_table", name=name)
    return tables


def _workloads(table: dict[str, Any], folder: Path) -> Iterator[LabelledWorkload]:
    if is_named(table.get("kind")):
        many = {name: _listed(name, value) for name, value in table.items() if name != "kind"}
        for label, made in named_functions(table["kind"], many, folder):
            yield LabelledWorkload(label, FUNCTION, made)
        return
    yield from _of_suite(table) if "suite" in table else _of_kind(table)


def _of_suite(table: dict[str, Any]) -> Iterator[LabelledWorkload]:
    _check_names(table, ("suite", "dtype", "only"), "a suite")
    name, only = _one_of("suite", table["suite"], NAMES), str(table.get("only", ""))
    found = suite(name, _text("dtype", table.get("dtype", "float16")))
    labels = [label for label in found if only in label]
    if not labels:
        raise WorkloadError("experiment.only", names=tuple(found), value=only)
    yield from (LabelledWorkload(label, _family(found[label]), found[label]) for label in labels)


def _of_kind(table: dict[str, Any]) -> Iterator[LabelledWorkload]:
    kind = table.get("kind", "")
    if kind not in tuple(_MAKERS):
        raise WorkloadError(
            "experiment.kind", choices=(*_MAKERS, "file.py:function"), value=repr(kind)
        )
    values = {name: value for name, value in table.items() if name not in ("kind", "square")}
    if "square" in table and (kind not in ("gemm", "gated") or not values.keys().isdisjoint("mnk")):
        raise WorkloadError("experiment.square")
    many = {name: _listed(name, value) for name, value in values.items() if name in _EXTENTS}
    rest = {name: _pair(value) for name, value in values.items() if name not in _EXTENTS}
    for extent in _listed("square", table.get("square")):
        square = {} if extent is None else dict.fromkeys("mnk", extent)
        for chosen in itertools.product(*many.values()):
            made = _made(_MAKERS[kind], {**square, **rest, **dict(zip(many, chosen))}, kind)
            told = [
                value if isinstance(value, str) else f"{name} {value}"
                for name, value in zip(many, chosen)
                if len(many[name]) > 1
            ]
            named = [*(["gated"] if kind == "gated" else []), f"{extent}^3", *told]
            label = made.name if extent is None else " ".join(named)
            yield LabelledWorkload(label, _family(made), made)


def _family(spec: Spec) -> str:
    if isinstance(spec, Attention):
        return "attention"
    if isinstance(spec, RowGemm):
        return "rows"
    if isinstance(spec, ScaledGemm):
        return "scaled"
    if isinstance(spec, BackToBackGemm):
        return "back_to_back"
    if isinstance(spec, GroupedGemm):
        return "grouped"
    if isinstance(spec, PackedGemm):
        return "packed"
    if isinstance(spec, GatedGemm):
        return "gated"
    return "gemm" if isinstance(spec, Gemm) else "conv"


def _variants(table: dict[str, Any], place: Callable[[str], tuple[str, int]]) -> Iterator[Variant]:
    table = todays(table, place)
    _check_names(table, _VARIANT, "a variant")
    if "name" not in table:
        raise WorkloadError("experiment.unnamed")
    name = _text("name", table["name"])
    peer = _one_of("peer", table["peer"], PEERS) if "peer" in table else ""
    only = _one_of("for", table["for"], KINDS) if "for" in table else ""
    changes = {key: _pair(value) for key, value in _table(table, "workload").items()}
    tile = _tile(_table(table, "tile")) if "tile" in table else None
    many = {key: _listed(key, table[key]) for key in _LISTED if key in table}
    fixed: dict[str, Any] = {key: _pair(table[key]) for key in _PAIRS if key in table}
    if peer and (many or fixed or tile):
        raise WorkloadError("experiment.peer_options", name=name, peer=PEERS[peer])
    for chosen in itertools.product(*many.values()):
        made = {**dict(zip(many, chosen)), **fixed}
        told = _named(name, made)
        yield Variant(told, tile, Request(**made), changes, PEERS.get(peer, ""), only)


def _tile(table: Mapping[str, Any]) -> Tile:
    kind = _one_of("a tile's kind", table.get("kind", "gemm"), _TILES)
    named = recorded_tile(table)
    values = {name: _pair(value) for name, value in named.items() if name != "kind"}
    tile: Tile = _made(_TILES[kind], values, f"a tile of {kind}")
    return tile


def _made(make: Callable[..., Any], values: Mapping[str, Any], what: str) -> Any:
    """``make(**values)``; WorkloadError names what is missing, or what there is not."""
    known = inspect.signature(make).parameters
    named = [name for name, one in known.items() if one.kind != one.VAR_KEYWORD]
    needed = [name for name in named if known[name].default is inspect.Parameter.empty]
    if missing := [name for name in needed if name not in values]:
        raise WorkloadError("experiment.fields", what=what, names=tuple(missing))
    others = _CONV_OPTIONS if len(named) < len(known) else ()
    _check_names(values, (*named, *others), what)
    return make(**values)


def _named(name: str, options: Mapping[str, Any]) -> str:
    """``name`` with the values of the options that are in braces in it."""
    try:
        return name.format(**options)
    except (LookupError, ValueError, AttributeError) as err:
        raise WorkloadError("experiment.braces", name=name) from err


def _machines(value: Any) -> tuple[str, ...]:
    """Keys of GPUs, by which records know them; other names may be those of machine files."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise WorkloadError("experiment.machines", value=repr(value))
    return tuple(map(key_of, value))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise WorkloadError("experiment.text", name=name, value=repr(value))
    return value


def _one_of(what: str, value: Any, known: Iterable[str]) -> str:
    choices = tuple(known)
    if value not in choices:
        raise WorkloadError("experiment.choice", what=what, choices=choices, value=repr(value))
    return str(value)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise WorkloadError("experiment.table", name=name, value=repr(found))
    return found


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(name: str, value: Any) -> list[Any]:
    if value == []:
        raise WorkloadError("experiment.empty", name=name)
    return value if isinstance(value, list) else [value]


def _check_names(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:
            raise WorkloadError("experiment.unknown_field", what=where, known=known, name=name)


def _check_unique(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise WorkloadError("experiment.twice", what=what, name=name)
