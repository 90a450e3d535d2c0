"""The shared memory of one CTA."""

from __future__ import annotations

import numpy as np

from ..base.dtypes import POISON_BYTE


class SharedWindow:
    """Every allocation of a CTA at its byte offset in one window."""

    def __init__(self, nbytes: int) -> None:
        # Vector views of any kind need a whole number of 16-byte rows.
        self.bytes = np.full(-(-nbytes // 16) * 16, POISON_BYTE, np.uint8)
        self.nbytes = nbytes
