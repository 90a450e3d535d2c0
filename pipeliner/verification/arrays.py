"""The type of arguments, results and places: a numpy array of any shape and dtype."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
