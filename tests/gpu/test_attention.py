"""Attention on a GPU: against float64 and PyTorch's, and the same bits as in the emulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.machine import machine_for
from pipeliner.measuring.truth import Truth, attended
from pipeliner.schedules import Attention, AttentionTile, default_tile, schedule_attention
from pipeliner.targets import cuda_target
from pipeliner.verification.accuracy import poisoned, worst_error

from .sanitizer import assert_accepted

pytestmark = pytest.mark.gpu

CASES = {
    "even": (Attention(1, 2, 256, 384, 64), AttentionTile(64, 64)),
    "ragged": (Attention(2, 3, 200, 333, 64), AttentionTile(64, 64)),
    "wide": (Attention(1, 2, 300, 500, 128), AttentionTile(128, 96)),
    "widest": (Attention(1, 2, 300, 260, 256), AttentionTile(128, 64)),
    "odd-columns": (Attention(1, 2, 130, 150, 72), AttentionTile(64, 64)),
    "grouped": (Attention(2, 8, 129, 257, 64, kv_heads=2), AttentionTile(64, 80)),
    "one-query": (Attention(2, 4, 1, 1000, 128, kv_heads=1), AttentionTile(64, 128)),
    "few-queries": (
        Attention(2, 12, 3, 1100, 128, kv_heads=3),
        AttentionTile(64, 64, splits=5, grouped=True),
    ),
    "empty-split": (Attention(1, 2, 16, 250, 64), AttentionTile(64, 64, splits=3)),
    "splits of many queries": (Attention(1, 4, 600, 250, 64), AttentionTile(64, 64, splits=2)),
    "splits of a prime": (Attention(1, 1, 2411, 250, 64), AttentionTile(64, 64, splits=2)),
    "one-key": (Attention(1, 2, 70, 1, 64), AttentionTile(64, 64)),
}


def check(attention: Attention, tile: AttentionTile, **options: Any) -> None:
    kernel = pipeliner.build(schedule_attention(attention, tile), **options)
    inputs = attention.inputs(seed=2)
    out = poisoned(attention.shapes()[-1], attention.out)
    kernel(*inputs, out)
    exact, magnitude = attention.reference(*inputs), attention.magnitude(*inputs)
    assert worst_error(attention, out, exact, magnitude) <= 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_right_to_rounding(case: str, causal: bool, dtype: str) -> None:
    attention, tile = CASES[case]
    if causal:
        tile = AttentionTile(tile.m, tile.n)
    check(replace(attention, causal=causal, dtype=dtype), tile)


@pytest.mark.parametrize("instruction", ["mma", "auto"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_depth(depth: int, instruction: Any) -> None:
    attention = Attention(1, 2, 150, 700, 64, causal=True)
    check(attention, AttentionTile(64, 64), depth=depth, instruction=instruction)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_the_tile_that_is_chosen(dim: int, causal: bool) -> None:
    torch = pytest.importorskip("torch")
    attention = Attention(2, 8, 1024, 1100, dim, kv_heads=4, causal=causal, dtype="bfloat16")
    target = cuda_target(None)
    tile = default_tile(attention, machine_for(target))
    kernel = pipeliner.build(schedule_attention(attention, tile), target)
    *shapes, shape = attention.shapes()
    torch.manual_seed(0)
    q, k, v = (torch.randn(one, device="cuda").to(torch.bfloat16) for one in shapes)
    out = torch.full(shape, torch.nan, device="cuda", dtype=torch.bfloat16)
    kernel(q, k, v, out)
    right = Truth(attention, *attended(torch, attention, q, k, v))
    assert right.error(out) <= 1
    theirs = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=True
    )
    assert (out.double() - theirs.double()).abs().max() < 0.05


@pytest.mark.parametrize("queries", [1, 4, 16])
@pytest.mark.parametrize("keys", [1, 1000, 16384, 20001])
def test_few_queries_of_many_keys(queries: int, keys: int) -> None:
    attention = Attention(2, 16, queries, keys, 128, kv_heads=4, dtype="bfloat16")
    check(attention, default_tile(attention, machine_for(cuda_target(None))))


def test_keys_that_no_query_sees_change_nothing() -> None:
    """Their scores are by far the largest, in a tile that is computed and in one that is not."""
    attention = Attention(1, 2, 100, 200, 64, causal=True)
    q, k, v = attention.inputs(seed=5)
    kernel = pipeliner.build(schedule_attention(attention, AttentionTile(64, 64)))
    outs = []
    for hidden in (0.0, 3.0e4):
        for x in (k, v):
            x[:, :, 100:] = hidden
        out = poisoned(attention.shapes()[-1], attention.out)
        kernel(q, k, v, out)
        outs.append(out)
    np.testing.assert_array_equal(outs[0].view("uint16"), outs[1].view("uint16"))
    assert np.isfinite(outs[0].astype("f4")).all()


UNDER_THE_SANITIZER = """
from tests.gpu.test_attention import CASES, check
for case in ("empty-split", "splits of many queries", "splits of a prime"):
    check(*CASES[case])
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_objects_to_nothing(tool: str) -> None:
    assert_accepted(tool, "-c", UNDER_THE_SANITIZER)
