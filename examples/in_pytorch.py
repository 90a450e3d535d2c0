"""How do I use it in PyTorch, where shapes are known only when a model runs?

Calls take PyTorch's tensors and return them. Without a GPU, or without PyTorch, it says so.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

warnings.simplefilter("ignore")  # each reason to leave a call to PyTorch is a warning, once


def steps(torch: Any, pt: Any, device: str) -> None:
    x = torch.randn(8, 128, 256, device=device, dtype=torch.bfloat16)
    layer = torch.nn.Linear(256, 512, device=device, dtype=torch.bfloat16)

    y = pt.linear(x, layer.weight, layer.bias)  # the first call of a shape builds its kernel
    y.sum().backward()  # gradients are products of these ops, too
    print("gradient of the weights:", tuple(layer.weight.grad.shape))

    compiled = torch.compile(lambda x: pt.linear(x, layer.weight).relu(), backend="aot_eager")
    print("compiled:", tuple(compiled(x).shape))

    for reason, count in pt.fallbacks().items():
        print(f"{count} x {reason}")


if find_spec("torch") is None:
    print("left to PyTorch: nothing, PyTorch is missing")
else:
    import torch

    import pipeliner.torch as pt

    steps(torch, pt, "cuda" if torch.cuda.is_available() else "cpu")
    print("left to PyTorch:", len(pt.fallbacks()))
