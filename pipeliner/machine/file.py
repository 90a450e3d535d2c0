"""A machine in a file: what ``pipeliner calibrate`` writes and a target may name.

JSON: ``machine`` has every field of a Machine, ``measured`` what was measured with its unit and
how, ``conditions`` under what.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..diagnostics import Reason
from ..errors import TargetError
from .values import Machine, MmaRate, capability_of

SUFFIX: Final = ".json"
"""How a name ends that is a file's and no GPU's."""

_FORMAT: Final = "pipeliner machine"
_VERSION: Final = 1
_MAY_BE_ZERO: Final = ("smem_reserved", "launch_us", "l2_bytes_per_second")
_RATES: Final = ("mmas", "wgmmas")


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """A measured value; ``how``: by what, in a few words."""

    value: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class MachineFile:
    """A machine, and the measurements that it was made from, by name."""

    machine: Machine
    measured: Mapping[str, MeasuredValue] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)


def write_machine(path: Path, made: MachineFile) -> None:
    """Write ``made``; TargetError where that is not possible."""
    data = {
        "format": _FORMAT,
        "version": _VERSION,
        "machine": dataclasses.asdict(made.machine),
        "measured": {name: dataclasses.asdict(one) for name, one in made.measured.items()},
        "conditions": dict(made.conditions),
    }
    try:
        path.write_text(json.dumps(data, indent=1) + "\n")
    except OSError as err:
        raise TargetError("machine.write", path=str(path), why=err.strerror) from err


def read_machine(path: Path) -> MachineFile:
    """What ``write_machine`` wrote; TargetError says what is wrong with the file."""
    try:
        data = json.loads(path.read_text())
    except OSError as err:
        raise TargetError("machine.read", path=str(path), why=err.strerror) from err
    except ValueError as err:
        raise TargetError("machine.read", path=str(path), why=str(err)) from err
    try:
        return _made(data)
    except KeyError as err:
        missing = Reason("machine.no_field", name=str(err.args[0]))
        raise TargetError("machine.read", path=str(path), why=missing) from err
    except TargetError as err:
        raise TargetError("machine.read", path=str(path), why=err.reason) from err
    except (TypeError, ValueError) as err:
        raise TargetError("machine.read", path=str(path), why=str(err)) from err


def _made(data: Any) -> MachineFile:
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise TargetError("machine.format", format=_FORMAT)
    if data.get("version") != _VERSION:
        raise TargetError("machine.version", expected=_VERSION, found=data.get("version"))
    values = dict(data["machine"])
    for name in _RATES:
        rates = (MmaRate(**{**rate, "shape": tuple(rate["shape"])}) for rate in values[name])
        values[name] = tuple(rates)
    filled = values["sms_in_clusters"]
    if not isinstance(filled, list) or any(type(one) is not int or one <= 0 for one in filled):
        raise TargetError("machine.positive", name="sms_in_clusters", value=repr(filled))
    values["sms_in_clusters"] = tuple(filled)
    for known in dataclasses.fields(Machine):
        _check(known, values[known.name])
    machine = Machine(**values)
    capability_of(machine.arch)
    measured = {name: MeasuredValue(**one) for name, one in data["measured"].items()}
    return MachineFile(machine, measured, dict(data["conditions"]))


def _check(known: dataclasses.Field[Any], value: Any) -> None:
    """TargetError for what the model would divide by or compare with in vain."""
    if known.type == "str" and not isinstance(value, str):
        raise TargetError("machine.text", name=known.name, value=repr(value))
    if known.type not in ("int", "float"):
        return
    if type(value) not in ((int,) if known.type == "int" else (int, float)):
        expected = str(known.type)
        raise TargetError("machine.type", name=known.name, expected=expected, value=repr(value))
    if not (value > 0 or (value == 0 and known.name in _MAY_BE_ZERO)):
        raise TargetError("machine.positive", name=known.name, value=repr(value))
