"""pipeliner.torch on a GPU: right against float64, forward and backward, compiled and captured."""

from __future__ import annotations

import importlib
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing")
pt: Any = importlib.import_module("pipeliner.torch")
dispatch: Any = importlib.import_module("pipeliner.torch.dispatch")
libraries: Any = importlib.import_module("pipeliner.torch.libraries")
said: Any = importlib.import_module("pipeliner.torch.said")

# PyTorch warns where a thread of its autograd is the first to call cuBLAS.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]

SEED = random.SystemRandom().randrange(1 << 30)
HALVES = [torch.float16, torch.bfloat16]
F = torch.nn.functional


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder: Path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("PIPELINER_CACHE", str(folder))
        libraries.kernel_cache.cache_clear()
        yield folder
    libraries.kernel_cache.cache_clear()


@pytest.fixture(autouse=True)
def said_anew() -> None:
    said.forget()


def extents(seed: int, count: int, step: int = 8) -> list[int]:
    print(f"seed {seed}")
    numbers = random.Random(seed)
    return [step * numbers.randrange(2, 60) for _ in range(count)]


def randn(*shape: int, dtype: Any, last: bool = False) -> Any:
    made = torch.randn(shape, device="cuda").to(dtype)
    if last:
        made = made.to(memory_format=torch.channels_last)
    return made.requires_grad_()


def agrees(ours: Callable[..., Any], theirs: Callable[..., Any], *operands: Any) -> None:
    """That result and gradients are as near to those of float64 as PyTorch's own are."""

    def everything(f: Callable[..., Any], kind: Any) -> list[Any]:
        given = [one.detach().to(kind or one.dtype).requires_grad_() for one in operands]
        out = f(*given)
        torch.manual_seed(1)
        weights = torch.randn(out.shape, device="cuda").to(operands[0].dtype).to(out.dtype)
        out.backward(weights)
        return [out.detach(), *(one.grad for one in given)]

    exact = everything(theirs, torch.float64)
    own = everything(ours, None)
    for name, a, b, c in zip(
        ("out", "first", "second", "third"), own, everything(theirs, None), exact
    ):
        error, usual = (float((one.double() - c).abs().max()) for one in (a, b))
        scale = float(c.abs().max())
        unit = torch.finfo(operands[0].dtype).eps
        assert error <= 2 * usual + 4 * unit * scale * 0.25, (name, error, usual, scale)


def nothing_left() -> None:
    assert pt.fallbacks() == {}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_linear(dtype: Any, bias: bool) -> None:
    b, s, n, k = extents(SEED, 4)
    x, w = randn(b // 8, s, k, dtype=dtype), randn(n, k, dtype=dtype)
    more = (randn(n, dtype=dtype),) if bias else ()
    agrees(pt.linear, F.linear, x, w, *more)
    nothing_left()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_matmul(dtype: Any) -> None:
    m, n, k = extents(SEED + 1, 3)
    agrees(pt.matmul, torch.matmul, randn(m, k, dtype=dtype), randn(k, n, dtype=dtype))
    agrees(lambda a, b: pt.matmul(a.t(), b.t()), lambda a, b: a.t() @ b.t(),
           randn(k, m, dtype=dtype), randn(n, k, dtype=dtype))  # fmt: skip
    agrees(pt.matmul, torch.matmul, randn(3, m, k, dtype=dtype), randn(3, k, n, dtype=dtype))
    nothing_left()


def test_odd_extents() -> None:
    m, n, k = (one + 3 for one in extents(SEED + 2, 3))
    agrees(pt.linear, F.linear, randn(m, k, dtype=torch.float16), randn(n, k, dtype=torch.float16))
    nothing_left()


def test_long_reductions_have_workspaces() -> None:
    a, b = randn(64, 16384, dtype=torch.float16), randn(16384, 128, dtype=torch.float16)
    agrees(pt.matmul, torch.matmul, a, b)
    nothing_left()


@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((2, 32, 14, 14, 48, 3), {"padding": 1}),
        ((2, 16, 15, 13, 32, 3), {"stride": 2, "padding": 1}),
        ((1, 64, 9, 9, 64, 1), {}),
        ((2, 32, 12, 12, 32, 3), {"padding": 1, "groups": 2}),
    ],
)
def test_conv2d(size: tuple[int, ...], window: dict[str, int]) -> None:
    n, c, h, w, k, r = size
    x = randn(n, c, h, w, dtype=torch.float16, last=True)
    f = randn(k, c // window.get("groups", 1), r, r, dtype=torch.float16, last=True)
    bias = randn(k, dtype=torch.float16)
    agrees(lambda *a: pt.conv2d(*a, **window), lambda *a: F.conv2d(*a, **window), x, f, bias)
    nothing_left()


def exactly(q: Any, k: Any, v: Any, **how: Any) -> Any:
    """Attention in float64."""
    return F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), enable_gqa=True, **how)


def attends(q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None) -> None:
    """That attention is about as near to float64 as PyTorch's own is, and left to no one."""
    exact = exactly(q, k, v, is_causal=causal, scale=scale)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)
    ours = pt.attention(q, k, v, causal=causal, scale=scale)
    error, usual = (float((x.double() - exact).abs().max()) for x in (ours, theirs))
    assert ours.dtype == q.dtype
    assert error <= 2 * usual + torch.finfo(q.dtype).eps * float(exact.abs().max()), (error, usual)
    nothing_left()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(dtype: Any, causal: bool) -> None:
    queries, keys = (one // 2 for one in extents(SEED + 3, 2, 16))
    made = torch.randn(2, queries, 12, 64, device="cuda").to(dtype)
    q, k, v = (x.transpose(1, 2) for x in made.split((8, 2, 2), dim=2))  # one product's heads
    attends(q, k, v, causal=causal)
    cache = torch.randn(2, 2, 2, keys + 40, 128, device="cuda").to(dtype)
    cache[..., keys:, :] = torch.nan  # what nobody has written yet
    k, v = cache[:, :, :, :keys]
    q = torch.randn(2, 8, queries, 128, device="cuda").to(dtype)
    attends(q, k, v, causal=causal, scale=0.05)


def test_attention_of_one_tile_of_many_heads() -> None:
    q, k, v = torch.randn(3, 8, 12, 128, 64, device="cuda", dtype=torch.float16)
    attends(q, k, v)


@pytest.mark.parametrize("queries", [1, 3])
def test_attention_of_few_queries(queries: int) -> None:
    k, v = torch.randn(2, 2, 2, 3000, 128, device="cuda").bfloat16()[:, :, :, : 2000 + SEED % 900]
    q = torch.randn(2, queries, 8, 128, device="cuda").bfloat16().transpose(1, 2)
    attends(q, k, v)


@pytest.mark.filterwarnings("default")  # inductor's own
def test_compiled_and_captured_attention() -> None:
    wide = torch.randn(3 * 512, 512, device="cuda", dtype=torch.bfloat16) / 16
    x = torch.randn(2, 192, 512, device="cuda", dtype=torch.bfloat16)

    def layer(x: Any, attention: Callable[..., Any]) -> Any:
        q, k, v = F.linear(x, wide).view(2, 192, 24, 64).transpose(1, 2).chunk(3, dim=1)
        return attention(q, k, v).transpose(1, 2).reshape(2, 192, 512).relu()

    compiled = torch.compile(lambda x: layer(x, pt.attention), fullgraph=True)
    right = layer(x, F.scaled_dot_product_attention)
    torch.testing.assert_close(compiled(x), right, rtol=2e-2, atol=2e-2)
    layer(x, pt.attention)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(x, pt.attention)
    for _ in range(2):
        x.copy_(torch.randn_like(x))
        graph.replay()
        right = layer(x, F.scaled_dot_product_attention)
        torch.testing.assert_close(out, right, rtol=2e-2, atol=2e-2)
    nothing_left()


@pytest.mark.parametrize("activation", ["", "gelu"])
def test_what_follows_a_product(activation: str) -> None:
    m, n, k = extents(SEED + 5, 3)
    x, w, bias, more = (
        torch.randn(*one, device="cuda").bfloat16() for one in ((m, k), (n, k), (n,), (m, n))
    )

    def parts(x: Any, w: Any, bias: Any, more: Any) -> Any:
        made = F.linear(x, w, bias)
        return (F.gelu(made) if activation else made) + more

    exact = parts(*(one.double() for one in (x, w, bias, more)))
    ours, theirs = pt.fused_linear(x, w, bias, activation, more), parts(x, w, bias, more)
    error, usual = (float((one.double() - exact).abs().max()) for one in (ours, theirs))
    assert error <= 1.5 * usual
    nothing_left()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
def test_gated(dtype: Any, activation: str) -> None:
    m, n, k = extents(SEED + 4, 3)
    x, gate, value = (
        torch.randn(*one, device="cuda").to(dtype) for one in ((m, k), (n, k), (n, k))
    )

    def two(x: Any, gate: Any, value: Any) -> Any:
        return getattr(F, activation)(F.linear(x, gate)) * F.linear(x, value)

    exact = two(*(one.double() for one in (x, gate, value)))
    ours, theirs = pt.gated(x, gate, value, activation), two(x, gate, value)
    error, usual = (float((one.double() - exact).abs().max()) for one in (ours, theirs))
    assert error <= 2 * usual
    nothing_left()
    with pytest.warns(said.FallbackWarning, match="is not fused"):
        agrees(pt.gated, lambda *a: F.silu(F.linear(*a[:2])) * F.linear(*a[::2]),
               *(one.requires_grad_() for one in (x, gate, value)))  # fmt: skip


def test_float32_is_tf32_only_where_it_may_be() -> None:
    a, b = torch.randn(256, 512, device="cuda"), torch.randn(512, 128, device="cuda")
    exact = a.double() @ b.double()
    errors = []
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            errors.append(float((pt.matmul(a, b).double() - exact).abs().max()))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert errors[0] < 1e-3 < errors[1]
    nothing_left()


def test_what_is_refused_is_pytorchs_and_said() -> None:
    x = torch.randn(64, 64, device="cuda", dtype=torch.float16)
    odd = torch.randn(64 * 64 + 1, device="cuda", dtype=torch.float16)[1:].view(64, 64)
    cases: dict[str, tuple[Any, ...]] = {
        "float64": (x.double(), x.double()),
        "strides": (x[:, :32], x[:32]),
        "elements": (x[:0], x),
        "begin": (odd, x),
    }
    for word, operands in cases.items():
        said.forget()
        with pytest.warns(said.FallbackWarning, match=word):
            out = pt.matmul(*operands)
        assert torch.equal(out, torch.matmul(*operands))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pt.matmul(*operands)


def test_images_in_pytorchs_own_layout() -> None:
    x = torch.randn(2, 16, 8, 8, device="cuda", dtype=torch.float16)
    f = torch.randn(8, 16, 3, 3, device="cuda", dtype=torch.float16)
    with pytest.warns(said.FallbackWarning, match="channels_last"):
        out = pt.conv2d(x, f, padding=1)
    assert out.is_contiguous()
    assert torch.equal(out, F.conv2d(x, f, padding=1))


@pytest.mark.filterwarnings("default")  # inductor's own
def test_compiled() -> None:
    x, w = randn(96, 128, dtype=torch.bfloat16), randn(64, 128, dtype=torch.bfloat16)

    def ours(x: Any, w: Any) -> Any:
        return F.relu(pt.linear(x, w)) * 2

    compiled = torch.compile(ours, fullgraph=True)
    agrees(compiled, lambda x, w: F.relu(F.linear(x, w)) * 2, x, w)
    nothing_left()


def test_captured() -> None:
    a = torch.randn(8192, 64, device="cuda", dtype=torch.float16)
    b = torch.randn(8192, 96, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    fresh = torch.randn(72, 8192, device="cuda", dtype=torch.float16)
    pt.matmul(a.t(), b)
    torch.matmul(fresh, b)  # of whose library no handle is made while a graph is captured
    with torch.cuda.graph(graph):
        out = pt.matmul(a.t(), b)
        with pytest.warns(said.FallbackWarning, match="captured"):
            other = pt.matmul(fresh, b)
    for _ in range(3):
        a.copy_(torch.randn_like(a))
        out.zero_()
        graph.replay()
        torch.testing.assert_close(out, a.t() @ b, rtol=2e-3, atol=0.25)
        torch.testing.assert_close(other, fresh @ b, rtol=2e-3, atol=0.25)


def test_streams() -> None:
    """A call waits for what its own stream has to do, and for nothing else."""
    a = torch.zeros(512, 512, device="cuda", dtype=torch.float16)
    b = torch.eye(512, device="cuda", dtype=torch.float16)
    pt.matmul(a, b)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.fill_(3)
        out = pt.matmul(a, b)
    stream.synchronize()
    assert float(out.min()) == 3


def test_autocast() -> None:
    x, w = randn(64, 128, dtype=torch.float32), randn(32, 128, dtype=torch.float32)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        ours, theirs = pt.linear(x, w), F.linear(x, w)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-1)
    nothing_left()


def test_kernels_come_from_disk(cache: Path) -> None:
    a = torch.randn(200, 136, device="cuda", dtype=torch.float16)
    first = pt.matmul(a, a.t())
    kept = dict(dispatch._KERNELS), dict(dispatch._ENTRIES)
    dispatch._KERNELS.clear()
    dispatch._ENTRIES.clear()
    again = pt.matmul(a, a.t())
    assert set(dispatch.kernels().values()) == {"disk"}
    assert torch.equal(first, again)
    dispatch._KERNELS.update(kept[0])
    dispatch._ENTRIES.update(kept[1])
