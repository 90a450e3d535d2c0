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
    MeasuredValue,
    machine_for,
    read_machine,
    write_machine,
)
from pipeliner.targets import cuda_target
from tests.refusals import refused, told

MADE = MachineFile(
    dataclasses.replace(H100, name="mine", l2_bytes_per_cycle=51.5),
    {"l2_bytes_per_cycle": MeasuredValue(51.5, "bytes a cycle and SM", "all SMs read")},
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
    with refused("machine.other", TargetError, arch="sm_90", found="sm_80"):
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
    ("change", "code", "args"),
    [
        (without("sms"), "machine.no_field", {"name": "sms"}),
        (without("mmas"), "machine.no_field", {"name": "mmas"}),
        (changed(sms=0), "machine.positive", {"name": "sms", "value": "0"}),
        (changed(sms=1.5), "machine.type", {"name": "sms", "expected": "int", "value": "1.5"}),
        (changed(clock_ghz="fast"), "machine.type", {"name": "clock_ghz", "expected": "float"}),
        (changed(clock_ghz=float("nan")), "machine.positive", {"name": "clock_ghz"}),
        (changed(sms_in_clusters=120), "machine.positive", {"name": "sms_in_clusters"}),
        (changed(sms_in_clusters=[132, 0]), "machine.positive", {"value": "[132, 0]"}),
        (changed(name=3), "machine.text", {"name": "name", "value": "3"}),
        (changed(arch="gfx90a"), "target.arch", {"arch": "gfx90a"}),
        (changed(wings=2), "machine.read", {}),
        (lambda data: data.update(version=9), "machine.version", {"expected": 1, "found": 9}),
        (lambda data: data.update(format="x"), "machine.format", {}),
    ],
)
def test_a_corrupt_file_is_refused_with_the_reason(path, change, code, args) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with refused(code, TargetError, **args) as raised:
        read_machine(path)
    assert raised.value.reason.code == "machine.read"
    assert raised.value.reason["path"] == str(path)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "\x00"])
def test_what_is_no_json_of_ours_is_refused(path, text) -> None:
    path.write_text(text)
    with refused("machine.read", TargetError):
        read_machine(path)


def test_a_missing_file_is_named(tmp_path) -> None:
    with refused("machine.read", TargetError, why="No such file or directory"):
        machine_for(str(tmp_path / "none.json"))


def test_the_command_plans_by_it(path, capsys) -> None:
    gemm = ["plan", "gemm", "--m", "256", "--n", "256", "--k", "256"]
    assert main([*gemm, "--machine", str(path)]) == 0
    assert "on mine (sm_90" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--machine", "x.json", "--target", "h100"], "option.machine_target"),
        (["--machine", "x"], "option.json_file"),
        (["--machine", "no.json"], "machine.read"),
    ],
)
def test_the_command_refuses_what_is_no_machine(capsys, options, code) -> None:
    assert main(["plan", "gemm", *options]) == 1
    told(capsys.readouterr().err, code)
