"""What Chromium makes of the page: nothing hangs over, tables sort, what belongs together lights."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import pipeliner
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, versions_key, workload_key
from pipeliner.report import report
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.timeline import timeline

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PROBE = (Path(__file__).parent / "probe.js").read_text()
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
"""Of the page, which lets no script run but its own; a copy without it is probed."""

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--window-size=1600,900", "--virtual-time-budget=10000"),
)
WIDTHS = {"phone": 320, "half": 500, "desk": 1280, "names": 320, "notebook": 500}
"""Of frames: Chromium's windows are no narrower than 500 pixels, its frames are."""

PAGES = {"names": "long", "notebook": "notebook"}

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="Chromium is missing"),
    pytest.mark.slow,
]


def a_page(folder: Path) -> Path:
    """Two kernels, by wgmma and by mma.sync, of a GEMM, and a peer."""
    spec = Gemm(512, 512, 512)
    key = (workload_key(spec), "h100", versions_key())
    other = (workload_key(Gemm(256, 512, 512)), *key[1:])
    wgmma = Candidate(GemmTile(128, 128, 64), Request(mechanism="tma", instruction="wgmma"))
    mma = Candidate(GemmTile(64, 64, 64), Request(depth=3, instruction="mma", epilogue="peeled"))
    with Records(folder / "r.sqlite") as records:
        for where, candidate, us in (
            (key, wgmma, 10.0),
            (key, mma, 13.0),
            (other, mma, 9.0),
            (other, wgmma, 12.5),
        ):
            times = {"samples": (us,), "predicted_us": 10.0}
            variant = {"experiment": "kinds", "label": f"kind {candidate is mma:d}"}
            records.add(Record(*where, candidate.to_json(), **times, **variant))
        records.add(Record(*key, contender="cuBLAS", samples=(9.5,)))
        records.add(Record(*key, "{}", failure="cannot compile: <b>no</b>"))
    report(folder / "r.sqlite", folder / "page.html")
    return folder / "page.html"


def a_page_of_long_names(folder: Path) -> Path:
    spec = Gemm(100003, 100019, 100043, 16, epilogue=("bias", "gelu", "scale", "residual"))
    key = (workload_key(spec), "h100", versions_key())
    candidate = Candidate(GemmTile(128, 128, 64), Request(depth=2)).to_json()
    variant = {"experiment": "E" * 200 + ": " + "f" * 99, "label": "v" * 300}
    with Records(folder / "long.sqlite") as records:
        records.add(Record(*key, candidate, samples=(5.0,), conditions={"c" * 99: "d" * 300}))
        records.add(Record(*key, candidate, samples=(5.0,), **variant))
        records.add(Record(*key, candidate, failure="cannot:" + "y" * 500, **variant))
        records.add(Record('{"kind": "' + "A" * 400, *key[1:], samples=(1.0,)))
    report(folder / "long.sqlite", folder / "long.html", kernels=0)
    return folder / "long.html"


def a_notebook(folder: Path) -> Path:
    """What it has of a plan, a timeline, and a kernel that is shown twice; the page is its own."""
    schedule = schedule_gemm(Gemm(256, 256, 256), GemmTile(64, 64, 32))
    kernel = pipeliner.build(schedule, "a100", depth=3)
    drawn = timeline(schedule, "a100", depth=3)
    cells = (kernel.plan._repr_html_(), drawn._repr_svg_(), *[kernel._repr_html_()] * 2)
    titles = "<h1>Mine</h1><h2>and</h2><h3>here</h3>"
    head = '<!DOCTYPE html><html lang="en"><body style="background: #102030; color: white">'
    (folder / "notebook.html").write_text(f"{head}{titles}{'<hr>'.join(cells)}</body></html>")
    return folder / "notebook.html"


@pytest.fixture(scope="module")
def browsed(tmp_path_factory):
    """What the probe finds by frame, and what the console said; one start of the browser."""
    folder = tmp_path_factory.mktemp("browsed")
    page, long, notebook = (make(folder) for make in (a_page, a_page_of_long_names, a_notebook))
    for path in (page, long, notebook):
        text, removed = POLICY.subn("", path.read_text())
        assert removed == (path != notebook)
        probed = text.replace("</body>", f"<script>{PROBE}</script></body>")
        (folder / f"probed_{path.name}").write_text(probed)
    frames = "".join(
        f'<iframe name="{name}" src="probed_{PAGES.get(name, "page")}.html" '
        f'width="{width}" height="800" frameborder="0"></iframe>'
        for name, width in WIDTHS.items()
    )
    (folder / "outer.html").write_text(
        "<script>const all = {}; addEventListener('message', e => {all[e.data.name] = "
        "e.data.found; document.body.dataset.found = JSON.stringify(all)})</script><body>"
        f'{frames}<iframe src="{page.name}" width="500" height="800"></iframe>'
    )
    done = subprocess.run(
        [
            BROWSER,
            *QUIET,
            f"--user-data-dir={folder / 'p'}",
            "--dump-dom",
            (folder / "outer.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = re.findall(r"CONSOLE.*", done.stderr)
    values = re.search(r'data-found="([^"]*)"', done.stdout)
    assert values, said or done.stderr
    found = json.loads(html.unescape(values[1]))
    assert found.keys() == WIDTHS.keys(), said
    return found, said


@pytest.mark.parametrize("name", WIDTHS)
def test_nothing_hangs_over(browsed, name):
    found = browsed[0][name]
    assert found["width"] == WIDTHS[name]
    assert found["overflow"] == []
    assert found["height"] > 1000


def test_the_console_is_silent(browsed):
    assert browsed[1] == []


def test_tables_sort_by_their_headings(browsed):
    assert browsed[0]["half"]["sort"] == ""


def test_what_is_pointed_at_or_focused_lights_its_lines_and_slots(browsed):
    for name in ("half", "desk", "notebook"):
        assert browsed[0][name]["hover"] == []
        assert browsed[0][name]["focus"] == []
        assert browsed[0][name]["left"] == []


def test_prologue_steady_state_and_epilogue_fold(browsed):
    assert {"prologue", "steady state", "epilogue", "consumer, steady state"} <= {
        *browsed[0]["half"]["folded"]
    }


@pytest.mark.parametrize("name", WIDTHS)
def test_it_can_be_read_by_who_does_not_see_it_and_in_the_dark(browsed, name):
    found = browsed[0][name]
    assert found["language"] == "en"
    for check in ("unnamed", "twice", "levels", "faint", "faint_in_the_dark"):
        assert found[check] == [], check
    assert found["dark"]
