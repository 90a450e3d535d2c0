"""What notebooks show of plans, kernels and timelines: a line each, and HTML that is linked."""

from __future__ import annotations

import dataclasses
import html.parser
import re

import pytest

import pipeliner
import pipeliner.kernel.edited
from pipeliner.markup import Html, element, spelled, table
from pipeliner.markup.colours import PALETTE
from pipeliner.plan.links import Links
from pipeliner.plan.shown import plan_html
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.timeline import svg, timeline_from
from pipeliner.values.origin import Origin, Place

EVIL = '<script>alert("a & b")</script>'


class Tree(html.parser.HTMLParser):
    """The elements of a text, each as its tag and attributes; tags must be balanced."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def lit_by(self, groups: str) -> list[tuple[str, dict[str, str]]]:
        """What the script lights where something with ``groups`` is pointed at."""
        wanted = set(groups.split())
        return [one for one in self.found if wanted & set(one[1].get("data-in", "").split())]

    def named(self, name: str) -> dict[str, str]:
        (found,) = [attrs for _, attrs in self.found if attrs.get("data-name") == name]
        return found


@pytest.fixture(scope="module", params=["h100", "a100"])
def kernel(request):
    """Of producer and consumer warps; of cp.async and mma.sync, k-step by k-step."""
    gemm = Gemm(256, 256, 256)
    return pipeliner.build(schedule_gemm(gemm, GemmTile(128, 128, 64)), request.param, depth=2)


@pytest.fixture(scope="module")
def shown(kernel) -> str:
    """What a notebook shows of the kernel."""
    return str(kernel._repr_html_())


@pytest.fixture(scope="module")
def drawn(kernel):
    """Its timeline."""
    return timeline_from(kernel.original, kernel.function, kernel.target)


def test_a_plan_is_one_line_and_str_has_every_field(kernel):
    assert re.fullmatch(
        r"KernelPlan\('gemm_.*': loop k_0 in \d stages, .{20,200}\)", repr(kernel.plan)
    )
    assert all(f"{one.name}=" in str(kernel.plan) for one in dataclasses.fields(kernel.plan))
    assert str(kernel.plan).startswith("KernelPlan(kernel='gemm_256x256x256_float16_nt', target=")
    assert f"{kernel.plan}" == str(kernel.plan)
    assert len(repr(dataclasses.replace(kernel.plan, kernel="k" * 500))) < 300


def test_a_timeline_is_one_line_and_its_drawing(drawn):
    assert "\n" not in repr(drawn)
    assert len(repr(drawn)) < 200
    assert str(drawn).startswith("Timeline(kernel='gemm_256x256x256_float16_nt', machine=")
    assert "events=(Event(" in str(drawn)
    assert drawn._repr_svg_() == svg(drawn)


def test_a_notebook_takes_the_form_that_is_drawn(kernel, drawn):
    """IPython tells a form that raises on its error output alone, and shows the plain one."""
    formatters = pytest.importorskip("IPython.core.formatters", reason="IPython is not installed")
    shows = formatters.DisplayFormatter().format
    assert {"text/plain", "text/html"} == set(shows(kernel)[0]) == set(shows(kernel.plan)[0])
    assert {"text/plain", "image/svg+xml"} == set(shows(drawn)[0])


def test_html_is_whole_and_fetches_nothing(kernel, shown):
    for text in (shown, kernel.plan._repr_html_()):
        for tag, attrs in Tree(text).found:
            assert tag not in ("link", "img", "iframe")
            assert not {"src", "href"} & set(attrs)
        assert "http" not in re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)


def test_parts_of_a_pipeline_are_folded_by_name(kernel, shown):
    titles = re.findall(r"<details open><summary>(.*?): lines", shown)
    if kernel.plan.roles:
        assert titles == ["consumer, steady state", "producer, steady state"]
    else:
        assert titles == ["prologue", "steady state", "epilogue"][: len(titles)]
        assert "steady state" in titles


def test_every_line_of_cuda_is_there(kernel, shown):
    text = shown.partition('<div class="wide code"')[2]
    lines = re.sub("<[^>]*>", "", "".join(re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)))
    assert html.unescape(lines).splitlines() == kernel.cuda.splitlines()


def test_an_op_lights_its_lines_and_no_other(kernel, shown):
    tree = Tree(shown)
    for op in kernel.plan.loops[0].ops:
        hit = tree.named(f"{op.name}, stage {op.stage}")["data-hit"]
        lines = [attrs["title"] for tag, attrs in tree.lit_by(hit) if tag == "span"]
        assert all(re.match(rf"{re.escape(op.name)}(\.\w+)?,", title) for title in lines), op.name
        assert lines or op.kind == "mma_wait", op.name


def test_a_stage_lights_its_lines_and_the_slots_that_it_uses(kernel, shown):
    tree = Tree(shown)
    for stage in {op.stage for op in kernel.plan.loops[0].ops}:
        lit = tree.lit_by(tree.named(f"stage {stage}")["data-hit"])
        titles = [attrs["title"] for tag, attrs in lit if tag == "span"]
        assert titles
        assert all(f"stage {stage}," in title for title in titles)
        assert any(attrs.get("class") == "slot" for _, attrs in lit)
    every = [attrs["title"] for tag, attrs in tree.found if tag == "span" and "title" in attrs]
    staged = [title for title in every if ", stage 0," in title]
    lit = tree.lit_by(tree.named("stage 0")["data-hit"])
    assert [attrs["title"] for tag, attrs in lit if tag == "span"] == staged


def test_a_slot_lights_who_may_touch_it(kernel):
    links = Links(kernel.plan)
    ring = kernel.plan.loops[0].rings[0]
    slot = set(links.slot(ring.buffer, 1).lights)
    assert slot & set(links.origin(Origin(places=(Place(ring.buffer, "1"),))).within)
    assert slot & set(links.origin(Origin(places=(Place(ring.buffer, "(k + 1) % 2"),))).within)
    assert not slot & set(links.origin(Origin(places=(Place(ring.buffer, "0"),))).within)
    assert not slot & set(links.origin(Origin(places=(Place("C", "1"),))).within)


def test_a_row_of_the_timeline_lights_its_lines_and_an_event_its_slot(kernel, shown, drawn):
    tree = Tree(svg(drawn, links=Links(kernel.plan), prefix="a") + shown)
    rows = [attrs for tag, attrs in tree.found if tag == "g"]
    row = next(attrs for attrs in rows if attrs["aria-label"].startswith("A_shared,"))
    assert row["tabindex"] == "0"
    titles = [attrs["title"] for tag, attrs in tree.lit_by(row["data-hit"]) if tag == "span"]
    assert titles
    assert all(title.startswith("A_shared") for title in titles)
    event = next(
        attrs for tag, attrs in tree.found if attrs.get("data-name") == "A_shared, iteration 1"
    )
    slots = [attrs["aria-label"] for tag, attrs in tree.lit_by(event["data-hit"]) if tag == "g"]
    assert [name for name in slots if "[" in name] == ["A_shared[1]"]
    ids = [attrs["id"] for tag, attrs in tree.found if "id" in attrs]
    assert ids
    assert all(name.startswith("a") for name in ids)


def test_what_is_put_in_is_escaped():
    assert element("p", EVIL, Html("<br>")).startswith("<p>&lt;script&gt;alert(&quot;a &amp; b")
    assert spelled(title=EVIL).count("<") == 0
    assert (
        spelled(title='"', open=True, class_="", tabindex=0) == ' title="&quot;" open tabindex="0"'
    )
    assert "<script>" not in table(EVIL, [EVIL], [[EVIL]])


def test_names_of_a_plan_are_escaped(kernel):
    plan = dataclasses.replace(kernel.plan, kernel=EVIL, machine=EVIL)
    text = plan_html(plan) + plan._repr_html_()
    assert text.count("<script>") == 1  # ours
    assert text.count("alert") == text.count("&lt;script&gt;alert(") > 2
    Tree(text)


def test_a_kernel_without_a_plan_and_one_that_is_edited_are_shown(kernel):
    plain = pipeliner.kernel.compiled.compile_kernel(kernel.original, kernel.target)
    assert "gemm_256x256x256" in plain._repr_html_()
    edited = pipeliner.kernel.edited.EditedKernel(kernel, f"{kernel.cuda}// mine\n")
    assert "// mine" in edited._repr_html_()


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", PALETTE)
def test_colours_read(colour):
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast(colour, "#ffffff") >= 4.5
    assert contrast(colour, "#0d1117") >= 3
