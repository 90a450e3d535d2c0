"""Constants are records, and README.md of the model is what the model computes."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import math
import re
from pathlib import Path

import pytest

from pipeliner import cli
from pipeliner.choice.mapped import map_kernel
from pipeliner.cost.constants import ROOMS, constants, markdown
from pipeliner.cost.predict import predict
from pipeliner.diagnostics import Reason
from pipeliner.errors import WorkloadError
from pipeliner.machine import H100, MACHINES, MEASURED, REFERENCES, Machine, records_of
from pipeliner.machine.constant import Constant, constant, documented
from pipeliner.machine.file import MeasuredValue
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info

FOLDER = Path(__file__).parents[2] / "pipeliner" / "cost"
README = (FOLDER / "README.md").read_text()
DATE = re.compile(r"2026-\d\d-\d\d")

BOUND = [
    (f"{room}.{path.stem}", node)
    for room in ROOMS
    for path in sorted((FOLDER.parent / room.replace(".", "/")).glob("*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
]
"""What each module of the model binds at its top level."""


def is_record(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and getattr(value.func, "id", "") == "constant"


def has_number(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Constant) and type(node.value) in (int, float)
        for node in ast.walk(value)
    )


def test_every_number_of_the_model_is_a_record() -> None:
    bare = [ast.unparse(node) for _, node in BOUND if has_number(node.value)]
    bare = [text for text in bare if "= constant(" not in text]
    assert bare == []


def test_a_record_says_what_its_variable_holds() -> None:
    by_name = {one.name: one for one in constants()}
    made = [(stem, node) for stem, node in BOUND if is_record(node.value)]
    for stem, node in made:
        name = node.target.id
        module = importlib.import_module(f"pipeliner.{stem}")
        assert by_name[name].value == getattr(module, name)
    assert len(made) == len(by_name) > 100


@pytest.mark.parametrize("one", constants(), ids=lambda one: one.name)
@pytest.mark.part(2)
def test_a_record_is_whole(one: Constant) -> None:
    assert one.unit
    assert one.meaning
    assert one.source.where
    assert DATE.fullmatch(one.date)
    assert re.search(rf"\b{one.name}\b", one.formula), "its formula does not name it"
    assert one.source.kind != "fitted" or one.source.residual


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_number_of_a_gpu_has_a_source(machine: Machine) -> None:
    found = {one.name: one for one in records_of(machine)}
    for known in dataclasses.fields(Machine):
        if known.type in ("int", "float"):
            assert found[known.name].value == getattr(machine, known.name)
    rates = [one for one in found.values() if one.formula.startswith("tensor =")]
    assert len(rates) == len(machine.mmas) + len(machine.wgmmas)
    for one in found.values():
        assert one.source.where
        assert DATE.fullmatch(one.date)
        for key in re.findall(r"\[(\w+)\]", str(one.source)):
            assert key in REFERENCES


def test_every_reference_is_used() -> None:
    said = " ".join(str(one.source) for machine in MACHINES for one in records_of(machine))
    assert [key for key in REFERENCES if f"[{key}]" not in said] == []


def test_what_a_sister_chip_has_of_another_is_derived() -> None:
    h200 = next(machine for machine in MACHINES if machine.key == "h200")
    found = {one.name: one.source for one in records_of(h200)}
    assert found["shared_latency"].kind == "derived"
    assert "as H100 SXM5" in found["shared_latency"].where
    assert found["dram_bytes_per_second"].kind == "measured"


def test_a_measured_machine_says_what_was_measured() -> None:
    machine = dataclasses.replace(H100, name=f"{H100.name}{MEASURED}", l2_latency=300)
    found = {
        one.name: one
        for one in records_of(
            machine, {"l2_latency": MeasuredValue(300, "cycles", "a chase of L2")}
        )
    }
    assert found["l2_latency"].value == 300
    assert found["l2_latency"].source.where == "a chase of L2"
    assert found["sms"].source.where == "[H100]"
    unknown = records_of(dataclasses.replace(H100, name="another"))
    assert unknown[0].source.where == "the machine file"


def test_two_constants_have_two_names() -> None:
    known = constants()[0]
    again = dataclasses.asdict(known) | {"source": known.source}
    assert constant(**again) == known.value
    with pytest.raises(ValueError, match=f"two constants are called {known.name}"):
        constant(**again | {"source": documented("elsewhere")})


def test_the_table_of_the_readme_is_the_command_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["constants", "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert printed == markdown(constants()) + "\n"
    assert README.partition("<!-- constants -->\n")[2] == printed


def test_the_command_lists_some_all_or_a_gpu_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["constants", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["constants"]
    assert [one["name"] for one in found] == [one.name for one in constants()]
    assert cli.main(["constants", "pipe_norm"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("PIPE_NORM = 8\n")
    assert "fitted: H100" in printed
    assert cli.main(["constants", "l2_latency", "--target", "a100", "--json"]) == 0
    (latency,) = json.loads(capsys.readouterr().out)["constants"]
    assert (latency["value"], latency["unit"]) == (262, "cycles")
    assert cli.main(["constants", "--target", "a100"]) == 0
    assert "[Luo] Luo et al." in capsys.readouterr().out


def test_a_name_that_no_constant_has_is_refused() -> None:
    args = cli.parser().parse_args(["constants", "pipe", "vatmin"])
    with pytest.raises(WorkloadError) as caught:
        args.run(args)
    assert caught.value.reason == Reason("constant.unknown", part="vatmin")


EXAMPLE = [
    re.fullmatch(r"(\w+) += (.+?) += ([\d.]+)( [\w/]+)?", line)
    for line in re.search(r"```example\n(.*?)```", README, re.DOTALL)[1].splitlines()
    if line
]


def worked() -> dict[str, float]:
    """The example's values, each from its formula alone."""
    known = {one.name: one.value for one in constants()}
    known |= {one.name: one.value for one in records_of(H100) if one.name.isidentifier()}
    known["ops_per_cycle"] = H100.wgmma("float16").ops_per_cycle
    functions = {name: getattr(math, name) for name in ("ceil", "hypot")}
    values: dict[str, float] = {}
    for line in EXAMPLE:
        scope = functions | {"min": min, "max": max} | known | values
        values[line[1]] = eval(line[2], {"__builtins__": {}}, scope)
    return values


def test_every_number_of_the_example_is_its_formula_s() -> None:
    assert None not in EXAMPLE
    for line, value in zip(EXAMPLE, worked().values(), strict=True):
        digits = len(line[3].partition(".")[2])
        assert f"{value:.{digits}f}" == line[3], line[1]
    bytes_ = [line[1] for line in EXAMPLE if line[4] == " bytes"]
    assert bytes_ == ["tile_in", "tile_out", "smem", "read", "stored", "moved", "driven_out"]


def test_the_example_is_what_the_model_predicts() -> None:
    info = kernel_info(Gemm(4096, 4096, 4096), GemmTile(128, 256, 64))
    work = map_kernel(info, H100, Request(instruction="wgmma")).loops[0].work
    found, value = predict(work, H100, 4), worked()
    assert found is not None
    usage, names = work.usage, ("tensor", "lsu", "l2", "issue")
    assert [value[name] for name in names] == [getattr(usage, name) for name in names]
    assert (value["ctas"], value["trip"]) == (work.grid.ctas, work.grid.trip)
    assert (value["tile_in"], value["tile_out"]) == (usage.global_bytes, work.stores.tile_bytes)
    assert (value["smem"], value["CTAs"]) == (work.smem(4), found.resident)
    assert (value["threads"], value["registers"]) == (work.threads.count, work.registers_at(4))
    assert value["slot_waits"] == work.stores.slot_waits
    assert value["compulsory"] == pytest.approx(work.traffic.memory_us, rel=1e-12)
    for name, code in (
        ("II", found.ii),
        ("latency", found.latency),
        ("T", found.load),
        ("step", found.step),
        ("cycles", found.cycles),
        ("us", found.us),
    ):
        assert value[name] == pytest.approx(code, rel=1e-12), name


def test_the_text_below_the_example_has_its_numbers() -> None:
    value = worked()
    tensor = value["rounds"] * value["trip"] * value["II"] / (H100.clock_ghz * 1e3)
    response = value["T"] + value["CTAs"] * value["II"]
    text = " ".join(README.split())
    assert f"`rounds * trip * II` = {tensor:.0f} us" in text
    assert f"`R = T + CTAs * II` is {response:.0f} cycles" in text
    assert f"`ceil(R / II)` = {math.ceil(response / value['II'])} slots suffice" in text


def test_every_file_that_the_readme_names_is_there() -> None:
    for name in set(re.findall(r"`([\w/]+\.py)`", README)):
        assert (FOLDER.parent / name if "/" in name else FOLDER / name).exists(), name


def test_every_constant_that_the_readme_explains_is_one() -> None:
    text = README.partition("<!-- constants -->")[0]
    known = {one.name for one in constants()}
    named = set(re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", text))
    assert named <= known, named - known
    assert len(named) > 15
