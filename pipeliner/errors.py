"""Every error that pipeliner raises on purpose.

All are one line that names the requirement and its numbers; the command prints that line and exits
with code 1. A ``PipelinerError`` is the caller's to fix, an ``InternalError`` is ours.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from .diagnostics import SENTENCES, Reason, Value


class PipelinerError(Exception):
    """Root of the errors that a caller can fix: ``PlanError("ring.unknown", buffer="A_shared")``.

    ``reason``: the code and its arguments, of which the message is the sentence. An error that
    crosses TVM's C++ comes back as its message alone, and finds its reason again by that.
    """

    def __init__(self, reason: Reason | str, /, **args: Value) -> None:
        self.reason = _reason(reason, args)
        super().__init__(str(self.reason))
        _remember(self.reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


def _reason(reason: Reason | str, args: dict[str, Value]) -> Reason:
    if isinstance(reason, Reason):
        return reason
    if args or reason in SENTENCES:
        return Reason(reason, **args)
    return _RECENT.get(reason) or Reason.text(reason)


def _remember(reason: Reason) -> None:
    with _LOCK:  # compilers of several threads fail at once
        _RECENT.pop(str(reason), None)
        _RECENT[str(reason)] = reason
        while len(_RECENT) > _KEPT:
            del _RECENT[next(iter(_RECENT))]


_KEPT: Final = 64

_LOCK: Final = threading.Lock()

_RECENT: Final[dict[str, Reason]] = {}
"""Reasons of the latest errors by their sentence, the latest last."""


class WorkloadError(PipelinerError, ValueError):
    """A workload that makes no sense: wrong dtype, layout, rank or extent."""


class PlanError(PipelinerError, ValueError):
    """A plan that is wrong in itself or does not fit its function; names the edge, ring or op."""


class ScheduleRefused(PlanError):
    """A stage/order request that would break a dependence or a resource."""


class TargetError(PipelinerError, ValueError):
    """A request that the target GPU cannot meet."""


class LoweringError(PipelinerError, RuntimeError):
    """A function that our lowering cannot translate, with the statement that stopped it."""


class ToolError(PipelinerError, RuntimeError):
    """nvcc, ptxas or a disassembler is missing or failed; carries the last lines of its output."""


class EmulatorError(PipelinerError, RuntimeError):
    """The emulator met an operation it does not know, or inputs that do not fit the kernel."""


class RecordsError(PipelinerError, ValueError):
    """A file of records that is something else, damaged, or cannot be read or written."""


class BugWarning(UserWarning):
    """A bug in pipeliner that an automatic choice went round; the plan says where it is."""


class InternalError(RuntimeError):
    """A broken invariant of ours: a bug in pipeliner, never the caller's fault."""

    def __init__(self, message: str) -> None:
        ours = "; this is a bug in pipeliner"
        # An error that crosses TVM's C++ is made again from its message.
        super().__init__(message if message.endswith(ours) else message + ours)
