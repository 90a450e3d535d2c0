"""Whatever a request does to its process costs that request alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeliner.errors import ToolError
from pipeliner.workers import Worker

from .in_worker import Does, cannot_be_made

ROOT = Path(__file__).parents[2]


@pytest.fixture
def worker():
    made = Worker(Does)
    yield made
    made.close()


def test_one_object_answers_all_requests(worker):
    first, second = worker.call("say", b"x" * 10**6, seconds=60), worker.call("say", 2, seconds=9)
    assert first[0] == b"x" * 10**6
    assert (second[0], second[1]) == (2, 2)
    assert first[2] == second[2] != os.getpid()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("crash", r"^the process ended: SIGSEGV$"),
        ("exit", r"^the process ended: exit code 3$"),
        ("raise", r"^lines, the last of which counts$"),
        ("hang", r"^cannot wait any longer: nothing came for 0.5 s$"),
    ],
)
def test_what_goes_wrong_costs_one_request(worker, what, message):
    worker.call("say", seconds=60)
    with pytest.raises(ToolError, match=message):
        worker.call(what, seconds=0.5 if what == "hang" else 60)
    assert worker.call("say", "still here", seconds=60)[0] == "still here"


def test_what_is_printed_is_no_answer(worker, capfd):
    assert worker.call("print", 7, seconds=60)[0] == 7
    assert "and below Python" in capfd.readouterr().err


def test_what_cannot_be_made_says_so_each_time():
    worker = Worker(cannot_be_made)
    for _ in range(2):
        with pytest.raises(ToolError, match=r"^no driver here$"):
            worker.call(seconds=60)
    worker.close()


def test_it_is_told_its_environment():
    worker = Worker(Does, {"CUDA_VISIBLE_DEVICES": "3"})
    assert worker.call("environment", "CUDA_VISIBLE_DEVICES", seconds=60) == "3"
    worker.close()


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_what_it_started_ends_with_it(worker):
    pid = worker.call("child", seconds=60)
    assert not gone(pid)
    worker.close()
    assert wait_until(lambda: gone(pid))


def test_ended_from_another_thread_it_waits_no_longer_and_starts_no_more(worker):
    worker.call("say", seconds=60)
    threading.Timer(0.2, worker.end).start()
    with pytest.raises(ToolError, match="SIGKILL"):
        worker.call("hang", seconds=60)
    with pytest.raises(ToolError, match="no more are to be"):
        worker.call("say", seconds=60)


def test_it_ends_when_its_parent_is_killed_even_while_it_hangs():
    code = (
        "from pipeliner.workers import Worker; from tests.tuning.in_worker import Does\n"
        "w = Worker(Does); print(w.call('say', seconds=60)[2], flush=True)\n"
        "w.call('hang', seconds=1000)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert wait_until(lambda: gone(pid))
