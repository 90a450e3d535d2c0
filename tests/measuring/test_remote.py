"""Through TVM's RPC tracker: two servers on this machine measure for one search."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import tvm

from pipeliner import cli
from pipeliner.errors import TargetError, ToolError, WorkloadError
from pipeliner.measuring import BuiltCandidate, Rounds, Trial, remote, remote_measurers
from pipeliner.measuring.process import Answers
from pipeliner.measuring.remote import LAST_PORT, RemoteBench, RemoteMeasurer, tracker_address
from pipeliner.records import Records
from pipeliner.schedules import Gemm
from pipeliner.tuning import tune
from tests.refusals import refused, the, told

for package in ("psutil", "cloudpickle", "tornado"):
    pytest.importorskip(package, reason="TVM's RPC needs it")

SPEC = Gemm(32, 16, 24, dtype="fp32")


class OnTheCpu:
    """Compiles the workload as it is for the CPU, whatever the candidate; one of them is wrong."""

    jobs = 2

    def __init__(self, folder) -> None:
        self.folder = folder
        self.numbers = itertools.count(1)

    def start(self) -> None:
        pass

    end = close = start

    def compile(self, spec, candidate) -> BuiltCandidate:
        made = next(self.numbers)
        wrong = made == 3
        function = (
            Gemm(32, 16, 24, dtype="fp32", epilogue=("relu",)) if wrong else spec
        ).function()
        path = self.folder / f"{made}.so"
        tvm.compile(
            tvm.IRModule({"k": function.with_attr("global_symbol", "k")}), "llvm"
        ).export_library(str(path))
        return BuiltCandidate(spec, candidate, str(path), "k", predicted_us=1.0)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def program(name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One of TVM's, with the processes that it starts in a group of their own."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tvm.exec.{name}", *arguments],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def tracker():
    port = free_port()
    ports = ["--port", str(port), "--port-end", str(port + 1)]
    started = [program("rpc_tracker", "--host", "127.0.0.1", *ports)]
    address = f"127.0.0.1:{port}"
    wait_for(lambda: remote_servers(address) == 0)
    for _ in range(2):
        server = ["--host", "127.0.0.1", "--tracker", address, "--key", "here"]
        started.append(program("rpc_server", *server))
    wait_for(lambda: remote_servers(address) == 2)
    yield address
    for process in reversed(started):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def remote_servers(address: str) -> int | None:
    """Servers that the tracker knows; None: it does not answer yet."""
    try:
        return len(remote_measurers(address, "here", "cpu"))
    except TargetError:
        return 0
    except ToolError:
        return None


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the tracker or a server did not come up"
        time.sleep(0.2)


@pytest.mark.deep("test_a_session_serves_trials_until_one_fails")
def test_two_servers_measure_for_one_search(tracker, tmp_path):
    measurers = remote_measurers(tracker, "here", "cpu")
    assert len(measurers) == 2
    found = tune(
        SPEC, "a100", trials=6, db=tmp_path / "r", measurers=measurers, compiler=OnTheCpu(tmp_path)
    )
    assert (found.done, found.failed) == (6, 1)
    with Records(tmp_path / "r") as records:
        kept = records.find()
    (failure,) = [one.failure for one in kept if one.failure]
    assert failure.code == "measure.wrong"
    assert all(one.conditions["server"] == "here" for one in kept)
    timed = [one for one in kept if one.samples]
    assert all(0 < us < 1e6 for one in timed for us in one.samples)
    assert sum(bool(one.beside) for one in timed) >= 3


def test_a_session_serves_trials_until_one_fails(tracker, tmp_path):
    """Libraries that are loaded there stay as they are; a failure ends the session."""
    measurer = RemoteMeasurer(*tracker_address(tracker), "here", "cpu", Rounds(6))
    compiler = OnTheCpu(tmp_path)
    first, second, wrong = (compiler.compile(SPEC, None) for _ in range(3))
    for built, beside in ((first, None), (second, first), (first, second), (second, first)):
        found = measurer.measure(built, beside)
        assert not found.failure
        assert found.samples
        assert bool(found.beside) == (beside is not None)
    assert measurer.measure(wrong, first).failure.code == "measure.wrong"
    assert not measurer.measure(second, first).failure
    failure = measurer.measure(BuiltCandidate(SPEC, path=__file__, name="k"), first).failure
    said = the("measure.failed", [failure])["why"]
    assert str(said).startswith("Loader for `.py` files ")  # the server's own words
    assert not measurer.measure(second, first).failure
    measurer.close()


def test_the_tracker_that_is_missing_is_started_by_what_the_error_says():
    """Also on a port that TVM's tracker takes only with another option."""
    port = free_port()
    assert port >= LAST_PORT
    with refused("tracker.silent", ToolError, port=port) as raised:
        remote_measurers(f"127.0.0.1:{port}", "here")
    said = str(raised.value).split("expected 'python -m tvm.exec.")[1].split("' to run")[0]
    process = program(*said.split())
    try:
        wait_for(lambda: remote_servers(f"127.0.0.1:{port}") == 0)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.deep("test_a_session_serves_trials_until_one_fails")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of TVM, whose frames would stay
def test_an_old_session_makes_room_for_a_new_one(tracker, tmp_path, monkeypatch):
    """Of two servers, four sessions one after the other: each lets its server go at once."""
    compiler = OnTheCpu(tmp_path)
    first, second = (compiler.compile(SPEC, None) for _ in range(2))
    monkeypatch.setattr(remote, "RENEW_SECONDS", 0.0)
    bench = functools.partial(RemoteBench, tracker_address(tracker), "here", "cpu")
    answers = Answers(bench, dict)
    started = time.monotonic()
    ends = []
    for _ in range(4):
        answers(Trial(second, first, Rounds(3)))
        ends.append(answers._at_hand.ends)
    assert ends == sorted(set(ends))
    assert time.monotonic() - started < remote.SESSION_SECONDS / 2


def test_a_lost_library_costs_its_trial(tracker):
    (measurer, *_) = remote_measurers(tracker, "here", "cpu")
    found = measurer.measure(BuiltCandidate(SPEC, path="/nowhere/k.so", name="k"), None)
    assert str(the("measure.failed", [found.failure])["why"]).startswith("[Errno 2] ")
    measurer.close()


def test_what_cannot_be_reached(tracker, capsys):
    with refused("tracker.no_server", TargetError, key="elsewhere"):
        remote_measurers(tracker, "elsewhere")
    with refused("tracker.silent", ToolError, host="127.0.0.1", port=1):
        remote_measurers("127.0.0.1:1", "here")
    with refused("tracker.address", WorkloadError, value="here"):
        tracker_address("here")
    assert cli.main(["tune", "gemm", "--tracker", tracker]) == 1
    told(capsys.readouterr().err, "option.tracker_target")
