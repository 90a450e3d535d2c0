"""What ``plan --why`` shows: the candidates of the choice itself, with the chosen ones marked."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

import pipeliner
from pipeliner import cli
from pipeliner.commands.kernels.why import bars
from pipeliner.commands.shared.console import JSON_VERSION
from pipeliner.errors import PlanError
from pipeliner.explain import why
from pipeliner.explain.why import SHOWN_TILES, alternatives
from pipeliner.machine import A100, H100
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, versions_key, workload_key
from pipeliner.schedules import Gemm, GemmTile, conv2d, default_tile, schedule_conv, schedule_gemm
from pipeliner.schedules.compared import SAME_TIME
from tests.refusals import refused, the

ROOT = Path(__file__).parents[1]

SMALL = ("--m", "512", "--n", "512", "--k", "512", "--target", "a100")


@pytest.fixture(autouse=True, scope="module")
def _compared_once():
    """The tiles of a workload, which seconds go to, are compared once for all tests that ask."""
    with pytest.MonkeyPatch.context() as made:
        made.setattr(why, "compare_tiles", functools.cache(why.compare_tiles))
        yield


def of_gemm(gemm, target, machine, tile=None, **options):
    made = tile or default_tile(gemm, machine)
    schedule = schedule_gemm(gemm, made)
    return made, alternatives(schedule, target, Request(**options), gemm, made)


@pytest.mark.parametrize(("target", "machine"), [("a100", A100), ("h100", H100)])
@pytest.mark.part(2)
def test_the_chosen_tile_is_the_default_one_and_among_the_fastest(target, machine):
    tile, found = of_gemm(Gemm(1024, 1024, 1024), target, machine)
    (chosen,) = [option for option in found.tiles if option.chosen]
    assert (chosen.m, chosen.n, chosen.k, chosen.ctas) == (tile.m, tile.n, tile.k, tile.persistent)
    assert chosen.us == pytest.approx(found.predicted_us, rel=0.01)
    times = [option.us for option in found.tiles]
    assert times == sorted(times)
    assert chosen.us <= times[0] * (1 + SAME_TIME)
    assert SHOWN_TILES <= len(times) <= SHOWN_TILES + 1


def test_a_tile_that_was_asked_for_is_not_said_to_win_a_tie():
    gemm = Gemm(256, 256, 64)
    _, found = of_gemm(gemm, "h100", H100, GemmTile(64, 64, 64))
    (chosen,) = [option for option in found.tiles if option.chosen]
    assert chosen.us > found.tiles[0].us
    assert not any(option.why for option in found.tiles)


def test_depths_and_candidates_mark_what_the_plan_has():
    gemm = Gemm(1024, 1024, 1024)
    schedule = schedule_gemm(gemm, default_tile(gemm, H100))
    found = alternatives(schedule, "h100", Request())
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule, "h100"))
    (depths,) = found.depths
    (depth,) = [option.depth for option in depths.depths if option.chosen]
    assert {ring.depth for ring in plan.loops[0].rings} == {depth}
    (taken,) = (option for option in found.candidates if option.chosen)
    assert taken is found.candidates[0]
    assert taken.instruction == plan.matmuls[0].instruction
    assert {taken.mechanism} == {copy.mechanism for copy in plan.copies}
    assert (taken.consumers, taken.cluster, taken.slots) == ("cooperative", 1, str(depth))
    assert taken.us == plan.predicted_us
    assert plan.ping_pong_groups == 1


@pytest.mark.parametrize(
    ("gemm", "code"),
    [(Gemm(1024, 1000, 2048), "tile.same_time"), (Gemm(64, 256, 32768), "tile.same_wave")],
    ids=str,
)
@pytest.mark.part(2)
def test_a_tile_that_is_not_the_fastest_says_by_which_tie_break_it_is_taken(gemm, code):
    _, found = of_gemm(gemm, "h100", H100)
    (chosen,) = [option for option in found.tiles if option.chosen]
    fastest = found.tiles[0]
    said = the(code, [chosen.why])
    assert (said["other"], said["us"]) == ((fastest.m, fastest.n, fastest.k), fastest.us)
    assert fastest.us < chosen.us <= fastest.us * (1 + said["percent"]) * (1 + SAME_TIME)
    assert not any(option.why for option in found.tiles if not option.chosen)


@pytest.mark.deep("the other tests here; tests/schedules/test_splits.py")
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
    assert any("tma" in option.name for option in found.candidates if option.us is None)


def test_a_given_plan_has_no_alternatives():
    gemm = Gemm(256, 256, 256)
    tile = GemmTile(64, 64, 32)
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule_gemm(gemm, tile), "a100"))
    with refused("plan.why_given", PlanError):
        of_gemm(gemm, "a100", A100, tile, plan=plan)


def test_bars_are_as_long_as_times():
    first, second = bars([("1", 20.0, False), ("2", 4.0, True)], "#")
    assert first.count("#") == 5 * second.count("#") > 20
    assert first.endswith("20.0 us")
    assert second.endswith("4.0 us <-")


def test_measured_times_are_points_in_their_lines():
    timed = [("1", 20.0, False), ("2", 4.0, True), ("3+2", 5.0, False)]
    lines = bars(timed, "#", {"2": 20.0, "3+2": 40.0}, "o")
    assert [line.count("o") for line in lines] == [0, 2, 2]
    first, second, third = (line[6:56] for line in lines)
    assert first == "#" * 25 + " " * 25
    assert second == "#" * 5 + " " * 19 + "o" + " " * 25
    assert third == "#" * 6 + " " * 43 + "o"
    assert lines[1].endswith("4.0 us <- o 20.0 us")


@pytest.fixture
def recorded(tmp_path):
    """Depths of the model's own tile, one twice; another tile; what is no measurement of these."""
    gemm, path = Gemm(512, 512, 512), tmp_path / "r.sqlite"
    tile = default_tile(gemm, A100)
    key = (workload_key(gemm), "a100", versions_key())
    with Records(path) as records:
        for depth, us in ((2, 9.0), (3, 7.5), (3, 7.0)):
            made = pipeliner.pipeline(schedule_gemm(gemm, tile), "a100", depth=depth)
            candidate = Candidate(tile, Request(depth=depth))
            values = {"samples": (us,), "plan": pipeliner.plan_of(made).to_json()}
            records.add(Record(*key, candidate.to_json(), **values))
        other = Candidate(GemmTile(64, 64, 64), Request(depth=2, instruction="simt"))
        simt = pipeliner.pipeline(schedule_gemm(gemm, tile), "a100", depth=4, instruction="simt")
        plan = pipeliner.plan_of(simt).to_json()
        alike = Candidate(tile, Request(depth=4, instruction="simt"))
        records.add(Record(*key, other.to_json(), samples=(5.5,), plan="not a plan"))
        records.add(Record(*key, alike.to_json(), samples=(1.0,), plan=plan))
        records.add(Record(*key, other.to_json(), failure="cannot measure: it hung"))
        records.add(Record(*key, "from a later version", samples=(0.1,)))
        records.add(Record(*key, contender="cuBLAS", samples=(0.2,)))
        records.add(Record(*key[:2], "another", alike.to_json(), samples=(0.3,), plan=plan))
    return path


@pytest.mark.deep("test_the_command_draws_what_records_have")
def test_what_records_have_stands_beside_what_is_predicted(recorded):
    gemm = Gemm(512, 512, 512)
    tile = default_tile(gemm, A100)
    schedule = schedule_gemm(gemm, tile)
    found = alternatives(schedule, "a100", Request(), gemm, tile, db=recorded)
    (depths,) = found.depths
    times = {option.depth: option.measured_us for option in depths.depths if option.measured_us}
    assert times == {2: 9.0, 3: 7.0}
    tiles = {option.text: option.measured_us for option in found.tiles if option.measured_us}
    chosen = next(option.text for option in found.tiles if option.chosen)
    assert tiles[chosen] == 1.0  # by whatever instruction
    assert found.measured == "6 kernels in r.sqlite"
    without = alternatives(schedule, "a100", Request(), gemm, tile)
    assert without.measured == ""
    assert not any(option.measured_us for option in without.tiles)


def test_the_command_draws_what_records_have(recorded, capsys):
    out = run(capsys, "gemm", *SMALL, "--db", str(recorded))
    assert "the fastest of each: 6 kernels in r.sqlite" in out
    assert "predicted time over depth, ● measured" in out
    assert re.search(r"\n    3 .*●.* us.* ● 7\.0 us\n", out)
    assert re.search(r"\n +2 .* 9\.0\n", out)
    data = json.loads(run(capsys, "gemm", *SMALL, "--db", str(recorded), "--json"))
    assert data["measured"] == "6 kernels in r.sqlite"
    assert data["depths"][0]["depths"][2]["measured_us"] == 7.0
    assert "measured" not in run(capsys, "gemm", *SMALL)


def run(capsys, *argv):
    code = cli.main(["plan", *argv, "--why"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("workload", [("gemm", *SMALL), ("conv2d", "--target", "a100")], ids=str)
@pytest.mark.part(2)
def test_the_command_shows_tables_and_a_drawing(capsys, workload):
    out = run(capsys, *workload)
    for part in ("depths of loop", "predicted time over depth", "candidates", "instructions,"):
        assert part in out
    assert "cp_async" in out
    assert "wgmma needs sm_90a" in out
    assert "tiles, the best of those compared" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_command_takes_a_function(capsys):
    out = run(capsys, f"{ROOT / 'examples' / 'pipeline_your_own.py'}:scheduled", "--target", "a100")
    assert "depths of loop k_0" in out
    assert "candidates with this tile" in out
    assert "instructions" not in out
    assert "tiles, the best" not in out


def test_a_loop_that_is_left_alone_has_its_reason(capsys):
    out = run(capsys, f"{ROOT / 'examples' / 'why_not.py'}:scan", "--target", "a100")
    assert "loops left alone" in out
    assert "loop-carried" in out


def test_json_has_all_of_it(capsys):
    data = json.loads(run(capsys, "gemm", *SMALL, "--json"))
    assert data["version"] == JSON_VERSION
    assert data["machine"] == "A100 SXM4"
    assert [option["depth"] for option in data["depths"][0]["depths"]][:3] == [1, 2, 3]
    assert {"compared", "spare", "asked"} == {option["tier"] for option in data["candidates"]}
    assert [option["chosen"] for option in data["candidates"]].count(True) == 1
    assert data["candidates"][0]["chosen"]
    assert [name for name, _ in data["best_tiles"]] == ["simt", "mma"]
    assert sum(option["chosen"] for option in data["tiles"]) == 1
