"""Why something failed, whoever says it: TVM, torch, a driver, Python, or pipeliner itself."""

from __future__ import annotations

import re
import traceback
import warnings
from pathlib import Path
from typing import Final

from ..diagnostics import Reason, Why
from ..errors import BugWarning, PipelinerError

_TELLING: Final = re.compile(
    r"error: (?!error caught from RPC)|CUDA.?error|out of memory", re.IGNORECASE
)
"""A line that names an error; behind TVM's word that one came by RPC, the next line does."""

_BUGS: Final = (AssertionError, AttributeError, LookupError, NameError, TypeError)
"""What code raises that is wrong in itself, ours or a library's; its text alone says little."""


_OURS: Final = Path(__file__).parents[1]


def why(err: Exception) -> Why:
    """Why something failed: the reason of an error of ours, of any other its telling line."""
    return err.reason if isinstance(err, PipelinerError) else reason(err)


def why_called(err: Exception) -> Why:
    """Why a function of the user's failed that the caller called; a bug is told with their line."""
    trace = err.__traceback__
    return why(err if trace is None else err.with_traceback(trace.tb_next))


def reason(err: Exception) -> str:
    """Why something failed, in one line: the first that names an error, or else the last.

    TVM and Python put a traceback before it; torch puts advice behind it. A bug is told with its
    type and the line that raised it.
    """
    return _bug(err) if isinstance(err, _BUGS) else _telling(err)


def refusal(err: Exception) -> Reason:
    """Why an automatic choice goes on without what raised ``err``.

    A choice never raises, so a bug in one candidate is a refusal of it, which the plan keeps and a
    ``BugWarning`` tells.
    """
    if isinstance(err, PipelinerError):
        return err.reason
    bug = Reason("plan.bug", error=_bug(err))
    warnings.warn(str(bug), BugWarning, stacklevel=2)
    return bug


def _telling(err: Exception) -> str:
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling[:1] or lines[-1:] or [type(err).__name__])[0]


def _bug(err: Exception) -> str:
    """The error with its type and the line that raised it, of ours where one is."""
    name, text = type(err).__name__, _telling(err)
    said = text if text.startswith(name) else f"{name}: {text}"
    frames = traceback.extract_tb(err.__traceback__)
    ours = [at for at in frames if _OURS in Path(at.filename).parents]
    raised = (ours or list(frames))[-1:]
    return said + "".join(f" ({Path(at.filename).name}:{at.lineno})" for at in raised)
