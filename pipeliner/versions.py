"""Which TVM is installed, and whether it can be used: found out without importing it."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .diagnostics import Reason

OWN: Final = "0.1.0"
"""The version of this package."""

TVM: Final = "0.27"
"""The TVM series whose IR and pass list this package is written for."""

REMEDY: Final = "pip install 'apache-tvm==0.27.*' 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"

_FFI_BELOW: Final = (0, 1, 15)
_FFI_FROM: Final = (0, 1, 14)


def installed(package: str) -> str | None:
    """The version that ``package`` carries in its ``_version.py``; None: it is not installed.

    Read from the source: distribution metadata may be missing, and importing TVM takes a second.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("_version.py")
    found = (
        re.search(r"""^__version__ .*['"](.+)['"]""", path.read_text(), re.M)
        if path.is_file()
        else None
    )
    return found[1] if found else "unknown"


def refusal(tvm: str | None, ffi: str | None) -> Reason | None:
    """Why this pair of versions cannot be used, in one line; None: it can.

    apache-tvm-ffi 0.1.15 with apache-tvm 0.27: every ``Schedule.tensorize`` ends in a segmentation
    fault, and 0.27 accepts any newer tvm-ffi, so that pip chooses it.
    """
    why = _refused(tvm, ffi)
    return None if why is None else Reason("versions.refused", why=why, remedy=REMEDY)


def _refused(tvm: str | None, ffi: str | None) -> Reason | None:
    if tvm is None or ffi is None:
        missing = "apache-tvm" if tvm is None else "apache-tvm-ffi"
        return Reason("versions.missing", package=missing)
    if tvm != "unknown" and not tvm.startswith(f"{TVM}."):
        return Reason("versions.tvm", tvm=tvm, expected=TVM)
    numbers = tuple(int(part) for part in re.findall(r"\d+", ffi)[:3])
    if not numbers:
        return None  # built from source: nothing is known against it
    if _FFI_FROM <= numbers < _FFI_BELOW:
        return None
    if numbers < _FFI_FROM:
        return Reason("versions.ffi_old", ffi=ffi, tvm=tvm)
    return Reason("versions.ffi_crashes", ffi=ffi, tvm=tvm)


def require() -> None:
    """Raise ImportError, in one line, where the installed pair cannot be used."""
    reason = refusal(installed("tvm"), installed("tvm_ffi"))
    if reason is not None:
        raise ImportError(reason)


def is_command() -> bool:
    """Whether this process is the ``pipeliner`` command, which reports a bad pair by itself.

    While ``python -m pipeliner`` looks for the package, ``argv[0]`` is ``-m``.
    """
    return bool(sys.argv) and Path(sys.argv[0]).stem in ("pipeliner", "-m")
