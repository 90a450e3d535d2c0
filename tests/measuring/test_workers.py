"""Whatever a request does to its process costs that request alone."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from pipeliner.errors import ToolError
from pipeliner.workers import Pool, Worker
from tests.refusals import refused

from .in_worker import Does, cannot_be_made

ROOT = Path(__file__).parents[2]
EVAL = functools.partial(eval, "lambda text: eval(text)")


def asked(text):
    """What ``text`` comes to in a new worker."""
    worker = Worker(EVAL)
    try:
        return worker.call(text, seconds=60)
    finally:
        worker.close()


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
    ("what", "code", "args"),
    [
        ("crash", "worker.died", {"how": "SIGSEGV"}),
        ("exit", "worker.died", {"how": "exit code 3"}),
        ("raise", "text", {"text": "lines, the last of which counts"}),
        ("no answer", "text", {}),
        ("hang", "worker.timeout", {"seconds": 0.5}),
    ],
)
def test_what_goes_wrong_costs_one_request(worker, what, code, args):
    worker.call("say", seconds=60)
    with refused(code, ToolError, **args):
        worker.call(what, seconds=0.5 if what == "hang" else 60)
    assert worker.call("say", "still here", seconds=60)[0] == "still here"


def test_a_request_that_cannot_be_read_there_costs_itself_alone(worker, monkeypatch):
    monkeypatch.setitem(sys.modules, "only_here", types.ModuleType("only_here"))
    sys.modules["only_here"].Unknown = Unknown = type("Unknown", (), {"__module__": "only_here"})
    pid = worker.call("say", seconds=60)[2]
    with pytest.raises(ToolError, match=r"^No module named 'only_here'$"):
        worker.call("say", Unknown(), seconds=60)
    assert worker.call("say", seconds=60)[2] == pid


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


def test_it_is_in_the_place_of_who_starts_it(tmp_path, monkeypatch):
    (tmp_path / "only_there.py").write_text("VALUE = 7")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONLY_HERE", "8")
    monkeypatch.delenv("HOME")
    assert asked("__import__('only_there').VALUE") == 7
    assert asked("__import__('os').getcwd()") == str(tmp_path)
    assert asked("[__import__('os').environ.get(k) for k in ('ONLY_HERE', 'HOME')]") == ["8", None]


def test_the_death_of_one_is_seen_while_others_live():
    """Or what one, or what it has started, holds of another's would keep that from being seen."""
    some = [Worker(Does) for _ in range(3)]
    for worker in some:
        worker.call("child", seconds=60)
    with refused("worker.died", ToolError, how="SIGSEGV"):
        some[0].call("crash", seconds=30)
    assert [worker.call("say", seconds=60)[1] for worker in some] == [1, 2, 2]
    for worker in some:
        worker.close()
    opened = "[at for at in range(3, 64) if __import__('os').path.exists(f'/proc/self/fd/{at}')]"
    assert asked(f"[__import__('os').get_inheritable(at) for at in {opened}]") == [False]


def test_what_compiles_is_without_pytorch(tmp_path, monkeypatch):
    """TVM imports it where there is one, which takes seconds, and has it count the GPUs."""
    (tmp_path / "torch.py").write_text("FOUND = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert asked("__import__('torch').FOUND")
    pool = Pool(EVAL, 1)
    assert pool.call("__import__('tvm') and __import__('sys').modules['torch']", seconds=60) is None
    pool.close()


def test_many_start_side_by_side_and_nobody_waits():
    pool = Pool(
        functools.partial(eval, "__import__('time').sleep(1) or __import__('os').getpid"), 4
    )
    began = time.monotonic()
    pool.start()
    assert time.monotonic() - began < 1
    pids = [pool.call(seconds=60) for _ in range(4)]
    assert time.monotonic() - began < 4
    assert len(set(pids)) == 4
    pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # gone, and no zombie left


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
    with refused("worker.died", ToolError, how="SIGKILL"):
        worker.call("hang", seconds=60)
    with refused("worker.ended", ToolError):
        worker.call("say", seconds=60)


SCRIPT = """
from pipeliner.workers import Worker
from tests.measuring.in_worker import Does
print("began", flush=True)
worker = Worker(Does)
print(worker.call("say", seconds=60)[2], worker.call("child", seconds=60), flush=True)
"""
"""Without a main guard; says who its worker is, and what that has started."""

ENDS = {
    "returns": "",
    "is killed": "input()",
    "is killed while a request hangs": "worker.call('hang', seconds=1000)",
}


@pytest.fixture
def script(tmp_path):
    """Starts SCRIPT and what is to follow; the process, its worker's number and that one's child's."""
    path = tmp_path / "script.py"
    started = []

    def start(rest):
        path.write_text(SCRIPT + rest)
        process = subprocess.Popen(
            [sys.executable, str(path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "began\n"
        return process, *map(int, process.stdout.readline().split())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_left_when_a_script_ends(script, how):
    process, *pids = script(ENDS[how])
    if how != "returns":
        assert not any(gone(pid) for pid in pids)
        process.kill()
    process.communicate()
    assert wait_until(lambda: all(gone(pid) for pid in pids))


def test_an_interrupt_is_for_the_script_alone(script):
    process, pid, _ = script(
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try: print('waits', flush=True); time.sleep(1000)\n"
        "except KeyboardInterrupt: print(worker.call('say', seconds=60)[2])\n"
    )
    assert process.stdout.readline() == "waits\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.stdout.readline() == f"{pid}\n"
