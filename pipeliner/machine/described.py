"""GPUs as they are described: each value beside its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from .constant import Constant, Source, derived, measured
from .file import MeasuredValue
from .values import MEASURED, Machine, MmaRate

Sourced: TypeAlias = "tuple[Any, Source]"
"""A value and where it is from."""

_SOURCES: Final[dict[str, dict[str, tuple[Source, str]]]] = {}
"""Source and date of each field, by the name of the machine."""

_RATES: Final = {"mmas": "mma.sync", "wgmmas": "wgmma"}

_DEFAULTS_DATE: Final = "2026-11-21"

UNDATED: Final = "see its conditions"
"""Date of a measurement in a machine file."""

_OF_FILE: Final = (measured("the machine file"), UNDATED)
"""Of a machine that no module describes."""


def described(
    name: str, arch: str, date: str, *, later: Mapping[str, str] | None = None, **values: Sourced
) -> Machine:
    """The machine ``name`` with these fields; ``later``: fields that changed after ``date``."""
    machine = Machine(name=name, arch=arch, **{key: value for key, (value, _) in values.items()})
    _SOURCES[name] = _dated(values, date, later or {})
    return machine


def sister(
    base: Machine,
    name: str,
    date: str,
    *,
    arch: str | None = None,
    later: Mapping[str, str] | None = None,
    **values: Sourced,
) -> Machine:
    """``base`` with another name and these fields; everything else is derived from ``base``.

    ``arch``: its architecture, where that is not the one of ``base``. ``later``: fields that
    changed after ``date``.
    """
    changed = {key: value for key, (value, _) in values.items()}
    machine = dataclasses.replace(base, name=name, arch=arch or base.arch, **changed)
    as_base = {
        key: (derived(f"as {base.name}; {source}"), date)
        for key, (source, _) in _SOURCES[base.name].items()
    }
    _SOURCES[name] = as_base | _dated(values, date, later or {})
    return machine


def _dated(
    values: Mapping[str, Sourced], date: str, later: Mapping[str, str]
) -> dict[str, tuple[Source, str]]:
    return {key: (source, later.get(key, date)) for key, (_, source) in values.items()}


def records_of(
    machine: Machine, measurements: Mapping[str, MeasuredValue] | None = None
) -> tuple[Constant, ...]:
    """Each number of ``machine`` as a record; ``measurements``: those that a machine file has.

    A default of Machine has the source that its field names.
    """
    sources = dict(_SOURCES.get(machine.name.removesuffix(MEASURED), {}))
    for name, one in (measurements or {}).items():
        sources[name] = measured(one.how), UNDATED
    found: list[Constant] = []
    for known in dataclasses.fields(Machine):
        meta, value = known.metadata, getattr(machine, known.name)
        if known.name in _RATES:
            if value:
                found += _rates(known.name, value, *sources.get(known.name, _OF_FILE))
        elif meta:
            default = (meta["source"], _DEFAULTS_DATE) if meta["source"] else _OF_FILE
            source, date = sources.get(known.name, default)
            found.append(
                Constant(
                    known.name, value, meta["unit"], meta["meaning"], meta["formula"], source, date
                )
            )
    return tuple(found)


def _rates(field: str, rates: tuple[MmaRate, ...], source: Source, date: str) -> list[Constant]:
    """Rate and latency of each tensor core instruction of ``field``."""
    found: list[Constant] = []
    for rate in rates:
        shape = "m{}n{}k{}".format(*rate.shape)
        found.append(
            Constant(
                f"{_RATES[field]} {shape} {rate.dtype}",
                rate.ops_per_cycle,
                "operations/cycle",
                f"multiplications and additions of one SM; latency {rate.latency} cycles",
                "tensor = 2 * m * n * k / ops_per_cycle",
                source,
                date,
            )
        )
    return found
