"""When a tile is copied through registers: loads steps ahead of stores, which any GPU can do.

``passes/copy/register.py`` splits the two.
"""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason, Why
from ..plan import Mechanism
from ..plan.kinds import CopyMechanism
from ..values.facts import CopyInfo

REGISTER: Final = CopyMechanism("register", "loads", through_registers=True)
DIRECT: Final = CopyMechanism("direct", "loads", blocks=True)
"""As the function has it: loads and stores of one op."""


def staged(copy: CopyInfo, obstacle: Why) -> tuple[Mechanism, tuple[Reason, ...]]:
    """The mechanism for a tile that cp.async cannot move, with the reason.

    A copy whose loads cannot be told from its stores stays as it is written.
    """
    if copy.no_register:
        why = Reason("mechanism.as_written", why=obstacle, register=copy.no_register)
        return "direct", (why,)
    return "register", (Reason("mechanism.staged", why=obstacle),)
