"""The ops without a GPU: schemas, shapes, gradients, compilation; results are PyTorch's then."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing")
pt: Any = importlib.import_module("pipeliner.torch")
said: Any = importlib.import_module("pipeliner.torch.said")
dispatch: Any = importlib.import_module("pipeliner.torch.dispatch")

pytestmark = pytest.mark.filterwarnings("ignore::pipeliner.torch.said.FallbackWarning")
F = torch.nn.functional
WINDOW = ((2, 2), (1, 2), (1, 1), 2)


def randn(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def tokens_first(batch: int, heads: int, tokens: int, dim: int) -> Any:
    """Heads as a linear layer makes them: a view of tokens of heads."""
    made = torch.randn(batch, tokens, heads, dim, dtype=torch.float64)
    return made.transpose(1, 2).requires_grad_()


def operands() -> dict[str, tuple[Any, ...]]:
    x, f = randn(2, 4, 3, 2), randn(2, 2, 3, 3)
    dy = F.conv2d(x, f, None, *WINDOW).detach().requires_grad_()
    return {
        "linear": (randn(3, 5, 8), randn(6, 8), randn(6)),
        "matmul": (randn(2, 5, 8), randn(2, 8, 3)),
        "fused_linear": (randn(3, 5, 8), randn(6, 8), randn(6), "gelu", randn(3, 5, 6)),
        "gated": (randn(3, 5, 8), randn(6, 8), randn(6, 8)),
        "attention": (tokens_first(2, 4, 5, 8), *(randn(2, 2, 7, 8) for _ in "kv"), True),
        "conv2d": (x, f, randn(2), *WINDOW),
        "conv2d_input_gradient": (dy, f, x.shape, *WINDOW),
        "conv2d_weight_gradient": (dy, x, f.shape, *WINDOW),
    }


@pytest.mark.parametrize("name", sorted(operands()))
def test_op(name: str) -> None:
    op = getattr(torch.ops.pipeliner, name).default
    results = torch.library.opcheck(op, operands()[name])
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", sorted(operands()))
def test_gradients_and_theirs(name: str) -> None:
    op, args = getattr(torch.ops.pipeliner, name).default, operands()[name]
    assert torch.autograd.gradcheck(op, args, fast_mode=True)
    if name != "attention":  # PyTorch's own has no second gradient here
        assert torch.autograd.gradgradcheck(op, args, fast_mode=True)


def test_gradients_of_other_products() -> None:
    for a, b in (((8,), (8, 3)), ((4, 8), (8,)), ((2, 5, 8), (8, 3)), ((2, 5, 8), (4, 1, 8, 3))):
        assert torch.autograd.gradcheck(pt.matmul, (randn(*a), randn(*b)), fast_mode=True)
    assert torch.autograd.gradcheck(pt.linear, (randn(8), randn(3, 8), randn(3)))


def test_attention_is_that_of_pytorch() -> None:
    q, k, v, causal = operands()["attention"]
    for scale in (None, 0.5):
        theirs = F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, enable_gqa=True
        )
        for ours in (pt.attention, torch.ops.pipeliner.attention):
            with torch.no_grad():
                out = ours(q, k, v, causal, scale)
            torch.testing.assert_close(out, theirs)
            assert out.transpose(1, 2).is_contiguous()  # as q
            assert pt.attention(k, k, v).is_contiguous()


def test_gated_products_are_two() -> None:
    x, gate, value = operands()["gated"]
    for name in ("silu", "gelu", "relu"):
        right = getattr(F, name)(F.linear(x, gate)) * F.linear(x, value)
        torch.testing.assert_close(pt.gated(x, gate, value, name), right)
        with torch.no_grad():
            torch.testing.assert_close(pt.gated(x, gate, value, activation=name), right)


def test_what_follows_a_product() -> None:
    x, w, bias, name, residual = operands()["fused_linear"]
    right = F.gelu(F.linear(x, w, bias)) + residual
    with torch.no_grad():
        torch.testing.assert_close(pt.fused_linear(x, w, bias, name, residual), right)
        torch.testing.assert_close(
            pt.fused_linear(x, w, residual=residual), F.linear(x, w) + residual
        )
        assert torch.equal(pt.fused_linear(x, w), F.linear(x, w))


@pytest.mark.parametrize("last", [False, True])
def test_images_keep_their_format(last: bool) -> None:
    x, f, bias = randn(2, 4, 6, 5), randn(6, 2, 3, 3), randn(6)
    if last:
        x = x.to(memory_format=torch.channels_last)
    out, theirs = pt.conv2d(x, f, bias, *WINDOW), F.conv2d(x, f, bias, *WINDOW)
    assert torch.equal(out, theirs)
    assert out.stride() == theirs.stride()


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_paddings_by_name() -> None:
    x, f = randn(1, 2, 7, 8), randn(3, 2, 3, 4)
    for padding in ("same", "valid"):  # one extent is odd and one is even
        assert torch.equal(pt.conv2d(x, f, padding=padding), F.conv2d(x, f, padding=padding))
    assert torch.equal(pt.conv2d(x[0], f, padding=(1, 2)), F.conv2d(x[0], f, padding=(1, 2)))


def test_compiled() -> None:
    """By AOTAutograd, which traces gradients too; code is not generated."""
    x, w, bias = operands()["linear"]
    compiled = torch.compile(
        lambda *args: pt.linear(*args).relu(), backend="aot_eager", fullgraph=True
    )
    got, right = compiled(x, w, bias), F.linear(x, w, bias).relu()
    assert torch.equal(got, right)
    grads = torch.autograd.grad(got.sum(), (x, w, bias))
    for ours, theirs in zip(grads, torch.autograd.grad(right.sum(), (x, w, bias))):
        torch.testing.assert_close(ours, theirs)


def test_gradients_without_a_bias() -> None:
    x, w, _ = operands()["linear"]
    for call in (pt.linear, torch.ops.pipeliner.linear):
        assert torch.autograd.gradcheck(call, (x, w), fast_mode=True)


def test_calls_behind_a_graph_break() -> None:
    """The ops' own code is not traced: it would be, where a compiler cannot make one graph."""
    x, w, _ = operands()["linear"]

    def broken(x: Any, w: Any) -> Any:
        torch._dynamo.graph_break()
        return pt.linear(x, w).relu()

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(broken, backend="aot_eager")
    assert torch.equal(compiled(x, w), F.linear(x, w).relu())
    assert torch._dynamo.utils.counters["graph_break"].total() == 1


def test_autocast() -> None:
    x, w = torch.randn(4, 8), torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert pt.linear(x, w).dtype == torch.bfloat16
        assert pt.matmul(x, w.t()).dtype == torch.bfloat16
    assert pt.linear(x, w).dtype == torch.float32


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, by torch itself
def test_forward_mode_is_pytorchs() -> None:
    x, w, tangent = torch.randn(4, 8), torch.randn(3, 8), torch.randn(4, 8)
    ad = torch.autograd.forward_ad
    with ad.dual_level():
        out = pt.linear(ad.make_dual(x, tangent), w)
        assert torch.allclose(ad.unpack_dual(out).tangent, tangent @ w.t())


def test_negated_views_are_read_as_what_they_say() -> None:
    view = torch.randn(4, 4, dtype=torch.complex64).conj().imag
    assert view.is_neg()
    assert torch.equal(pt.matmul(view, view), torch.matmul(view, view))


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("said_anew")
def test_what_is_done_for_a_gradient_is_said() -> None:
    with pytest.warns(said.FallbackWarning, match="attention is left to PyTorch: a gradient"):
        pt.attention(*operands()["attention"])
    with pytest.warns(said.FallbackWarning, match="gated is not fused"):
        pt.gated(*operands()["gated"])


@pytest.fixture
def said_anew() -> Iterator[None]:
    said.forget()
    dispatch.forget()
    yield
    said.forget()


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("said_anew")
def test_what_is_left_to_pytorch_is_said_once() -> None:
    x = torch.randn(4, 4)
    with pytest.warns(said.FallbackWarning, match="matmul is left to PyTorch: .* cpu"):
        pt.matmul(x, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pt.matmul(x, x)
        pt.matmul(x[:2], x)
    with pytest.warns(said.FallbackWarning, match="linear is left to PyTorch"):
        pt.linear(x, x)
    assert sorted(pt.fallbacks().values()) == [1, 2]
