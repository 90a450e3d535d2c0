"""A machine in a file, and what plans by it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pipeliner.cli import main
from pipeliner.errors import TargetError
from pipeliner.machine import (
    A100,
    H100,
    MACHINES,
    MachineFile,
    Measurement,
    machine_for,
    read_machine,
    write_machine,
)
from pipeliner.targets import cuda_target

MADE = MachineFile(
    dataclasses.replace(H100, name="mine", l2_bytes_per_cycle=51.5),
    {"l2_bytes_per_cycle": Measurement(51.5, "bytes a cycle and SM", "all SMs read")},
    {"driver": "1"},
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "machine.json"
    write_machine(path, MADE)
    return path


def test_what_is_written_is_read(path) -> None:
    assert read_machine(path) == MADE


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.key)
def test_every_machine_survives_a_file(tmp_path, machine) -> None:
    path = tmp_path / "machine.json"
    write_machine(path, MachineFile(machine))
    assert read_machine(path).machine == machine


def test_a_target_carries_the_file(path) -> None:
    assert machine_for(str(path)) == MADE.machine
    target = cuda_target(str(path))
    assert str(target.attrs["arch"]) == H100.arch
    assert machine_for(target) == MADE.machine


def test_a_file_of_another_architecture_is_refused(tmp_path) -> None:
    from tvm.target import Target

    path = tmp_path / "a100.json"
    write_machine(path, MachineFile(A100))
    target = Target({"kind": "cuda", "arch": "sm_90", "model": str(path)})
    with pytest.raises(TargetError, match=r"^cannot plan for sm_90 by .*: it describes sm_80$"):
        machine_for(target)


def changed(**values):
    def change(data):
        data["machine"].update(values)

    return change


def without(name):
    def change(data):
        del data["machine"][name]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("sms"), "it has no 'sms'"),
        (without("mmas"), "it has no 'mmas'"),
        (changed(sms=0), "expected 'sms' to be positive, not 0"),
        (changed(sms=1.5), "expected 'sms' to be of type int, not 1.5"),
        (changed(clock_ghz="fast"), "expected 'clock_ghz' to be of type float, not 'fast'"),
        (changed(clock_ghz=float("nan")), "expected 'clock_ghz' to be positive, not nan"),
        (changed(name=3), "expected 'name' to be a text, not 3"),
        (changed(arch="gfx90a"), "expected an architecture such as sm_90, not 'gfx90a'"),
        (changed(wings=2), "unexpected keyword argument 'wings'"),
        (lambda data: data.update(version=9), "expected version 1, it has 9"),
        (lambda data: data.update(format="x"), "expected the format 'pipeliner machine'"),
    ],
)
def test_a_corrupt_file_is_refused_with_the_reason(path, change, said) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(TargetError) as raised:
        read_machine(path)
    assert str(raised.value).startswith(f"cannot read the machine file '{path}': ")
    assert said in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "\x00"])
def test_what_is_no_json_of_ours_is_refused(path, text) -> None:
    path.write_text(text)
    with pytest.raises(TargetError, match=r"^cannot read the machine file "):
        read_machine(path)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(TargetError, match=r"none\.json': No such file"):
        machine_for(str(tmp_path / "none.json"))


def test_the_command_plans_by_it(path, capsys) -> None:
    gemm = ["plan", "gemm", "--m", "256", "--n", "256", "--k", "256"]
    assert main([*gemm, "--machine", str(path)]) == 0
    assert "on mine (sm_90" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--machine", "x.json", "--target", "h100"], "cannot use --machine with --target"),
        (["--machine", "x"], "expected --machine to name a .json file, not 'x'"),
        (["--machine", "no.json"], "cannot read the machine file 'no.json': No such file"),
    ],
)
def test_the_command_refuses_what_is_no_machine(capsys, options, said) -> None:
    assert main(["plan", "gemm", *options]) == 1
    assert said in capsys.readouterr().err
