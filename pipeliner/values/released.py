"""Names of the released version, 0.1, in today's words: options, plans, and what records hold.

The only place that knows them. An old name of an option keeps working, with a note; plans of
version 1 and records are translated as they are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ..diagnostics import Reason

Renamed: TypeAlias = Mapping[str, str]

OPTIONS: Final[Renamed] = {"parts": "reduction"}
"""Options of ``pipeline`` and the command, old to new."""

TILE: Final[Renamed] = {"group": "raster_group", "ctas": "persistent", "held": "stationary"}
"""Fields of a matmul's tile, old to new."""

_VALUES: Final[Mapping[str, Renamed]] = {
    "reduction": {"reduce_add": "atomic"},
    "view": {"rows": "flattened", "patch": "window"},
    "eviction": {"normal": "evict_normal", "first": "evict_first"},
    "layout": {"turned-128B": "rotated-128B"},
    "kind": {"done": "mma_wait"},
}
"""Words that the fields of these names had, old to new."""

_PLAN: Final[Mapping[str, Renamed]] = {
    "": {"channels": "mbarriers"},
    "copies": {"parts": "chunks", "shared": "multicast"},
    "matmuls": {"swapped": "swap_ab", "turned": "transposed"},
    "stores": {"adds": "partial_sums"},
    "roles": {"teams": "ping_pong_groups"},
    "mbarriers": {"releases": "arrivals"},
    "launch": {"early": "pdl", "releases": "triggers"},
    "ops": {"skips_last": "skips_k_tail"},
}
"""Fields of a plan of version 1, old to new, by the field that holds their object."""

_NAMING: Final = ("op", "ops", "src", "dst", "name", "producers", "consumers", "waits")
"""Fields that hold names of ops."""


def options(
    given: Mapping[str, Any], place: Callable[[str], tuple[str, int]] | None = None
) -> dict[str, Any]:
    """Options by today's names; FutureWarning: one has an old name.

    ``place``: file and line in which an option is written; without it the warning is for whoever
    called the function of the API that these are the options of.
    """
    found = _translated(given, OPTIONS)
    for name in sorted(given.keys() - found.keys()):
        note = Reason("request.renamed", option=name, now=OPTIONS[name])
        if place is None:
            warnings.warn(note, FutureWarning, stacklevel=4)
        else:
            warnings.warn_explicit(note, FutureWarning, *place(name))
    return found


def option(name: str, value: Any) -> Any:
    """The value of the option that is called ``name`` today."""
    return _value(_VALUES.get(name, {}), value)


def recorded_request(data: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a record by today's names."""
    return _translated(data, OPTIONS)


def recorded_tile(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a tile in a record by today's names."""
    return _translated(data, TILE)


def plan(data: Any, holder: str = "") -> Any:
    """A plan of version 1, as JSON has it, in today's names; ``holder``: the field it stands in."""
    if isinstance(data, list):
        return [plan(each, holder) for each in data]
    if isinstance(data, dict):
        fields = _translated(data, _PLAN.get(holder, {}))
        return {name: plan(value, name) for name, value in fields.items()}
    return _op(data) if isinstance(data, str) and holder in _NAMING else data


def _op(name: str) -> str:
    """The name of an op; those that wait for a matmul ended otherwise."""
    stem = name.removesuffix(".done")
    return name if stem == name else f"{stem}.mma_wait"


def _translated(data: Mapping[str, Any], names: Renamed) -> dict[str, Any]:
    found = {names.get(name, name): value for name, value in data.items()}
    return {name: _value(_VALUES.get(name, {}), value) for name, value in found.items()}


def _value(words: Renamed, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(words, each) for each in value]
    return words.get(value, value) if isinstance(value, str) else value
