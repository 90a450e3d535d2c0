"""Workers are forked from one process, and are as good as programs of their own."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeliner.errors import ToolError
from pipeliner.workers import Worker, process

from .in_worker import Does
from .test_workers import ROOT, gone, wait_until

PACKAGE = "pipeliner.tuning.compiling"


@pytest.fixture
def nursery(monkeypatch):
    """One of a test's own."""
    made = process._Nursery()
    monkeypatch.setattr(process, "_loaded", made)
    monkeypatch.setattr(process, "_bare", made)
    yield made
    made.stop()


def asked(text: str, module: str = ""):
    """What ``text`` comes to in a new worker, for which ``module`` was loaded."""
    worker = Worker(functools.partial(eval, "lambda text: eval(text)"))
    worker._module = module
    try:
        return worker.call(text, seconds=60)
    finally:
        worker.close()


def test_what_was_loaded_there_is_loaded_in_a_worker(nursery):
    process.preload(PACKAGE)
    assert asked(f"'{PACKAGE}' in __import__('sys').modules", PACKAGE)
    started = time.monotonic()
    assert asked("'tvm' in __import__('sys').modules", PACKAGE)
    assert time.monotonic() - started < 0.5  # it takes a second or more to load


def test_pytorch_is_kept_out_of_what_is_loaded(nursery, tmp_path, monkeypatch):
    """One that counts the GPUs when it is imported, as tvm-ffi has it do, would spoil each fork."""
    (tmp_path / "torch.py").write_text("COUNTED = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not asked("getattr(__import__('sys').modules.get('torch'), 'COUNTED', False)", PACKAGE)
    assert asked("'tvm' in __import__('sys').modules", PACKAGE)


def test_what_measures_comes_from_where_nothing_was_loaded(tmp_path, monkeypatch):
    nurseries = process._Nursery(), process._Nursery()
    monkeypatch.setattr(process, "_loaded", nurseries[0])
    monkeypatch.setattr(process, "_bare", nurseries[1])
    (tmp_path / "torch.py").write_text("COUNTED = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    process.preload(PACKAGE)
    loaded = "[one for one in __import__('sys').modules if one in ('tvm', 'numpy', 'torch')]"
    assert asked(loaded) == []
    assert asked("__import__('torch').COUNTED")
    parents = {asked("__import__('os').getppid()", module) for module in ("", PACKAGE)}
    assert parents == {one._process.pid for one in nurseries}
    for one in nurseries:
        one.stop()


def test_it_has_no_thread_and_no_driver_when_it_forks(nursery):
    """A lock that another thread holds would never be let go in a child; nor would a context."""
    for module in (PACKAGE, "pipeliner.bench.compiling", "pipeliner.meta.build"):
        process.preload(module)
    product = "float((__import__('numpy').ones((600, 600)) @ __import__('numpy').ones(600)).sum())"
    assert asked(product, PACKAGE) == 600 * 600  # it has forked: BLAS gives up its threads for that
    pid = nursery._process.pid
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    opened = [os.readlink(at) for at in Path(f"/proc/{pid}/fd").iterdir()]
    assert not [name for name in opened if "nvidia" in name]


def test_a_worker_is_in_the_place_of_who_starts_it(nursery, tmp_path, monkeypatch):
    asked("1")  # the nursery is there before all this
    (tmp_path / "only_here.py").write_text("VALUE = 7")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONLY_HERE", "8")
    monkeypatch.delenv("HOME")
    assert asked("__import__('only_here').VALUE") == 7
    assert asked("__import__('os').getcwd()") == str(tmp_path)
    assert asked("[__import__('os').environ.get(k) for k in ('ONLY_HERE', 'HOME')]") == ["8", None]
    outputs = "[__import__('os').readlink(f'/proc/self/fd/{at}') for at in (1, 2)]"
    assert asked(outputs) == [os.readlink("/proc/self/fd/2")] * 2
    assert asked("__import__('os').getsid(0) == __import__('os').getpid()")


def test_many_at_once_are_told_apart(nursery):
    some = [Worker(Does) for _ in range(5)]
    for worker in some:
        worker.start()
    pids = [worker.call("say", at, seconds=60)[2] for at, worker in enumerate(some)]
    assert len(set(pids)) == 5
    with pytest.raises(ToolError, match="SIGSEGV"):
        some[2].call("crash", seconds=60)
    assert [some[at].call("say", seconds=60)[1:] for at in (0, 1, 3, 4)] == [
        (2, pids[at]) for at in (0, 1, 3, 4)
    ]
    for worker in some:
        worker.close()
    assert all(gone(pid) for pid in pids)  # closed is gone, not going
    assert not Path(f"/proc/{pids[2]}").exists()  # nor is a zombie left


def test_nothing_of_the_nursery_stays_open_in_a_worker(nursery):
    """Or the death of one would not be seen while another lives."""
    others = [Worker(Does) for _ in range(3)]
    for worker in others:
        worker.call("say", seconds=60)
    opened = asked("[*__import__('os').scandir('/proc/self/fd')].__len__()")
    assert opened == 3 + 2 + 1  # the usual, requests and answers, and the folder that is read
    for worker in others:
        worker.close()


def test_another_nursery_takes_the_place_of_one_that_was_killed(nursery):
    worker = Worker(Does)
    pid = worker.call("say", seconds=60)[2]
    nursery._process.send_signal(signal.SIGKILL)
    nursery._process.wait()
    assert worker.call("say", seconds=60)[1] == 1  # a new one
    assert wait_until(lambda: gone(pid))
    pid = worker.call("say", seconds=60)[2]

    def kill() -> None:
        nursery._process.kill()
        nursery._process.wait()
        os.kill(pid, signal.SIGKILL)

    threading.Timer(0.2, kill).start()
    with pytest.raises(ToolError, match="the process ended: no one knows how"):
        worker.call("hang", seconds=60)
    worker.close()


def test_a_fork_of_this_process_has_its_own(nursery):
    ours = asked("__import__('os').getppid()")
    assert ours == nursery._process.pid
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            nursery.stop()  # of its parent's, it stops none
            code = int(asked("__import__('os').getppid()") == ours)
            nursery.stop()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert asked("__import__('os').getppid()") == ours


@pytest.mark.parametrize("how", ["returns", "is killed"])
def test_nothing_is_left_when_the_first_process_ends(how):
    code = (
        "from pipeliner.workers import Worker, process\n"
        "from tests.tuning.in_worker import Does\n"
        "w = Worker(Does)\n"
        "pids = w.call('say', seconds=60)[2], w.call('child', seconds=60)\n"
        "print(*pids, process._bare._process.pid, flush=True)\n"
    ) + ("input()" if how == "is killed" else "")
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pids = [int(text) for text in parent.stdout.readline().split()]
    if how == "is killed":
        assert not any(gone(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert wait_until(lambda: all(gone(pid) for pid in pids))
