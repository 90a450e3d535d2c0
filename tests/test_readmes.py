"""What the READMEs say: commands run, programs print what is shown, tables are those of the code."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import shlex
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import tvm

import pipeliner
from pipeliner import cli
from pipeliner.emulator.base.report import HazardKind
from pipeliner.kernel.compiled import as_module
from pipeliner.passes.listed import PASSES
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import cuda_target

from .test_layers import LEVEL

ROOT = Path(__file__).parents[1]
FILES = sorted(
    {
        path.resolve()
        for pattern in ("README.md", "*/README.md", "pipeliner/*/README.md", ".github/*.md")
        for path in ROOT.glob(pattern)
    }
)
MEASURES = (
    *("bench", "tune", "experiment", "report", "replay", "regret", "ablate", "residuals"),
    *("demo", "doctor"),
)
"""Commands that need a GPU, or that other tests run."""

MOST_LINES = 150


@dataclass(frozen=True)
class Block:
    """A code block of a README, and the text block that follows it: what it prints."""

    file: Path
    kind: str
    text: str
    shows: str

    @property
    def commands(self) -> list[str]:
        lines = [line.split(" # ")[0].strip() for line in self.text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]


def blocks_of(file: Path) -> list[Block]:
    found = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", file.read_text(), re.M | re.S)
    behind = [*found[1:], ("", "")]
    return [
        Block(file, kind, inspect.cleandoc(text), next_text if next_kind == "text" else "")
        for (kind, text), (next_kind, next_text) in zip(found, behind)
        if kind != "text"
    ]


BLOCKS = [block for file in FILES for block in blocks_of(file)]
SHELL = [block for block in BLOCKS if block.kind == "sh"]
COMMANDS = [
    (block, line) for block in SHELL for line in block.commands if line.startswith("pipeliner ")
]


def name(value: Any) -> str:
    if isinstance(value, Block):
        return str(value.file.relative_to(ROOT))
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


def assert_shows(output: str, expected: str, where: Path) -> None:
    """The lines of ``expected`` are printed in that order; ``...`` skips some."""
    rest = output.splitlines()
    for line in expected.splitlines():
        if line.strip() == "...":
            continue
        assert line in rest, (
            f"{where.relative_to(ROOT)} shows {line!r}, which is not printed; it prints:\n{output}"
        )
        rest = rest[rest.index(line) + 1 :]


WITH_PYTHON = [file for file in FILES if any(b.kind == "python" for b in blocks_of(file))]


@pytest.mark.parametrize("file", WITH_PYTHON, ids=name)
def test_python_prints_what_is_shown(file: Path) -> None:
    """The python blocks of a README are one program."""
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks_of(file):
        if block.kind != "python":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block.text, str(file), "exec"), names)
        assert_shows(out.getvalue(), block.shows, file)


@pytest.mark.parametrize(("block", "line"), COMMANDS, ids=name)
def test_commands_print_what_is_shown(
    block: Block,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Every ``pipeliner`` line works here, but for what needs a GPU or is measured."""
    command = shlex.split(line)[1:]
    if command[0] in MEASURES and command[1:2] != ["small.toml"]:
        cli.parser().parse_args(command)
        return
    shows = block.shows if line == block.commands[-1] else ""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(max(map(len, shows.splitlines()), default=80)))
    command = [written(word, block.file, tmp_path) for word in command]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    if "--svg" in command:
        drawn = shlex.split(line)[-1]
        assert Path(command[-1]).read_text() == (ROOT / drawn).read_text(), f"run: {line}"
        return
    assert printed
    assert_shows(printed, shows, block.file)


def written(word: str, file: Path, folder: Path) -> str:
    """``word``; the file in ``folder`` where it names a TOML block, or what a command writes."""
    if word.endswith(".svg"):
        return str(folder / Path(word).name)
    for block in blocks_of(file):
        if block.kind == "toml" and block.text.startswith(f"# {word}\n"):
            path = folder / word
            path.write_text(block.text)
            return str(path)
    return word


@pytest.mark.parametrize("file", FILES, ids=name)
def test_commands_in_sentences_are_commands(file: Path) -> None:
    outside = re.sub(r"```.*?```", "", file.read_text(), flags=re.S)
    for line in re.findall(r"`pipeliner ([^`]+)`", outside):
        asked = [word for word in shlex.split(line) if word != "--help"]
        assert asked[0] in cli.COMMANDS
        if len(asked) > 1:
            cli.parser().parse_args(asked)


def test_other_commands_are_those_of_the_makefile() -> None:
    lines = [line for block in SHELL for line in block.commands]
    others = [shlex.split(line) for line in lines if not line.startswith("pipeliner ")]
    assert others
    for command in others:
        assert command[0] == "make"
        assert set(command[1:]) <= targets()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_what_is_mentioned_exists(file: Path) -> None:
    text = file.read_text()
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert target in targets()
    for extra in re.findall(r"'\.\[([\w,]+)\]'", text):
        for one in extra.split(","):
            assert f"\n{one} = [" in (ROOT / "pyproject.toml").read_text()
    for link, anchor in re.findall(r"\]\(([\w/.-]+)(#[\w-]+)?\)", text):
        assert (file.parent / link).exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)", (file.parent / link).read_text(), re.M)
            assert anchor[1:] in [title.lower().replace(" ", "-") for title in titles]


@pytest.mark.parametrize("file", FILES, ids=name)
def test_fragments_call_what_there_is(file: Path) -> None:
    fragments = [block.text for block in blocks_of(file) if block.kind == "py"]
    for call in ast.walk(ast.parse("\n".join(fragments))):
        if isinstance(call, ast.Call) and re.fullmatch(r"pipeliner[.\w]+", ast.unparse(call.func)):
            found: Any = pipeliner
            for part in ast.unparse(call.func).split(".")[1:]:
                found = getattr(found, part)
            inspect.signature(found).bind(
                *call.args, **{str(one.arg): one.value for one in call.keywords}
            )


def test_the_readme_is_short_and_defines_depth_first() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_LINES
    word, meaning = rows(ROOT / "README.md", "| word | meaning |")[0]
    assert word == "*depth*"
    assert re.fullmatch(
        "what Triton, TileLang and CUTLASS call `\\w+`: the slots of a ring", meaning
    )


def rows(file: Path, head: str) -> list[tuple[str, ...]]:
    """The rows of the table that begins with ``head``."""
    table = file.read_text().split(head, 1)[1].split("\n\n", 1)[0]
    return [
        tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in table.splitlines()[2:]
    ]


@tvm.ir.instrument.pass_instrument
class Names:
    """The passes of ours that ran, in their order."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if info.name.startswith("pipeliner."):
            self.seen[info.name.removeprefix("pipeliner.")] = None


WRAPPERS = {"SoftwarePipeline", "Unmarked", "Marked", "Pipelined", "Slot"}
"""Names of passes that only run others."""


def test_passes_are_listed_in_their_order() -> None:
    """The table is the list of passes, and two kernels go through them in that order."""
    table = rows(ROOT / "passes" / "README.md", "| pass | file | before => after |")
    listed = [
        (one, f"passes/{link.split('](')[1][:-1]}")
        for names, link, _ in table
        for one in names.split(", ")
    ]
    assert listed == [(one.name, one.file) for one in PASSES]
    known = [one.name for one in PASSES]
    schedule = schedule_gemm(Gemm(256, 256, 128), GemmTile(128, 128, 64))
    ran: set[str] = set()
    for asked in ({"mechanism": "tma"}, {"mechanism": "cp_async", "instruction": "wgmma"}):
        names_of = Names()
        with tvm.transform.PassContext(instruments=[names_of]):
            fast = pipeliner.pipeline(schedule, "h100", depth=2, **asked)
            with cuda_target("h100") as target:
                tvm.compile(as_module(fast), target, tir_pipeline="pipeliner")
        seen = [one for one in names_of.seen if one not in WRAPPERS]
        assert seen == sorted(seen, key=known.index)
        ran |= set(seen)
    assert ran == set(known)


def test_hazards_are_listed() -> None:
    table = rows(ROOT / "pipeliner" / "emulator" / "README.md", "| hazard | meaning |")
    assert [kind for kind, _ in table] == [f"`{kind}`" for kind in get_args(HazardKind)]


def test_options_are_listed() -> None:
    table = rows(ROOT / "pipeliner" / "plan" / "README.md", "| option | values |")
    listed = [one.strip("`") for names, _ in table for one in names.split(", ")]
    assert listed == [field.name for field in fields(Request) if field.name != "plan"]


def test_examples_are_listed_with_their_questions() -> None:
    table = rows(ROOT / "examples" / "README.md", "| file | question |")
    listed = {re.findall(r"\]\((.*)\)", link)[0]: question for link, question in table}
    files = {path.name: path for path in (ROOT / "examples").glob("*.py")}
    assert listed.keys() == files.keys()
    for file, question in listed.items():
        first = ast.get_docstring(ast.parse(files[file].read_text())).splitlines()[0]
        assert question.startswith(first.split("?")[0].split(",")[0])


def test_layers_are_listed_from_the_bottom_up() -> None:
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text().split("## Layers")[1]
    lines = text.split("```text\n")[1].split("```")[0].splitlines()
    levels = [[LEVEL[one] for one in line[13:].strip().split(", ")] for line in lines]
    for below, above in pairwise(levels):
        assert max(below) < min(above)
    assert sum(map(len, levels)) == len(LEVEL)


def test_every_folder_of_the_package_is_in_its_readme() -> None:
    text = (ROOT / "pipeliner" / "README.md").read_text()
    for init in (ROOT / "pipeliner").glob("*/__init__.py"):
        if not init.parent.is_symlink():
            assert f"[{init.parent.name}/](" in text
