"""When a tile is copied through registers: loads steps ahead of stores, which any GPU can do.

``passes/copy/register.py`` splits the two.
"""

from __future__ import annotations

from ..diagnostics import Reason, Why
from ..plan import Mechanism
from ..values.facts import CopyInfo


def staged(copy: CopyInfo, obstacle: Why) -> tuple[Mechanism, tuple[Reason, ...]]:
    """The mechanism for a tile that cp.async cannot move, with the reason.

    A copy whose loads cannot be told from its stores stays as it is written.
    """
    if copy.no_register:
        why = Reason("mechanism.as_written", why=obstacle, register=copy.no_register)
        return "direct", (why,)
    return "register", (Reason("mechanism.staged", why=obstacle),)
