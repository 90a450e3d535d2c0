"""The model's choice among measured tiles: how much slower it is than the best of them.

``golden/conv_tiles_h100.csv``: medians of 15 rounds in microseconds, fp16 on mma.sync or on wgmma
that threads copy for, H100s, the L2 cache overwritten before each run; the stem in runs of four
phases. ``golden/conv_im2col_h100.csv``: the same of wgmma that pixels are copied for as boxes, most
of them in im2col mode; ``ctas``: of a persistent kernel.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from pathlib import Path

import pytest

from pipeliner.machine import H100
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, default_tile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.suites import suite
from pipeliner.space.ranking import choose

LOG = Path(__file__).parent / "golden" / "conv_tiles_h100.csv"
BOXES = Path(__file__).parent / "golden" / "conv_im2col_h100.csv"


def measured():
    """Predicted and measured time and instruction of every tile, by layer."""
    specs = suite("conv")
    found = defaultdict(list)
    with LOG.open() as rows:
        for row in csv.DictReader(rows):
            layer = row["layer"]
            runs = {"fold": True, "phases": 4} if layer == "rn50_stem" else {}
            sizes = [int(row[name]) for name in ("m", "n", "k")]
            tile = ConvTile(*sizes, splits=int(row["splits"]), **runs)
            mechanism = "cp_async" if row["instruction"] == "wgmma" else "auto"
            request = Request(instruction=row["instruction"], mechanism=mechanism)
            plan = choose(kernel_info(specs[layer], tile), H100, request)
            found[layer].append((plan.predicted_us, float(row["us"]), row["instruction"]))
    return found


def test_the_chosen_tile_is_nearly_the_fastest_measured():
    regrets = {}
    for layer, pairs in measured().items():
        _, chosen, _ = min(pairs)
        regrets[layer] = chosen / min(us for _, us, _ in pairs)
    assert len(regrets) == 11
    mean = math.exp(sum(map(math.log, regrets.values())) / len(regrets))
    assert mean < 1.02, regrets
    # unet_3x3_64: 256 x 160 and 128 x 160 are 1 % apart as predicted, and 9 % as measured.
    assert max(regrets.values()) < 1.10, regrets


def test_the_fastest_tile_is_among_the_first_three_of_most_layers():
    recalled = 0
    for pairs in measured().values():
        fastest = min(us for _, us, _ in pairs)
        recalled += any(us == fastest for _, us, _ in sorted(pairs)[:3])
    assert recalled >= 9


def test_predictions_rank_tiles_as_measurements_do():
    """Of two tiles of a layer, the one that is predicted faster is faster in most pairs."""
    agreed = total = 0
    for pairs in measured().values():
        for at, (predicted, us, _) in enumerate(pairs):
            for other_predicted, other_us, _ in pairs[at + 1 :]:
                if abs(us - other_us) > 0.03 * us:
                    total += 1
                    agreed += (predicted < other_predicted) == (us < other_us)
    assert agreed / total > 0.85


def test_where_tiles_were_measured_both_ways_wgmma_is_predicted_to_be_faster_as_it_is():
    """But for a layer that memory bounds, rn50_1x1_56: 29.8 us and 29.9, in batches apart."""
    compared = 0
    for layer, pairs in measured().items():
        chosen = min(pairs)
        if any(instruction == "wgmma" for *_, instruction in pairs):
            compared += 1
            assert chosen[2] == "wgmma" or layer == "rn50_1x1_56", layer
            fastest_mma = min(us for _, us, instruction in pairs if instruction == "mma")
            assert chosen[1] < fastest_mma * 1.03, layer
    assert compared == 10


def boxed():
    """Tiles whose pixels are boxes, with what was predicted and measured, by layer."""
    found = defaultdict(list)
    with BOXES.open() as rows:
        for row in csv.DictReader(rows):
            sizes = [int(row[name]) for name in ("m", "n", "k")]
            ctas = int(row["ctas"]) if row["ctas"] else None
            tile = ConvTile(*sizes, splits=int(row["splits"]), persistent=ctas)
            spec = suite("conv")[row["layer"]]
            request = Request(instruction="wgmma", mechanism="tma")
            plan = choose(kernel_info(spec, tile), H100, request)
            found[row["layer"]].append((plan.predicted_us, float(row["us"]), tile))
    return found


@pytest.mark.slow
@pytest.mark.deep("the other tests here")
def test_of_boxes_of_pixels_the_chosen_tile_is_as_fast_as_any_measured():
    """Of all tiles that are compared the choice is one that was timed, and within 2.1 % of best."""
    for layer, timed in boxed().items():
        tile = default_tile(suite("conv")[layer], H100)
        chosen = [us for _, us, one in timed if _shape(one) == _shape(tile)]
        assert chosen, (layer, tile)
        assert chosen[0] <= 1.021 * min(us for _, us, _ in timed), layer


def _shape(tile):
    return tile.m, tile.n, tile.k, tile.splits, tile.persistent


def test_boxes_of_pixels_are_ranked_as_measured():
    agreed = total = 0
    for timed in boxed().values():
        in_order = sorted(timed, key=lambda one: one[1])
        for (predicted, us, _), (other, longer, _) in itertools.combinations(in_order, 2):
            if longer > 1.02 * us:
                total += 1
                agreed += predicted < other
    assert total > 30
    assert agreed / total > 0.75
