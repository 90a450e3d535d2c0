"""Timelines as text, SVG, Chrome trace and JSON, and the command that makes them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeliner import cli
from pipeliner.commands.shared import console
from pipeliner.machine import A100
from pipeliner.plan import EdgePlan, KernelPlan, LoopPlan, OpPlan, RingPlan, SyncPlan
from pipeliner.timeline import chrome, svg, text, timeline_of
from pipeliner.timeline.bars import bars_of
from pipeliner.timeline.rows import nice_step, shortened
from pipeliner.timeline.terminal import ASCII, draw, plain
from pipeliner.values.op import Op
from tests.refusals import told

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def loop(depth: int) -> LoopPlan:
    """A copy of 300 cycles, a load of fragments and a matrix operation of 180 that uses them."""
    ahead = min(depth - 1, 2)
    ops = (
        OpPlan(Op("S"), "copy", "S", "l2", 300, 60, stage=0, order=int(depth > 1)),
        OpPlan(Op.parse("S.wait"), "wait", "S", "sync", 1, 1, stage=ahead, order=int(depth == 1)),
        OpPlan(Op.parse("P.k0.a"), "load", "P", "lsu", 50, 20, stage=ahead, order=2),
        OpPlan(Op.parse("P.k0"), "mma", "P", "tensor", 180, 180, stage=ahead, order=3),
    )
    edges = (
        EdgePlan("S", "P.k0.a", "RAW", "S", 0),
        EdgePlan("P.k0.a", "P.k0", "RAW", "F", 0),
        EdgePlan("S", "S.wait", "RAW", "S", 0, "cp_async"),
        EdgePlan("S.wait", "P.k0.a", "RAW", "S", 0),
    )
    rings = (
        RingPlan("S", "shared", depth, 4096, ("S",), ("P.k0.a",)),
        RingPlan("F", "local", 1, 16, ("P.k0.a",), ("P.k0",)),
    )
    return LoopPlan(
        "k", "32", True, ops, edges, rings, ii=180 if ahead else 530, epilogue="clamped"
    )


def kernel(depth: int) -> KernelPlan:
    sync = SyncPlan(4, 1 if depth > 1 else 2)
    return KernelPlan("toy", "sm_80", "A100 SXM4", 128, (loop(depth),), sync=sync)


@pytest.fixture(scope="module")
def drawn():
    return timeline_of(kernel(3), kernel(1), A100, iterations=4)


GOLDEN = """\
timeline of toy: loop k, 4 of 32 iterations
model time: the plan's latencies and rates for A100 SXM4, in cycles of one CTA
  alone on its SM; nothing is measured

pipelined: 3 stages, 3 slots, 1 250 cycles drawn
cycles        ┬0                ┬500              ┬1 000             ┬1 500
part          |prologue───|steady─────|epilogue──────────────
l2     S      0011╌╌╌╌╌╌╌22╌╌33╌╌╌╌╌╌***╌╌╌╌╌╌**╌╌╌╌╌╌╌╌╌╌···
lsu    P.k0.a ············0╌······1╌╌······2╌······3╌╌·······
tensor P.k0   ··············0000000·1111111·22222222·3333333·
stalled       ··wwwwwwwwwbllbsssssslbbsssssllbsssssslwwww····
S[0]          0░░░░░░░░░░▒█··3░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒█·········
S[1]          ··1░░░░░░░░░░▒▒▒▒▒▒▒█···4░░░░░░░░░░············
S[2]          ···········2░░░░░░░░░░▒▒▒▒▒▒▒█··5░░░░░░░░░░····
  steady iteration: 230 cycles (II of the plan: 180); tensor busy for 180 (78%),
    exposed 50
  issue stalled by: slot in use F 149, load in flight P.k0.a 50, barrier 30,
    other 1

un-pipelined: 1 stage, 1 slot, 1 790 cycles drawn
cycles        ┬0                ┬500              ┬1 000             ┬1 500
part          |steady state─────────────────────────────────────────────────────
l2     S      00╌╌╌╌╌╌╌╌╌╌···11╌╌╌╌╌╌╌╌╌╌···22╌╌╌╌╌╌╌╌╌╌···333╌╌╌╌╌╌╌╌╌·········
lsu    P.k0.a ············0╌·············1╌╌············2╌╌············3╌╌······
tensor P.k0   ··············0000000········1111111········2222222········3333333
stalled       wwwwwwwwwwwbllbwwwwwwwwwwwbllbwwwwwwwwwwwbllbwwwwwwwwwwwbbl·······
S[0]          0░░░░░░░░░░▒█··1░░░░░░░░░░▒█··2░░░░░░░░░░▒█··3░░░░░░░░░░▒█········
  steady iteration: 410 cycles; tensor busy for 180 (44%), exposed 230
  issue stalled by: copy in flight S 300, barrier 60, load in flight P.k0.a 50

all 32 iterations: 7 690 cycles pipelined, 13 270 un-pipelined: 1.73 times as
  fast
  ops: the digit is the iteration (mod 10), ╌ its result is under way, * past
    the end, overrunning
  slots: · empty, ░ filling, ▒ ready, █ read; the digit is the iteration
  stalled: w copy in flight, l load in flight, s slot in use, b barrier; a
    column is 27.1 cycles
"""


def test_the_drawing_in_the_terminal(drawn):
    assert plain(draw(drawn, 80)) + "\n" == GOLDEN


@pytest.mark.parametrize("width", [1, 60, 79, 132, 400])
def test_no_line_is_wider_than_the_terminal(drawn, width):
    for each in (False, True):
        lines = plain(draw(drawn, width, each=each)).splitlines()
        assert max(map(len, lines)) <= max(width, 46)


def test_a_row_for_every_op_and_fragment(drawn):
    lines = text(drawn, 100, each=True).splitlines()
    names = [line.split()[:2] for line in lines]
    for row in (["l2", "S"], ["lsu", "P.k0.a"], ["tensor", "P.k0"]):
        assert names.count(row) == 2
    assert sum(line.startswith("F[0] ") for line in lines) == 2


def test_plain_terminals_get_plain_characters(drawn):
    drawing = plain(draw(drawn, 100, glyphs=ASCII))
    assert drawing.isascii()
    assert len(drawing.splitlines()) == len(text(drawn, 100).splitlines())


# SVG.


def test_svg_is_self_contained_xml(drawn):
    root = ElementTree.fromstring(svg(drawn))
    assert root.tag == f"{SVG}svg"
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {width:.0f} {height:.0f}"
    assert not [value for e in root.iter() for value in e.attrib.values() if "://" in value]
    patterns = {f"url(#{e.get('id')})" for e in root.iter(f"{SVG}pattern")}
    used = {e.get("fill") for e in root.iter(f"{SVG}rect") if "url" in (e.get("fill") or "")}
    assert used
    assert used <= patterns
    for box in root.findall(f"{SVG}rect[@x]"):
        assert 0 <= float(box.get("x")) <= float(box.get("x")) + float(box.get("width")) <= width
        assert 0 <= float(box.get("y")) <= float(box.get("y")) + float(box.get("height")) <= height


def test_svg_has_every_event_to_scale(drawn):
    """The bars' notes name their cycles: all starts are there, and further right where later."""
    left = {}
    for box in ElementTree.fromstring(svg(drawn)).iter(f"{SVG}rect"):
        note = box.findtext(f"{SVG}title", "")
        found = re.match(r"\S+, iteration \d+, .* from (\d+) to (\d+), ", note)
        if found and box.get("height") == "16.0":
            left[int(found[1])] = float(box.get("x"))
    events = [e for run in drawn.runs for e in run.trace.events if e.kind != "wait"]
    assert set(left) == {event.start for event in events}
    assert all(a[1] < b[1] for a, b in pairwise(sorted(left.items())))


def test_svg_names_parts_slots_and_totals(drawn):
    root = ElementTree.fromstring(svg(drawn))
    words = [e.text for e in root.iter(f"{SVG}text")]
    assert {"prologue", "steady state", "epilogue", "stalled", "S[0]", "S[2]"} <= set(words)
    assert any("all 32 iterations: 7 690 cycles pipelined, 13 270 un-pipelined" in w for w in words)
    assert any("nothing is measured" in w for w in words)


def test_svg_escapes_names():
    plans = (kernel(3), kernel(1))
    odd = [KernelPlan('a<b>&"c"', p.target, p.machine, 32, p.loops, sync=p.sync) for p in plans]
    root = ElementTree.fromstring(svg(timeline_of(*odd, A100)))
    assert root.find(f"{SVG}title").text.startswith('a<b>&"c": loop k')


# The Chrome trace.


def test_chrome_trace_has_what_the_format_requires(drawn):
    """Trace Event Format: X has name, ts, dur, pid, tid; M has a known name and args; tracks nest."""
    trace = json.loads(chrome(drawn))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert {event["ph"] for event in trace["traceEvents"]} == {"X", "M"}
    tracks = {}
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid", "args"} <= set(event)
        if event["ph"] == "M":
            kind = re.fullmatch(r"(process|thread)_(name|sort_index)", event["name"])
            assert list(event["args"]) == [kind[2]]
            continue
        assert event["ts"] >= 0
        assert event["dur"] > 0
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in tracks.values():
        spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in events)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))


def test_chrome_trace_names_its_tracks(drawn):
    trace = json.loads(chrome(drawn))
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {e["tid"] for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1} == {
        tid for pid, tid in names if pid == 1
    }
    first = [name for (pid, _), name in names.items() if pid == 1]
    assert first == [
        *("part", "pipe l2", "pipe lsu", "pipe tensor", "stalled"),
        *("slot S[0]", "slot S[1]", "slot S[2]", "registers F[0]"),
    ]
    assert len([name for (pid, _), name in names.items() if pid == 2]) == len(first) - 2
    assert "nothing is measured" in trace["otherData"]["time"]


def test_json_has_every_event_and_slot(drawn):
    data = json.loads(json.dumps(drawn.as_dict()))
    assert data["machine"] == "A100 SXM4"
    for name, run in (("pipelined", drawn.pipelined), ("un_pipelined", drawn.plain)):
        assert len(data[name]["events"]) == len(run.trace.events)
        assert data[name]["cycles"] == max(event["end"] for event in data[name]["events"])
        assert data[name]["slots"].keys() == {str(slot) for slot in run.slots}
    assert data["speedup"] == drawn.speedup


def test_ticks_are_round():
    assert [nice_step(cycles, 10) for cycles in (7, 10, 11, 99, 101, 14236)] == [
        1,
        1,
        2,
        10,
        20,
        2000,
    ]


def test_a_long_name_keeps_its_end():
    assert shortened("A_shared[0]", 11) == "A_shared[0]"
    assert shortened("A_reindex_shared[10]", 12) == "A_rei..d[10]"


# The command.

SMALL = ("gemm", "--m", "64", "--n", "64", "--k", "128", "--tile", "64x64x32", "--target", "a100")


def run(capsys, *argv):
    code = cli.main(["timeline", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command_draws(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    code, out, err = run(capsys, *SMALL)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 90
    first = out.splitlines()[0]
    assert first == "timeline of gemm_64x64x128_float16_nt: loop k_0, 4 of 4 iterations"
    assert "A100 SXM4" in out


def test_colour_adds_nothing_but_colour(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    _, plain_text, _ = run(capsys, *SMALL)
    monkeypatch.setattr(console, "fancy", lambda stream: stream is sys.stdout)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, coloured, _ = run(capsys, *SMALL)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain_text.splitlines()


def test_command_writes_files(capsys, tmp_path):
    drawing, trace = tmp_path / "a.svg", tmp_path / "a.json"
    files = ("--svg", str(drawing), "--chrome", str(trace))
    code, out, err = run(capsys, *SMALL, *files, "--iterations", "3", "--json")
    assert code == 0
    assert json.loads(out)["iterations"] == 3
    assert err.split() == [str(drawing), str(trace)]
    assert ElementTree.parse(drawing).getroot().tag == f"{SVG}svg"
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("argv", "code", "args"),
    [
        ((*SMALL, "--iterations", "99"), "timeline.trip", {"value": 99, "trip": 4}),
        ((*SMALL, "--loop", "z"), "plan.not_found", {"what": "loop", "name": "z"}),
        ((*SMALL, "--svg", "/nowhere/a.svg"), "file.write", {"path": "/nowhere/a.svg"}),
    ],
)
def test_a_mistake_is_one_line(argv, code, args, capsys):
    status, out, err = run(capsys, *argv)
    assert (status, out) == (1, "")
    told(err, code, **args)


def test_a_terminal_without_blocks_gets_ascii():
    done = subprocess.run(
        [sys.executable, "-m", "pipeliner", "timeline", *SMALL],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.isascii()
    assert b"::::" in done.stdout


def test_what_is_too_narrow_is_drawn_with_its_neighbours(drawn):
    """Of one iteration; each bar says from where to where, and none of it is lost."""
    whole = [event for event in drawn.pipelined.trace.events if event.pipe == "lsu"]
    row = [
        half
        for event in whole
        for half in (
            dataclasses.replace(event, busy=event.start + 1),
            dataclasses.replace(event, start=event.start + 1),
        )
    ]
    assert [bar.events for bar in bars_of(row, 0)] == [(half,) for half in row]
    bars = bars_of(row, 1e9)
    assert [(bar.first.start, bar.busy, bar.end) for bar in bars] == [
        (event.start, event.busy, event.end) for event in whole
    ]
    assert len({bar.first.iteration for bar in bars}) == len(bars) > 1
    assert f"from {whole[0].start} to {whole[0].busy}, result at {whole[0].end}" in bars[0].note
