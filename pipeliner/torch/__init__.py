"""PyTorch's linear, matmul, conv2d and attention by kernels of this library, built at first sight.

    import pipeliner.torch as pt

    y = pt.linear(x, weight, bias)         # what torch.nn.functional.linear returns
    c = pt.matmul(a, b)
    z = pt.conv2d(image, filters, padding=1)
    f = pt.fused_linear(x, weight, bias, "gelu", residual)
    o = pt.attention(q, k, v, causal=True)
    g = pt.gated(x, gate, value)           # silu(linear(x, gate)) * linear(x, value)

They are ``torch.ops.pipeliner.linear`` and so on, too, for ``torch.compile``. What no kernel is
built for is PyTorch's own, and said once; ``fallbacks()`` lists it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from ..diagnostics import Reason

if find_spec("torch") is not None:
    from .calls import attention, conv2d, fused_linear, gated, linear, matmul
    from .said import fallbacks

    __all__ = [
        "attention",
        "conv2d",
        "fallbacks",
        "fused_linear",
        "gated",
        "linear",
        "matmul",
    ]
else:
    _MISSING: Final = frozenset(
        ("attention", "conv2d", "fallbacks", "fused_linear", "gated", "linear", "matmul")
    )

    def __getattr__(name: str) -> Any:
        if name in _MISSING:
            raise ImportError(Reason("torch.missing"))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
