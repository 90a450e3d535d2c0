"""Attention by PyTorch's scaled_dot_product_attention, each of its backends by itself."""

from __future__ import annotations

from typing import Any, Final

from ..measuring import Runner
from ..schedules import Attention

SDPA_BACKENDS: Final = {"cuDNN": "cudnn", "flash": "flash", "memory-efficient": "mem_efficient"}
"""What tables call each backend, and what PyTorch's switches do; all of them are fused."""

_SWITCHES: Final = (*SDPA_BACKENDS.values(), "math")


def sdpa(spec: Attention, backend: str) -> Runner:
    """The same attention by one of ``SDPA_BACKENDS``, as ``run(q, k, v, out)`` on torch tensors.

    torch makes the output, which is returned; it raises where that backend has no such attention.
    """
    import torch

    asked = SDPA_BACKENDS[backend]
    switches = [getattr(torch.backends.cuda, f"enable_{name}_sdp") for name in _SWITCHES]
    grouped = {} if spec.group == 1 else {"enable_gqa": True}

    def run(q: Any, k: Any, v: Any, out: Any) -> Any:
        for name, switch in zip(_SWITCHES, switches):
            switch(name == asked)
        operands = [spec.by_heads(which, one) for which, one in enumerate((q, k, v))]
        made = torch.nn.functional.scaled_dot_product_attention(
            *operands, is_causal=spec.causal, scale=spec.scaled, **grouped
        )
        return made if spec.layout == "BHSD" else made.swapaxes(1, 2)

    return run
