"""A chart and a listing of the page: points, ticks, labels and colours."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from pipeliner.charts import ticks
from pipeliner.kernel.shown import cuda_html
from pipeliner.report import Chart, Series
from pipeliner.values.op import Op
from pipeliner.values.origin import Origin


def test_points_lie_where_their_values_are():
    chart = Chart(
        "c",
        "c",
        "points",
        "x",
        "y",
        (Series("s", ((1.0, 1.0), (10.0, 10.0), (100.0, 100.0))),),
        log=True,
    )
    root = ElementTree.fromstring(chart.svg())
    places = [
        (float(e.get("cx")), float(e.get("cy"))) for e in root.iter() if e.tag.endswith("circle")
    ]
    (x1, y1), (x2, y2), (x3, y3) = places
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert y1 > y3


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0, 437, [0, 100, 200, 300, 400]), (1, 8, [2, 4, 6, 8])],
    ids=range(3),
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_lines_have_the_colour_of_their_stage_and_role():
    source = 'helper\nextern "C" __global__ void k() {\n  a < b;\n  c;\n  d;\n}'
    load = Origin(op=Op("A"), stage=0, role="producer")
    shown = cuda_html(source, {3: load, 4: load, 5: Origin(op=Op("B"), stage=9)})
    assert "<summary>helpers: lines 1 to 1</summary><pre>helper\n</pre>" in shown
    assert (
        '<span class="stage0 role-producer" title="A, stage 0, role producer">'
        "  a &lt; b;\n  c;\n</span>" in shown
    )
    assert '<span class="stage5" title="B, stage 9">  d;\n</span>' in shown


def test_a_chart_is_said_in_words():
    points = tuple((float(at), 3.0 * (at - 4) ** 2 + 1) for at in range(10))
    lines = Chart(
        "c", "c", "lines", "slots", "us", (Series("a<b", points), Series("b", points[:2]))
    )
    assert lines.words() == "a<b: 10 values of us, from 1 at 4 to 76 at 9; b: us 28 at 1, 49 at 0"
    assert "<desc>a&lt;b: 10 values" in lines.svg()
    bars = Chart("c", "c", "bars", "x", "share", (Series("s", ((0.0, 2.0),)),), labels=("one",))
    assert bars.words() == "s: share 2 at one"


def test_a_csv_has_its_labels_in_full():
    label = "conv3d_2x8x14x14x64_k64_3x3x3_float16_ndhwc"
    chart = Chart("c", "c", "bars", "x", "y", (Series("s", ((0.0, 2.0),)),), labels=(label,))
    assert chart.csv() == f"series,x,y\ns,{label},2.0\n"
    assert f">{label[:25]}..<" in chart.svg()
