"""What ``plan --why`` shows: the candidates of the choice itself, with the chosen ones marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipeliner
from pipeliner import cli
from pipeliner.commands.why import bars
from pipeliner.errors import PlanError
from pipeliner.machine import A100, H100
from pipeliner.request import Request
from pipeliner.schedules import (
    Gemm,
    GemmTile,
    conv2d,
    default_tile,
    schedule_conv,
    schedule_gemm,
)
from pipeliner.schedules.choice import SAME_TIME
from pipeliner.why import SHOWN_TILES, alternatives

ROOT = Path(__file__).parents[1]


def of_gemm(gemm, target, machine, tile=None, **options):
    made = tile or default_tile(gemm, machine)
    schedule = schedule_gemm(gemm, made)
    return made, alternatives(schedule, target, Request(**options), gemm, made)


@pytest.mark.parametrize(("target", "machine"), [("a100", A100), ("h100", H100)])
def test_the_chosen_tile_is_the_default_one_and_among_the_fastest(target, machine):
    tile, found = of_gemm(Gemm(1024, 1024, 1024), target, machine)
    (chosen,) = [option for option in found.tiles if option.chosen]
    assert (chosen.m, chosen.n, chosen.k, chosen.ctas) == (tile.m, tile.n, tile.k, tile.ctas)
    assert chosen.us == pytest.approx(found.predicted_us, rel=0.01)
    times = [option.us for option in found.tiles]
    assert times == sorted(times)
    assert chosen.us <= times[0] * (1 + SAME_TIME)
    assert SHOWN_TILES <= len(times) <= SHOWN_TILES + 1


def test_depths_instructions_and_mechanisms_mark_what_the_plan_has():
    gemm = Gemm(1024, 1024, 1024)
    tile, found = of_gemm(gemm, "h100", H100)
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule_gemm(gemm, tile), "h100"))
    (depths,) = found.depths
    (depth,) = [option.depth for option in depths.depths if option.chosen]
    assert {ring.depth for ring in plan.loops[0].rings} == {depth}
    taken = [option for option in found.instructions if option.chosen]
    assert [option.instruction for option in taken] == [plan.matmuls[0].instruction]
    ways = {option.name for option in found.mechanisms if option.chosen}
    assert ways == {copy.mechanism for copy in plan.copies}
    assert [option.name for option in found.consumers if option.chosen] == ["cooperative"]
    assert plan.teams == 1


def test_parts_of_the_reduction_are_compared():
    tile, found = of_gemm(Gemm(256, 256, 65536), "h100", H100)
    counts = [option.splits for option in found.splits]
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert tile.splits in counts
    assert min(found.splits, key=lambda option: option.us).us < found.splits[0].us / 2


def test_a_tile_that_is_no_candidate_is_shown_with_its_time():
    tile = GemmTile(32, 32, 16)
    _, found = of_gemm(Gemm(512, 512, 512), "a100", A100, tile)
    last = found.tiles[-1]
    assert last.chosen
    assert (last.text, last.us) == ("32x32x16", found.predicted_us)


def test_a_convolutions_tiles_say_how_it_is_folded():
    conv = conv2d(32, 224, 224, 3, 64, 7, 7, stride=2, pad=3)
    tile = default_tile(conv, H100)
    found = alternatives(schedule_conv(conv, tile), "h100", Request(), conv, tile)
    (chosen,) = [option for option in found.tiles if option.chosen]
    assert "runs folded" in chosen.text
    assert "tma" in [option.name for option in found.mechanisms if option.us is None]


def test_a_given_plan_has_no_alternatives():
    gemm = Gemm(256, 256, 256)
    tile = GemmTile(64, 64, 32)
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule_gemm(gemm, tile), "a100"))
    with pytest.raises(PlanError, match="a plan is given, nothing is chosen"):
        of_gemm(gemm, "a100", A100, tile, plan=plan)


def test_bars_are_as_long_as_times():
    first, second = bars([("1", 20.0, False), ("2", 4.0, True)], "#")
    assert first.count("#") == 5 * second.count("#") > 20
    assert first.endswith("20.0 us")
    assert second.endswith("4.0 us <-")


def run(capsys, *argv):
    code = cli.main(["plan", *argv, "--why"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("kind", ["gemm", "conv2d"])
def test_the_command_shows_tables_and_a_drawing(capsys, kind):
    out = run(capsys, kind, "--target", "a100")
    for part in ("depths of loop", "predicted time over depth", "instructions,", "mechanisms,"):
        assert part in out
    assert "cp_async" in out
    assert "wgmma needs sm_90a" in out
    assert "tiles, the best of those compared" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_command_takes_a_function(capsys):
    out = run(capsys, f"{ROOT / 'examples' / 'pipeline_your_own.py'}:scheduled", "--target", "a100")
    assert "depths of loop k_0" in out
    assert "mechanisms, with this tile" in out
    assert "instructions" not in out
    assert "tiles, the best" not in out


def test_a_loop_that_is_left_alone_has_its_reason(capsys):
    out = run(capsys, f"{ROOT / 'examples' / 'why_not.py'}:scan", "--target", "a100")
    assert "loops left alone" in out
    assert "loop-carried" in out


def test_json_has_all_of_it(capsys):
    data = json.loads(run(capsys, "gemm", "--m", "512", "--target", "a100", "--json"))
    assert data["version"] == 1
    assert data["machine"] == "A100 SXM4"
    assert [option["depth"] for option in data["depths"][0]["depths"]][:3] == [1, 2, 3]
    assert [option["name"] for option in data["instructions"]] == ["simt", "mma", "wgmma"]
    assert sum(option["chosen"] for option in data["tiles"]) == 1
