"""The difference of two kernels, their variables numbered alike."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner.explain.differences import diff, renamed
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

BEFORE = """\
  int cse_v1 = tx * 8;
  copy(cse_v1);
  for (int k_0 = 0; k_0 < 8; ++k_0) {
    int cse_v2 = k_0 * 64;
    use(cse_v1 + cse_v2);
    float2 v_ = *(float2*)(a + 0);
  }
"""

AFTER = """\
  int cse_v1 = ty * 4;
  int cse_v2 = tx * 8;
  copy(cse_v2);
  copy(cse_v2 + cse_v1);
  for (int k_0_1 = 0; k_0_1 < 8; ++k_0_1) {
    int cse_v3 = k_0_1 * 64;
    use(cse_v2 + cse_v3);
    float2 v__1 = *(float2*)(a + 0);
  }
"""


def test_what_is_alike_has_one_name() -> None:
    assert renamed(BEFORE, AFTER, "cuda") == BEFORE.replace(
        "  int cse_v1 = tx * 8;\n  copy(cse_v1);\n",
        "  int cse_v3 = ty * 4;\n  int cse_v1 = tx * 8;\n  copy(cse_v1);\n  copy(cse_v1 + cse_v3);\n",
    )


def test_names_of_functions_are_left_alone() -> None:
    text = "  wait_group_1();\n  int x_1 = m64n32k16(x_0);\n"
    assert renamed("", text, "cuda") == text


@pytest.mark.parametrize(
    ("kind", "before", "after", "expected"),
    [
        ("ptx", "add %r1, %r2;\nbra $L__BB0_2;", "mul %r1;\nadd %r2, %r3;\nbra $L__BB0_4;",
         "mul %r3;\nadd %r1, %r2;\nbra $L__BB0_2;"),
        ("sass", ".L_x_3:\nBRA `(.L_x_3) ;", "MOV R3, R4 ;\n.L_x_7:\nBRA `(.L_x_7) ;",
         "MOV R3, R4 ;\n.L_x_3:\nBRA `(.L_x_3) ;"),
    ],
)  # fmt: skip
def test_registers_and_labels(kind: str, before: str, after: str, expected: str) -> None:
    assert renamed(before, after, kind) == expected


def test_two_depths_differ_in_the_pipeline_alone() -> None:
    schedule = schedule_gemm(Gemm(128, 128, 256), GemmTile(64, 64, 32))
    two, three = (pipeliner.build(schedule, "a100", depth=depth) for depth in (2, 3))
    for kind in ("cuda", "tir"):
        assert diff(two, two, kind) == ""
        lines = diff(two, three, kind, labels=("depth=2", "depth=3"), condense=True).splitlines()
        assert lines[:2] == ["--- depth=2", "+++ depth=3"]
        assert sum(line.startswith(("+", "-")) for line in lines[2:]) < 60
        assert any(line.startswith("+") and "cp" in line and "commit" in line for line in lines)
