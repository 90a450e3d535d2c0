"""The shared memory of one CTA."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.dtypes import POISON_BYTE


class SharedWindow:
    """Every allocation of a CTA at its byte offset in one window."""

    def __init__(self, nbytes: int) -> None:
        # Vector views of any kind need a whole number of 16-byte rows.
        self.bytes = np.full(-(-nbytes // 16) * 16, POISON_BYTE, np.uint8)
        self.nbytes = nbytes

    def rows(self, size: int) -> np.ndarray[Any, Any]:
        """Return the bytes as rows of ``size``, at most 16 and a power of two."""
        return self.bytes.reshape(-1, size)
