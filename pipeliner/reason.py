"""Why something failed, whoever says it: TVM, torch, a driver, Python."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Final

_TELLING: Final = re.compile(
    r"error: (?!error caught from RPC)|CUDA.?error|out of memory", re.IGNORECASE
)
"""A line that names an error; behind TVM's word that one came by RPC, the next line does."""

_BUGS: Final = (AssertionError, AttributeError, LookupError, NameError, TypeError)
"""What code raises that is wrong in itself, ours or a library's; its text alone says little."""


def reason(err: Exception) -> str:
    """Why something failed, in one line: the first that names an error, or else the last.

    TVM and Python put a traceback before it; torch puts advice behind it. A bug is told with its
    type and the line that raised it.
    """
    name = type(err).__name__
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    text = (telling[:1] or lines[-1:] or [name])[0]
    if not isinstance(err, _BUGS):
        return text
    said = text if text.startswith(name) else f"{name}: {text}"
    raised = traceback.extract_tb(err.__traceback__)[-1:]
    return said + "".join(f" ({Path(at.filename).name}:{at.lineno})" for at in raised)
