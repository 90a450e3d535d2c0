"""How do I run a transformer of PyTorch?

Layers of BERT-base and a layer of Llama 3 8B (RMS norm, rotary positions, grouped queries, SwiGLU,
a cache of keys and values) with random weights, written once and run twice: by this library's ops
and by PyTorch's. Where PyTorch is missing, it says so; without a GPU every op is left to PyTorch.

    python examples/language_models.py                                 small ones, compared
    python examples/language_models.py bert --bench                    32 texts of 128 tokens
    python examples/language_models.py bert --bench --relax            by TVM's relax, too
    python examples/language_models.py llama --bench                   one text of 2048 tokens
    python examples/language_models.py llama --batch 16 --cache 4096 --bench       16 next tokens

``--cache``: tokens that the cache holds, of which the last is computed now. With ``--bench`` both
are compiled by torch.compile; ours runs in a CUDA graph, PyTorch's in every way there is;
``--kernels`` prints the kernels that take most of each one's time.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from pipeliner.bench.models import MODES, ModelBench, exactly, frozen, graphed, ways_of_torch

warnings.simplefilter("ignore")  # each reason to leave a call to PyTorch is a warning, once


@dataclass(frozen=True)
class Parts:
    """What a layer is made of: by this library, or by PyTorch."""

    linear: Callable[..., Any]
    gated: Callable[..., Any]
    attention: Callable[..., Any]


def of_pytorch() -> Parts:
    """Each part as one would write it in PyTorch: gate and value as one product."""
    from torch.nn import functional

    def linear(x: Any, w: Any, bias: Any = None, activation: str = "", residual: Any = None) -> Any:
        made = functional.linear(x, w, bias)
        made = getattr(functional, activation)(made) if activation else made
        return made if residual is None else made + residual

    def gated(x: Any, both: Any) -> Any:
        gate, value = functional.linear(x, both).chunk(2, dim=-1)
        return functional.silu(gate) * value

    def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )

    return Parts(linear, gated, attention)


def of_pipeliner() -> Parts:
    """The same by this library: what follows a product is part of its kernel."""
    import pipeliner.torch as pt

    return Parts(pt.fused_linear, lambda x, both: pt.gated(x, *both.chunk(2)), pt.attention)


def bert(parts: Parts, layers: int = 12, width: int = 768, heads: int = 12) -> Any:
    """The encoder's layers, for (batch, tokens, width)."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"qkv": (3 * width, width), "out": (width, width)}
            sizes |= {"up": (4 * width, width), "down": (width, 4 * width)}
            self.weights = nn.ParameterDict({name: matrix(*size) for name, size in sizes.items()})
            biases = {name: nn.Parameter(torch.randn(n) / 8) for name, (n, _) in sizes.items()}
            self.biases = nn.ParameterDict(biases)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

        def forward(self, x: Any) -> Any:
            w, b = self.weights, self.biases
            qkv = parts.linear(x, w["qkv"], b["qkv"]).unflatten(-1, (3 * heads, -1))
            q, k, v = qkv.transpose(1, 2).chunk(3, dim=1)
            attended = parts.attention(q, k, v, False).transpose(1, 2).flatten(2)
            x = self.norms[0](parts.linear(attended, w["out"], b["out"], residual=x))
            wide = parts.linear(x, w["up"], b["up"], "gelu")
            return self.norms[1](parts.linear(wide, w["down"], b["down"], residual=x))

    def matrix(n: int, k: int) -> Any:
        return nn.Parameter(torch.randn(n, k) / k**0.5)

    return nn.Sequential(*(Layer() for _ in range(layers))).eval()


def llama(
    parts: Parts,
    tokens: int,
    cached: int,
    batch: int,
    width: int = 4096,
    heads: tuple[int, int] = (32, 8),
    wide: int = 14336,
) -> Any:
    """One layer, for (batch, tokens, width): the last tokens of those that the cache holds."""
    import torch
    from torch import nn
    from torch.nn import functional

    (of_q, of_kv), dim = heads, width // heads[0]

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"qkv": ((of_q + 2 * of_kv) * dim, width), "out": (width, width)}
            sizes |= {"up": (2 * wide, width), "down": (width, wide)}
            made = {name: torch.randn(*size) / size[1] ** 0.5 for name, size in sizes.items()}
            self.weights = nn.ParameterDict({name: nn.Parameter(w) for name, w in made.items()})
            norms = {name: nn.Parameter(torch.rand(width) + 0.5) for name in ("first", "second")}
            self.norms = nn.ParameterDict(norms)
            for name in ("keys", "values"):
                self.register_buffer(name, torch.randn(batch, of_kv, cached, dim))
            self.register_buffer("at", torch.arange(cached - tokens, cached), persistent=False)
            angles = self.at[:, None, None] * 500000.0 ** (-torch.arange(0, dim, 2) / dim)
            self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
            self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))

        def rotated(self, x: Any) -> Any:
            first, second = x.chunk(2, dim=-1)
            return x * self.cos + torch.cat([-second, first], -1) * self.sin

        def forward(self, x: Any) -> Any:
            w = self.weights
            normed = functional.rms_norm(x, (width,), self.norms["first"])
            qkv = parts.linear(normed, w["qkv"]).unflatten(-1, (-1, dim))
            q, k, v = qkv.split((of_q, of_kv, of_kv), dim=2)
            self.keys[:, :, self.at] = self.rotated(k).transpose(1, 2)  # compiled in place
            self.values[:, :, self.at] = v.transpose(1, 2)
            rotated = self.rotated(q).transpose(1, 2)
            attended = parts.attention(rotated, self.keys, self.values, tokens == cached)
            x = parts.linear(attended.transpose(1, 2).flatten(2), w["out"], residual=x)
            normed = functional.rms_norm(x, (width,), self.norms["second"])
            return parts.linear(parts.gated(normed, w["up"]), w["down"], residual=x)

    return Layer().eval()


def by_relax(model: Any, x: Any, target: Any) -> Any:
    """BERT's layers as an executable of TVM: imported, scheduled and compiled by relax."""
    import torch
    import tvm
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.torch import from_exported_program

    import pipeliner.relax

    exact = copy.deepcopy(model).float().cpu()
    program = torch.export.export(exact, (x.float().cpu(),))
    options = {"keep_params_as_input": True, "unwrap_unit_return_tuple": True}
    mod, _ = detach_params(
        from_exported_program(program, run_ep_decomposition=False, **options)  # attention whole
    )
    values = {
        "p_" + name.replace(".", "_"): tvm.runtime.tensor(value.detach().numpy())
        for name, value in exact.named_parameters()
    }
    return pipeliner.relax.compile(mod, values, target, half_inputs=True, cuda_graph=False)


def run_by_relax(model: Any, x: Any) -> Callable[[], Any]:
    """What runs the executable of ``by_relax`` on this GPU, in a CUDA graph."""
    import torch
    import tvm
    from tvm import relax

    from pipeliner import meta

    machine = relax.VirtualMachine(by_relax(model, x, meta.target()), tvm.cuda())
    given = tvm.runtime.from_dlpack(x)
    return graphed(lambda: torch.from_dlpack(machine["main"](given)))


def bench(ours: Any, theirs: Any, x: Any, asked: argparse.Namespace, *, relax: bool) -> None:
    """Print times and errors, one after the other."""
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    ours(x)  # builds its kernels
    with frozen():
        own = graphed(partial(torch.compile(ours), x))
    timed = ModelBench(exactly(theirs, x), asked.kernels)
    if relax:
        timed.show("ours, by relax in a CUDA graph", run_by_relax(theirs, x))
    peers = ways_of_torch(theirs, x, asked.peers)
    timed.beside(own, peers, "ours, by torch.compile in a CUDA graph")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["bert", "llama"])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--cache", type=int, help="tokens of the cache, of which one is computed")
    parser.add_argument("--peers", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--kernels", action="store_true", help="with --bench, the slowest kernels")
    parser.add_argument("--relax", action="store_true", help="with --bench, BERT by relax, too")
    asked = parser.parse_args(argv)
    for name in asked.models:
        with torch.no_grad():
            compare(name, asked)


def compare(name: str, asked: argparse.Namespace) -> None:
    """Run one model by both, and print how far they are apart, or times."""
    import pipeliner.torch as pt

    device = "cuda" if torch.cuda.is_available() else "cpu"
    large = asked.bench
    batch = asked.batch or (32 if large and name == "bert" else 1)
    tokens = asked.tokens or (1 if asked.cache else 128 if name == "bert" else 2048)
    tokens = tokens if large or asked.cache else min(tokens, 64)
    sizes: dict[str, Any] = {}
    if name == "bert":
        sizes |= {} if large else {"layers": 2, "width": 256, "heads": 4}
    else:
        sizes |= {"tokens": tokens, "cached": asked.cache or tokens, "batch": batch}
        sizes |= {} if large else {"width": 256, "heads": (4, 2), "wide": 512}
    make, dtype = {"bert": (bert, torch.float16), "llama": (llama, torch.bfloat16)}[name]
    models = []
    for parts in (of_pipeliner(), of_pytorch()):
        torch.manual_seed(0)
        with torch.device(device):
            models.append(make(parts, **sizes))
    ours, theirs = models
    width = 768 if name == "bert" else 4096
    x = torch.randn(batch, tokens, width if large else 256, device=device).to(dtype)
    for model in models:
        model.to(dtype)
    exact = exactly(theirs, x)
    off = [(model(x).double() - exact).abs().max().item() for model in models]
    shape = f"{batch} x {tokens} tokens" + (f", {asked.cache} cached" if asked.cache else "")
    print(f"{name}, {shape}: error of ours {off[0]:.5f}, of PyTorch {off[1]:.5f}")
    if asked.bench:
        bench(ours, theirs, x, asked, relax=asked.relax and name == "bert")
    for reason, count in pt.fallbacks().items():
        print(f"{count} x {reason}")


if find_spec("torch") is None:
    print("left to PyTorch: nothing, PyTorch is missing")
elif __name__ == "__main__":
    import torch

    main()
