"""Attention: what it computes, what it is called, and a schedule that pipelines nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm

from pipeliner.errors import WorkloadError
from pipeliner.schedules import Attention, AttentionTile, schedule_attention
from pipeliner.schedules.workloads import numpy_dtype
from pipeliner.verification.accuracy import ROUNDOFF
from tests.refusals import refused

from .test_gemm import on_cpu

RAGGED = Attention(1, 2, 70, 45, 16)

CASES = {
    "even": (Attention(1, 1, 64, 64, 64), AttentionTile(64, 32)),
    "ragged": (RAGGED, AttentionTile(64, 32)),
    "causal": (Attention(1, 2, 70, 45, 16, causal=True), AttentionTile(32, 16)),
    "causal-fewer-keys-than-a-tile": (
        Attention(1, 1, 70, 9, 16, causal=True),
        AttentionTile(16, 32),
    ),
    "causal-more-keys": (Attention(2, 1, 20, 70, 16, causal=True), AttentionTile(16, 16)),
    "grouped": (Attention(2, 6, 33, 20, 24, kv_heads=2, dtype="bf16"), AttentionTile(32, 16)),
    "by-tokens": (
        Attention(2, 4, 33, 20, 16, kv_heads=2, layout="BSHD", within=(9, 3, 0), scaled=0.5),
        AttentionTile(32, 16),
    ),
    "of-one-product": (
        Attention(2, 4, 20, 33, 16, 2, layout="BSHD", within=(9, 9, 8), first=(0, 4, 6)),
        AttentionTile(32, 16),
    ),
    "of-a-cache": (
        Attention(1, 2, 20, 33, 16, layout="BSHD", kv_layout="BHSD", within=(0, 40, 64)),
        AttentionTile(16, 16),
    ),
    "one-key": (Attention(1, 1, 5, 1, 8), AttentionTile(16, 16)),
    "split": (Attention(2, 6, 1, 70, 24, kv_heads=3), AttentionTile(16, 16, 3)),
    "split-in-unlike-parts": (
        Attention(2, 6, 3, 70, 16, kv_heads=2, dtype="bf16"),
        AttentionTile(8, 16, 2, True),
    ),
    "split, several queries combined together": (
        Attention(2, 32, 33, 20, 16),
        AttentionTile(16, 16, 2),
    ),
    "grouped-heads": (Attention(2, 4, 1, 40, 16, kv_heads=2), AttentionTile(16, 16, 1, True)),
    "one-query": (Attention(1, 4, 1, 50, 64, kv_heads=1, dtype="bf16"), AttentionTile(16, 32)),
}


def off(attention: Attention, got: Any, inputs: Any) -> float:
    """The largest error, over what rounding of the weights and of the output allows."""
    exact = attention.reference(*inputs)
    rounding = ROUNDOFF[attention.storage]
    bounds = 2 * rounding * abs(exact) + 6 * rounding * attention.magnitude(*inputs)
    return float((abs(got.astype("f8") - exact) / bounds).max())


def run(attention: Attention, function: Any, inputs: Any) -> Any:
    shape = attention.shapes()[-1]
    out = tvm.runtime.tensor(np.full(shape, np.nan, numpy_dtype(attention.out)))
    function(*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


def by_hand(attention: Attention, q: Any, k: Any, v: Any) -> Any:
    """Each output, from its definition, by the sums of Python."""
    found = np.empty(attention.shapes()[-1])
    group = attention.heads // (attention.kv_heads or attention.heads)
    for b, h, i in np.ndindex(found.shape[:3]):
        keys = [j for j in range(attention.keys) if j <= i or not attention.causal]
        scores = [
            math.fsum(float(x) * float(y) for x, y in zip(q[b, h, i], k[b, h // group, j]))
            for j in keys
        ]
        weights = [math.exp(score / math.sqrt(attention.dim)) for score in scores]
        for d in range(attention.dim):
            values = [float(v[b, h // group, j, d]) for j in keys]
            total = math.fsum(weight * value for weight, value in zip(weights, values))
            found[b, h, i, d] = total / math.fsum(weights)
    return found


@pytest.mark.parametrize(
    "attention",
    [
        Attention(2, 4, 5, 7, 3, kv_heads=2),
        Attention(1, 2, 7, 4, 5, causal=True),
        Attention(1, 3, 4, 6, 5, kv_heads=1, causal=True, dtype="bf16"),
    ],
    ids=lambda one: one.name,
)
def test_the_reference_is_the_definition(attention: Attention) -> None:
    inputs = attention.inputs(seed=1)
    assert attention.reference(*inputs) == pytest.approx(by_hand(attention, *inputs))


def test_the_reference_reads_tensors_as_they_lie() -> None:
    plain = Attention(2, 4, 5, 7, 3, kv_heads=2, causal=True)
    q, k, v = plain.inputs()
    of_cache = np.full((2, 2, 11, 3), np.nan, k.dtype)
    of_cache[:, :, :7] = k
    of_product = np.full((2, 5, 8, 3), np.nan, q.dtype)
    of_product[:, :, 3:7] = q.swapaxes(1, 2)
    lying = Attention(
        *(2, 4, 5, 7, 3, 2, True, "float16", "BSHD", "BHSD"),
        within=(8, 11, 7),
        first=(3, 0, 0),
        scaled=3**-0.5,
    )
    assert lying.shapes() == ((2, 5, 8, 3), (2, 2, 11, 3), (2, 2, 7, 3), (2, 5, 4, 3))
    assert (lying.within, lying.scaled) == ((8, 11, 0), None)
    for find in ("reference", "magnitude"):
        right = getattr(plain, find)(q, k, v)
        assert getattr(lying, find)(of_product, of_cache, v).swapaxes(1, 2) == pytest.approx(right)


def test_the_reference_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for causal in (False, True):
        attention = Attention(2, 4, 7, 5, 8, kv_heads=2, causal=causal)
        inputs = attention.inputs()
        wide = [torch.from_numpy(x).double() for x in inputs]
        made = torch.nn.functional.scaled_dot_product_attention(
            *wide, is_causal=causal, enable_gqa=True
        )
        assert attention.reference(*inputs) == pytest.approx(made.numpy())


@pytest.mark.part(3)
@pytest.mark.parametrize("case", CASES)
def test_tiles_compute_what_they_should(case: str) -> None:
    attention, tile = CASES[case]
    inputs = attention.inputs(seed=3)
    tiled = on_cpu(schedule_attention(attention, tile).mod["main"])
    assert off(attention, run(attention, tiled, inputs), inputs) <= 1


@pytest.mark.parametrize("case", ["causal", "grouped"])
def test_the_plain_function_computes_it_too(case: str) -> None:
    attention, _ = CASES[case]
    inputs = attention.inputs(seed=4)
    plain = tvm.compile(attention.function(), target="llvm")
    assert off(attention, run(attention, plain, inputs), inputs) <= 1


def test_a_key_too_many_or_too_few_is_beyond_the_bound() -> None:
    q, k, v = RAGGED.inputs()
    fewer = Attention(1, 2, 70, 44, 16).reference(q, k[:, :, :-1], v[:, :, :-1])
    assert off(RAGGED, fewer, (q, k, v)) > 10
    padded = [np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0))) for x in (k, v)]
    assert off(RAGGED, Attention(1, 2, 70, 46, 16).reference(q, *padded), (q, k, v)) > 10
    seen = Attention(1, 2, 70, 45, 16, causal=True).reference(q, k, v)
    assert off(RAGGED, seen, (q, k, v)) > 10


def test_large_scores_neither_overflow_nor_lose_their_row() -> None:
    q, k, v = (x * np.float16(40) for x in RAGGED.inputs())
    tiled = on_cpu(schedule_attention(RAGGED, AttentionTile(32, 16)).mod["main"])
    got, exact = run(RAGGED, tiled, (q, k, v)), RAGGED.reference(q, k, v)
    assert np.isfinite(got).all()
    assert got.astype("f8") == pytest.approx(exact, rel=1e-2, abs=1e-1)


def text(attention: Attention, tile: AttentionTile) -> str:
    return str(schedule_attention(attention, tile).mod["main"].script())


def test_masks_and_guards_are_written_where_they_are_needed() -> None:
    even = text(Attention(1, 1, 64, 64, 16), AttentionTile(32, 32))
    assert not any(word in even for word in ("if_then_else", "T.where", "inf"))
    keys = text(Attention(1, 1, 64, 45, 16), AttentionTile(32, 32))
    assert keys.count('T.float32("-inf")') == 1
    assert keys.count("T.if_then_else(step * 32 + j < 45") == 3  # K, V and the scores
    rows = text(Attention(1, 1, 70, 64, 16), AttentionTile(32, 32))
    assert rows.count("x * 32 + i < 70") == 2  # Q and the output
    assert "inf" not in rows
    columns = text(Attention(1, 1, 64, 64, 24), AttentionTile(32, 32))
    assert columns.count("d < 24") == 4
    assert "(32, 32)" in columns


def test_a_causal_tile_stops_where_its_last_query_does() -> None:
    attention = Attention(1, 1, 4096, 4096, 64, causal=True)
    assert "for step in range(64 - x * 2)" in text(attention, AttentionTile(128, 64))
    assert "for step in range(64)" in text(Attention(1, 1, 4096, 4096, 64), AttentionTile(128, 64))


def test_heads_share_keys_and_values() -> None:
    shared = text(Attention(2, 8, 64, 64, 16, kv_heads=2), AttentionTile(64, 64))
    assert "K[b, h // 4, step * 64 + j, d]" in shared
    assert "Q[b, h, x * 64 + i, d]" in shared


def test_attention_says_what_it_is() -> None:
    attention = Attention(2, 16, 4096, 512, 128, kv_heads=4, causal=True, dtype="bf16")
    assert attention.name == "attention_b2_h16_4_4096x512x128_bfloat16_causal"
    assert attention.title == "bfloat16 attention 2 x 16/4 x 4096 x 512 x 128, causal"
    assert attention.shapes() == (
        (2, 16, 4096, 128),
        (2, 4, 512, 128),
        (2, 4, 512, 128),
        (2, 16, 4096, 128),
    )
    assert attention.flops() == 2 * 2 * 16 * 4096 * 512 * 128
    whole = Attention(2, 16, 4096, 512, 128)
    assert whole.flops() == 2 * attention.flops()
    assert whole == Attention(2, 16, 4096, 512, 128, kv_heads=16, dtype="fp16")
    assert whole.name == "attention_b2_h16_4096x512x128_float16"
    lying = Attention(1, 4, 8, 8, 16, layout="BSHD", within=(12, 12, 12), scaled=0.1)
    assert lying.name == "attention_b1_h4_8x8x16_float16_bshd_in_12_12_12_by_0p1"
    assert lying.title == "float16 attention 1 x 4 x 8 x 8 x 16, BSHD, in 12 12 12, scaled by 0.1"


def test_what_attention_is_not() -> None:
    with refused("workload.extent", WorkloadError, name="keys", least=1):
        Attention(1, 1, 16, 0, 16)
    with refused("attention.heads", WorkloadError, heads=8, kv_heads=3):
        Attention(1, 8, 16, 16, 16, kv_heads=3)
    with refused("workload.layout", WorkloadError, value="SBHD"):
        Attention(1, 1, 16, 16, 16, kv_layout="SBHD")
    with refused("workload.extent", WorkloadError, name="within", least=16):
        Attention(1, 1, 16, 16, 16, within=(0, 15, 0))
    for layout, first in (("BSHD", 18), ("BHSD", 1), ("BSHD", -1)):
        with refused("attention.first", WorkloadError, value=first):
            Attention(1, 1, 16, 16, 16, layout=layout, within=(18, 18, 18), first=(0, first, 0))
    with refused("attention.scale", WorkloadError, value=-0.5):
        Attention(1, 1, 16, 16, 16, scaled=-0.5)
    with refused("attention.dtype", WorkloadError, value="float32"):
        Attention(1, 1, 16, 16, 16, dtype="fp32")
    with refused("tile.least", WorkloadError, name="n", value=0):
        AttentionTile(64, 0)
    with refused("tile.batch_axes", WorkloadError, count=65536):
        schedule_attention(Attention(65536, 1, 1, 1, 16), AttentionTile(16, 16))
