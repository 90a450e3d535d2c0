"""Which workload a call of attention is, by strides, and which calls are left to PyTorch."""

from __future__ import annotations

import math

import pytest

from pipeliner.errors import WorkloadError
from pipeliner.schedules.workloads import Attention, GatedGemm
from pipeliner.torch.attention import TOKENS_FIRST, attended
from pipeliner.torch.problems import Strided, gated_product
from tests.refusals import refused

HALF = "float16"


def dense(*shape: int, dtype: str = HALF) -> Strided:
    return Strided(shape, tuple(math.prod(shape[at + 1 :]) for at in range(len(shape))), dtype)


def heads(shape: tuple[int, ...], *memory: int, tokens_first: bool = False) -> Strided:
    """Heads of tokens in a tensor of the shape ``memory``, whose second axis may be the tokens."""
    b, second, third, one = dense(*memory).strides
    return Strided(
        shape, (b, third, second, one) if tokens_first else (b, second, third, one), HALF
    )


def by_tokens(shape: tuple[int, ...], *memory: int) -> Strided:
    return heads(shape, *memory, tokens_first=True)


Q, K = (2, 8, 64, 32), (2, 4, 48, 32)
PLAIN = Attention(2, 8, 64, 48, 32, kv_heads=4)


@pytest.mark.parametrize(
    ("q", "k", "v", "lying"),
    [
        (dense(*Q), dense(*K), dense(*K), ("BHSD", "BHSD", (0, 0, 0))),
        (by_tokens(Q, 2, 64, 8, 32), dense(*K), dense(*K), ("BSHD", "BHSD", (0, 0, 0))),
        (
            *(by_tokens(Q, 2, 64, 16, 32), by_tokens(K, 2, 48, 16, 32), by_tokens(K, 2, 48, 4, 32)),
            ("BSHD", "BSHD", (16, 16, 0)),
        ),
        (
            *(dense(*Q), heads(K, 2, 4, 4096, 32), heads(K, 2, 4, 100, 32)),
            ("BHSD", "BHSD", (0, 4096, 100)),
        ),
    ],
    ids=["dense", "q-by-tokens", "one-product", "cache"],
)
def test_where_tensors_lie(q: Strided, k: Strided, v: Strided, lying: tuple[object, ...]) -> None:
    found = attended(q, k, v)
    spec = found.spec
    assert isinstance(spec, Attention)
    assert (spec.layout, spec.kv_layout, spec.within) == lying
    assert (spec.heads, spec.kv_heads, spec.queries, spec.keys) == (8, 4, 64, 48)
    assert found.out == Q
    assert found.axes == (TOKENS_FIRST if lying[0] == "BSHD" else ())


def test_a_plain_one_is_plain() -> None:
    assert attended(dense(*Q), dense(*K), dense(*K)).spec == PLAIN
    assert attended(dense(*Q), dense(*K), dense(*K), scale=1 / math.sqrt(32)).spec == PLAIN
    other = attended(dense(*Q), dense(*K), dense(*K), causal=True, scale=0.5).spec
    assert other == Attention(2, 8, 64, 48, 32, kv_heads=4, causal=True, scaled=0.5)


def test_strides_of_one_element_say_nothing() -> None:
    one = Strided((1, 1, 64, 32), (7, 5, 32, 1), HALF)
    assert attended(one, one, one).spec == Attention(1, 1, 64, 64, 32)
    wide = Strided((1, 1, 64, 32), (7, 5, 96, 1), HALF)  # one head of three
    spec = attended(wide, wide, wide).spec
    assert spec == Attention(1, 1, 64, 64, 32, layout="BSHD", within=(3, 3, 3))


@pytest.mark.parametrize(
    ("q", "k", "v", "code"),
    [
        (*[dense(*Q, dtype="float32")] * 3, "torch.dtype"),
        (dense(*Q), *[dense(*Q, dtype="bfloat16")] * 2, "torch.dtype"),
        (*[dense(8, 64, 32)] * 3, "torch.axes"),
        (dense(*Q), dense(*K), dense(2, 4, 48, 16), "torch.extents"),
        (dense(*Q), *[dense(1, 4, 48, 32)] * 2, "torch.extents"),
        (dense(*Q), *[dense(2, 4, 0, 32)] * 2, "torch.empty"),
        (dense(*Q), *[dense(2, 3, 48, 32)] * 2, "attention.heads"),
        (Strided(Q, (0, 0, 32, 1), HALF), dense(*K), dense(*K), "torch.strides_of_heads"),
        (Strided(Q, (16384, 1, 256, 8), HALF), dense(*K), dense(*K), "torch.strides_of_heads"),
        (dense(*Q), by_tokens(K, 2, 48, 4, 32), dense(*K), "torch.strides_of_heads"),
        (dense(*Q), by_tokens(K, 2, 99, 4, 32), dense(*K), "torch.strides_of_heads"),
    ],
)
def test_what_is_left_to_pytorch(q: Strided, k: Strided, v: Strided, code: str) -> None:
    with refused(code, WorkloadError):
        attended(q, k, v)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_scales_that_are_left_to_pytorch(scale: float) -> None:
    with refused("attention.scale", WorkloadError):
        attended(dense(*Q), dense(*K), dense(*K), scale=scale)


def test_gated_products() -> None:
    x, by_rows = dense(3, 8, 32), Strided((32, 16), (1, 32), HALF)
    found = gated_product(x, by_rows, by_rows, "gelu")
    assert found.spec == GatedGemm(24, 16, 32, activation="gelu")
    assert found.out == (3, 8, 16)
    for gate, value in ((by_rows, dense(32, 16)), (dense(32, 16), dense(32, 8))):
        with refused("torch.gated", WorkloadError):
            gated_product(x, gate, value, "silu")
    with refused("torch.gated", WorkloadError):
        gated_product(x, *[dense(3, 32, 16)] * 2, "silu")
    with refused("epilogue.step", WorkloadError):
        gated_product(x, by_rows, by_rows, "tanh")
