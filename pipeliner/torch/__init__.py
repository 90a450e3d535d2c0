"""PyTorch's linear, matmul and conv2d by kernels of this library, built at first sight.

    import pipeliner.torch as pt

    y = pt.linear(x, weight, bias)         # what torch.nn.functional.linear returns
    c = pt.matmul(a, b)
    z = pt.conv2d(image, filters, padding=1)

They are ``torch.ops.pipeliner.linear`` and so on, too, for ``torch.compile``. What no kernel is
built for is PyTorch's own, and said once; ``fallbacks()`` lists it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from ..diagnostics import Reason

if find_spec("torch") is not None:
    from .calls import conv2d, linear, matmul
    from .said import fallbacks

    __all__ = ["conv2d", "fallbacks", "linear", "matmul"]
else:

    def __getattr__(name: str) -> Any:
        if name in ("conv2d", "fallbacks", "linear", "matmul"):
            raise ImportError(Reason("torch.missing"))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
