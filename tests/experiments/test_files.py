"""Files of experiments: what each key means, and what is wrong in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeliner import cli
from pipeliner.commands.lab.experiment import EXAMPLE
from pipeliner.errors import WorkloadError
from pipeliner.experiments import file, read_experiment
from pipeliner.schedules import Attention, Gemm
from pipeliner.schedules.suites import NAMES
from tests.refusals import refused

from .test_experiments import SMALL

README = Path(file.__file__).with_name("README.md")


@pytest.mark.parametrize(
    ("change", "code", "args"),
    [
        (
            ("[[workload]]", "[[work]]"),
            "experiment.unknown_field",
            {"what": "the file", "name": "work"},
        ),
        (('kind = "gemm"', 'kind = "gem"'), "experiment.kind", {"value": "'gem'"}),
        (
            ('peer = "cublas"', 'peer = "blas"'),
            "experiment.choice",
            {"what": "peer", "choices": ("cublas", "cudnn", "triton", "torch"), "value": "'blas'"},
        ),
        (
            ("depth = [1, 2, 3]", "depth = [0]"),
            "request.slots",
            {"option": "depth", "value": "0"},
        ),
        (
            ("depth {depth}", "depth"),
            "experiment.twice",
            {"what": "variant", "name": "depth"},
        ),
        (
            ('dtype = "bf16"', 'rows = "bf16"'),
            "experiment.unknown_field",
            {"name": "rows"},
        ),
        (("m = 64", "m = 0"), "tile.least", {"name": "m", "value": 0}),
        (("m = 64", "m = 64.0"), "tile.integer", {"name": "m", "value": "64.0"}),
        (
            ("m = 64, n = 64,", ""),
            "experiment.fields",
            {"what": "a tile of gemm", "names": ("m", "n")},
        ),
        (
            ("{ m = 64, n = 64, k = 32 }\ndepth", '"64x64x32"\ndepth'),
            "experiment.table",
            {"name": "tile", "value": "'64x64x32'"},
        ),
        (
            ("square = [64, 128]", "m = 64"),
            "experiment.fields",
            {"what": "gemm", "names": ("n", "k")},
        ),
        (
            ("square = [64, 128]", "square = 64\nrows = 3"),
            "experiment.unknown_field",
            {"what": "gemm", "name": "rows"},
        ),
        (("square = [64, 128]", "square = 64\nm = 3"), "experiment.square", {}),
        (("square = [64, 128]", "square = []"), "experiment.empty", {"name": "square"}),
        (
            ('"gemm"\nsquare = [64, 128]', '"conv2d"\nn = 1'),
            "experiment.fields",
            {"what": "conv2d"},
        ),
        (
            ('kind = "gemm"\nsquare = [64, 128]', 'suite = "gemm"\nonly = "x"'),
            "experiment.only",
            {"value": "x"},
        ),
        (("depth {depth}", "slots {slots}"), "experiment.braces", {"name": "slots {slots}"}),
        (("depth {depth}", "{}"), "experiment.braces", {"name": "{}"}),
        (("depth = [1, 2, 3]", "depth = []"), "experiment.empty", {"name": "depth"}),
        (("depth = [1, 2, 3]", 'depth = 1\npdl = "yes"'), "request.pdl", {"value": "'yes'"}),
        (
            ("depth = [1, 2, 3]", 'for = "conv2d"'),
            "experiment.choice",
            {
                "what": "for",
                "choices": (
                    "gemm",
                    "gated",
                    "conv",
                    "attention",
                    "rows",
                    "scaled",
                    "grouped",
                    "packed",
                    "back_to_back",
                    "function",
                ),
                "value": "'conv2d'",
            },
        ),
        (
            ('peer = "cublas"', 'peer = "cublas"\ndepth = 2'),
            "experiment.peer_options",
            {"name": "cuBLAS"},
        ),
        (
            ('title = "small"', 'machines = "h100"'),
            "experiment.machines",
            {"value": "'h100'"},
        ),
        (('title = "small"', 'title = ""'), "experiment.text", {"name": "title"}),
        (("title =", "title"), "experiment.read", {}),
        (('name = "cuBLAS"', ""), "experiment.unnamed", {}),
    ],
    ids=range(26),
)
def test_what_is_wrong_in_a_file_is_said_in_one_line(tmp_path, change, code, args):
    path = tmp_path / "bad.toml"
    path.write_text(SMALL.replace(*change))
    with refused(code, WorkloadError, **args) as raised:
        read_experiment(path)
    assert raised.value.reason["path"] == str(path)
    assert "\n" not in str(raised.value)


def test_what_is_for_none_of_the_workloads_is_refused(tmp_path):
    path = tmp_path / "none.toml"
    path.write_text('[[workload]]\nsuite = "gemm"\n[[variant]]\nname = "a"\nfor = "conv"\n')
    with refused("experiment.no_variant", WorkloadError):
        read_experiment(path)


def test_workloads_of_any_suite_are_of_a_kind(tmp_path):
    path = tmp_path / "all.toml"
    tables = "".join(f'[[workload]]\nsuite = "{name}"\n' for name in NAMES)
    kinds = ("gemm", "conv", "attention")
    variants = "".join(f'[[variant]]\nname = "{one}"\nfor = "{one}"\n' for one in kinds)
    path.write_text(tables + variants)
    experiment = read_experiment(path)
    for workload in experiment.workloads:
        (variant,) = experiment.of(workload)
        known = {Gemm: "gemm", Attention: "attention"}
        assert variant.name == known.get(type(workload.spec), "conv")


def test_every_option_may_be_a_list_and_reaches_the_candidates(tmp_path):
    """None of those that ``pipeliner.pipeline`` has is accepted and then forgotten."""
    path = tmp_path / "all.toml"
    path.write_text(
        """
        machines = ["H100"]
        [[workload]]
        kind = "gemm"
        square = [1024, 2048]
        dtype = "e4m3"
        layout = ["NT", "NN"]
        batch = [1, 4]
        [[variant]]
        name = "{accumulate} {operand} {pdl} {reduction} {warps}"
        accumulate = ["fast", "promoted"]
        operand = ["shared", "registers"]
        pdl = [true, false]
        reduction = "workspace"
        warps = [2, 2]
        workload = { epilogue = ["bias", "relu"] }
        """
    )
    experiment = read_experiment(path)
    assert experiment.machines == ("h100",)
    labels = [one.label for one in experiment.workloads]
    assert labels[:4] == [f"1024^3 {ab} batch {n}" for ab in ("NT", "NN") for n in (1, 4)]
    assert len(experiment.variants) == 8
    first = experiment.variants[0]
    assert first.name == "fast shared True workspace (2, 2)"
    asked = {"accumulate": "fast", "operand": "shared", "pdl": True, "reduction": "workspace"}
    assert first.request.as_dict() == {**asked, "warps": (2, 2)}
    assert {one.request.accumulate for one in experiment.variants} == {"fast", "promoted"}
    assert first.spec(experiment.workloads[0]).epilogue == ("bias", "relu")


def test_a_missing_file_names_the_shipped_ones(tmp_path):
    with refused("experiment.missing", WorkloadError, why="No such file or directory"):
        read_experiment(tmp_path / "none.toml")


def test_help_and_readme_name_every_key(capsys):
    """The file that they show has every key of a kind, and both list the options."""
    with pytest.raises(SystemExit):
        cli.main(["experiment", "--help"])
    text, readme = capsys.readouterr().out, README.read_text()
    for line in EXAMPLE.splitlines():
        assert line in text
        assert line in readme
    for key in (*file._TOP[:2], "kind", "square", "suite", "only", *file._VARIANT):
        assert f"`{key}`" in readme or f"[[{key}]]" in readme, key
    for key in (*file._TOP, "suite", "only", *file._VARIANT):
        assert key in text, key
