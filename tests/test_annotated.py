"""CUDA, PTX and SASS with the origin of each line, and machine code that has those lines."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from pathlib import Path

import pytest

from examples.the_idea import reverse
from pipeliner.api import build
from pipeliner.emulator.base.report import CudaLine
from pipeliner.errors import WorkloadError
from pipeliner.kernel.annotated import WIDTH, annotated
from pipeliner.kernel.compiled import Kernel
from pipeliner.kernel.cuda_lines import CudaLines, Statement
from pipeliner.kernel.edited import EditedKernel
from pipeliner.toolchain import line_info, nvcc
from pipeliner.values.op import Op
from pipeliner.values.origin import Origin
from tests.refusals import refused

SOURCE = """\
helper
extern "C" __global__ void f() {
  copy(0);
  commit();
  other();
  #pragma unroll 1
  for (int k_0_1 = 0; k_0_1 < 8; ++k_0_1) {
    int cse_v1 = k_0_1;
    if (k_0_1 < 7) {
      copy(k_0_1);
    }
    use();
    use();
  }
  drain();
}
"""


def lines_of(origins: dict[int, Origin]) -> CudaLines:
    found = [
        Statement("f", number, origin, CudaLine(line, line, ""))
        for number, (line, origin) in enumerate(origins.items())
    ]
    return CudaLines(SOURCE, tuple(found))


def origin(op: str, phase: str, iteration: str = "", **more: str) -> Origin:
    return Origin(Op(op), stage=0, phase=phase, iteration=iteration, **more)


ORIGINS = {
    3: origin("copy", "prologue", "0"),
    4: origin("copy", "prologue", "0"),
    10: origin("copy", "steady", "k_0 + 1"),
    12: origin("use", "steady", "k_0"),
    13: origin("use", "steady", "k_0"),
    15: origin("copy", "epilogue"),
}

ANNOTATED = """\
// region helpers
helper
// endregion
extern "C" __global__ void f() {
  // region prologue
  // copy, stage 0, prologue, iteration 0
  copy(0);
  commit();
  // endregion
  other();
  // region steady state
  #pragma unroll 1
  for (int k_0_1 = 0; k_0_1 < 8; ++k_0_1) {
    int cse_v1 = k_0_1;
    if (k_0_1 < 7) {
      // copy, stage 0, steady state, iteration k_0 + 1
      copy(k_0_1);
    }
    // use, stage 0, steady state, iteration k_0
    use();
    use();
  }
  // endregion
  // region epilogue
  // copy, stage 0, epilogue
  drain();
  // endregion
}
"""


def test_each_origin_stands_before_its_lines_and_each_phase_is_a_region() -> None:
    found = annotated(lines_of(ORIGINS))
    assert found.source == ANNOTATED
    source = ANNOTATED.splitlines()
    for line, text in ((7, "copy(0);"), (8, "commit();"), (17, "copy(k_0_1);"), (21, "use();")):
        assert source[line - 1].strip() == text
        assert str(found.origins[line]) in found.note(line)
    assert found.note(10) == "line 10: other();"
    assert (found.note(0), found.note(99)) == ("line 0: ", "line 99: ")


def test_a_loop_around_the_pipelined_one_is_not_of_its_steady_state() -> None:
    found = annotated(lines_of({10: origin("copy", "steady", "other + 1")}))
    region = found.source[found.source.index("// region steady") :].splitlines()
    assert [line.strip() for line in region[:3]] == [
        "// region steady state",
        "// copy, stage 0, steady state, iteration other + 1",
        "copy(k_0_1);",
    ]


def test_each_role_has_its_regions() -> None:
    found = annotated(
        lines_of(
            {5: origin("a", "steady", role="producer"), 15: origin("b", "steady", role="consumer")}
        )
    )
    assert re.findall("// region (.*)", found.source) == [
        "helpers", "producer, steady state", "consumer, steady state"
    ]  # fmt: skip


def test_a_long_store_is_a_region_up_to_the_end_of_its_block() -> None:
    lines = "".join(f"    store({at});\n" for at in range(30))
    source = f'extern "C" __global__ void f() {{\n  while (x) {{\n{lines}  }}\n  wait();\n}}\n'
    store = Origin(Op("store"), role="consumer")
    found = annotated(
        CudaLines(
            source,
            tuple(Statement("f", at, store, CudaLine(at, at, "")) for at in (*range(3, 33), 34)),
        )
    )
    inside = found.source.split("// region consumer, store\n")[1].split("    // endregion\n")[0]
    assert inside == f"    // store, role consumer\n{lines}"
    short = CudaLines(source, (Statement("f", 0, store, CudaLine(3, 3, "")),))
    assert "region" not in annotated(short).source


def test_no_comment_is_wider_than_a_screen() -> None:
    found = annotated(lines_of({10: origin("copy", "steady", "k" * 300)}))
    assert max(map(len, found.source.splitlines())) == WIDTH


SASS = """\
\t//## File "k.cu", line 2
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "k.cu", line 1 inlined at "k.cu", line 3
\t//## File "k.cu", line 3
        /*0010*/                   LDGSTS R1 ;
.L_x_1:
\t//## File "k.cu", line 1 inlined at "k.cu", line 3
        /*0020*/                   EXIT ;
"""


def test_machine_code_is_noted_by_the_line_that_calls() -> None:
    assert line_info.noted_sass(SASS, lambda line: f"<{line}>") == textwrap.dedent("""\
        \t// <2>
                /*0000*/                   LDC R1, c[0x0][0x28] ;
        \t// <3>
                /*0010*/                   LDGSTS R1 ;
        .L_x_1:
                /*0020*/                   EXIT ;
        """)


PTX = """\
.visible .entry f()
{
\t.loc\t1 2 0
\tmov.u32 %r1, %tid.x;
\t.loc\t1 3 5
\t.loc\t1 9 3, function_name $L__info_string0, inlined_at 1 3 5
\t.loc\t1 8 3, function_name $L__info_string1, inlined_at 1 9 3
\tcp.async;
\tret;
}
\t.file\t1 "k.cu"
\t.section\t.debug_str
\t{
$L__info_string0:
.b8 95,0
\t}
"""


def test_ptx_is_noted_by_the_line_that_calls() -> None:
    assert line_info.noted_ptx(PTX, lambda line: f"<{line}>") == (
        ".visible .entry f()\n{\n\t// <2>\n\tmov.u32 %r1, %tid.x;\n\t// <3>\n\tcp.async;\n\tret;\n}\n"
    )


@cache
def kernel() -> Kernel:
    return build(reverse, "a100")


def without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.lstrip().startswith("//")]


def test_annotated_cuda_is_the_cuda_with_comments() -> None:
    lines = kernel().annotated_cuda.splitlines()
    assert without_comments(kernel().annotated_cuda) == without_comments(kernel().cuda)
    copies = [at for at, line in enumerate(lines) if "cp_async_ca" in line and "(buf_dyn" in line]
    before = [next(line for line in reversed(lines[:at]) if "//" in line) for at in copies]
    assert [line.strip().partition(" iteration")[0] for line in before] == [
        *["// load, stage 0, prologue,"] * 3, "// load, stage 0, steady state,"
    ]  # fmt: skip
    assert before[-1].endswith(", S[(t + 3) % 4]")
    assert [line.strip() for line in lines if "region" in line][2:6] == [
        "// region prologue", "// endregion", "// region steady state", "// endregion"
    ]  # fmt: skip


@pytest.mark.nvcc
def test_ptx_and_sass_by_op_and_stage() -> None:
    made = kernel()
    lines = made.annotated_cuda.splitlines()
    for text, copy, barrier in (
        (made.annotated_ptx, "cp.async.ca", "bar.sync"),
        (made.annotated_sass, "LDGSTS", "BAR.SYNC"),
    ):
        noted, note = {copy: set(), barrier: set()}, ""
        for line in text.splitlines():
            note = line if "// line " in line else note
            for name, found in noted.items():
                if name in line:
                    found.add(note.split(": ", 1)[1])
        assert all(each.startswith("load, stage 0, ") for each in noted[copy])
        assert len(noted[copy]) == 4
        assert all(each.startswith("load.barrier, ") for each in noted[barrier])
        numbers = [int(number) for number in re.findall(r"// line (\d+):", text)]
        assert numbers
        assert max(numbers) <= len(lines)


@pytest.mark.nvcc
def test_machine_code_has_the_lines_of_the_annotated_file(tmp_path: Path) -> None:
    file = tmp_path / "a name.cu"
    made = kernel().with_line_info(file)
    assert file.read_text() == kernel().annotated_cuda
    assert made.sass == kernel().sass
    disassembled = nvcc.disassemble(made._cubin.data, line_info=True)
    named = re.findall(r'//## File "(.*?)", line (\d+)', disassembled)
    assert {Path(name).name for name, _ in named} >= {file.name}
    copies = {at for at, one in made.annotated.origins.items() if "S" in one.buffers}
    assert copies & {int(line) for _, line in named}


@pytest.mark.nvcc
def test_of_an_edited_kernel_its_own_text_is_kept(tmp_path: Path) -> None:
    edited = EditedKernel(kernel(), f"// mine\n{kernel().cuda}")
    made = edited.with_line_info(tmp_path / "k.cu")
    assert (tmp_path / "k.cu").read_text().startswith("// mine\n")
    assert made.cuda.splitlines()[1] == "// mine"


def test_a_file_that_cannot_be_written() -> None:
    with refused("file.write", WorkloadError, path="/dev/null/k.cu"):
        kernel().with_line_info("/dev/null/k.cu")
