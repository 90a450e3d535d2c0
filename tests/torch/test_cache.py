"""Kernels on disk: the user's alone, checked, bounded, made once by many processes."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pipeliner.errors import ToolError
from pipeliner.torch import keys
from pipeliner.torch.cache import ABANDONED, KernelCache
from tests.refusals import refused

KEY = '{"workload": "gemm"}'
PLENTY = 1 << 20


def opened(path: Path, most: int = PLENTY) -> KernelCache:
    return KernelCache.opened(path / "kernels", most)


def store(cache: KernelCache, key: str, content: bytes = b"machine code", note: str = "") -> Path:
    return cache.store(key, lambda path: path.write_bytes(content), note)


def description(cache: KernelCache) -> Path:
    (found,) = cache.path.glob("*.json")
    return found


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    assert cache.find(KEY) is None
    store(cache, KEY, note="a note")
    found = opened(tmp_path).find(KEY)
    assert found is not None
    assert found.path.read_bytes() == b"machine code"
    assert found.note == "a note"
    assert {file.stat().st_mode & 0o777 for file in cache.path.iterdir()} == {0o600}
    assert cache.find("another key") is None


def test_it_is_the_users_alone(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    assert cache.path.stat().st_mode & 0o777 == 0o700
    cache.path.chmod(0o755)
    assert opened(tmp_path).path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_one_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = opened(tmp_path).path
    folder.chmod(mode)
    with refused("cache.writable", ToolError, mode=f"{mode:04o}"):
        opened(tmp_path)
    assert folder.stat().st_mode & 0o777 == mode


def test_another_users_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with refused("cache.owner", ToolError):
        opened(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("")
    with refused("cache.no_folder", ToolError):
        opened(tmp_path)


def test_a_library_that_was_changed_is_refused(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    store(cache, KEY).write_bytes(b"another's code")
    with refused("cache.digest", ToolError):
        cache.find(KEY)
    store(cache, KEY)
    assert cache.find(KEY) is not None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"key": "another key"}, "cache.key"),
        ({"sha256": "0" * 64}, "cache.digest"),
        ({"library": "../elsewhere.so"}, "cache.digest"),
        ({"library": "gone.so"}, "cache.digest"),
        ({"note": None}, "cache.damaged"),
    ],
)
def test_a_description_that_was_changed_is_refused(
    tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    cache = opened(tmp_path)
    library = store(cache, KEY)
    (tmp_path / "elsewhere.so").write_bytes(library.read_bytes())
    place = description(cache)
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    with refused(code, ToolError):
        cache.find(KEY)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff"])
def test_a_description_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    cache = opened(tmp_path)
    store(cache, KEY)
    description(cache).write_bytes(text.encode("latin1"))
    with refused("cache.damaged", ToolError):
        cache.find(KEY)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = opened(tmp_path, most=30)
    for at, key in enumerate("abc"):
        store(cache, key, b"0123456789")
        place = cache.path / f"{cache._place(key).name}"
        os.utime(place, (at, at))
    assert cache.find("a") is not None  # used again, so b is the oldest
    store(cache, "d", b"0123456789")
    assert [key for key in "abcd" if cache.find(key) is not None] == ["a", "c", "d"]
    assert sum(file.stat().st_size for file in cache.path.glob("*.so")) <= 30


def test_one_that_is_too_large_stays_until_the_next(tmp_path: Path) -> None:
    cache = opened(tmp_path, most=5)
    store(cache, "a", b"0123456789")
    assert cache.find("a") is not None
    store(cache, "b", b"0")
    assert cache.find("a") is None


def test_what_nothing_names_is_removed_once_it_is_old(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    old, new = cache.path / "old.so", cache.path / "new.so"
    for file in (old, new):
        file.write_bytes(b"")
    long_ago = time.time() - 2 * ABANDONED
    os.utime(old, (long_ago, long_ago))
    store(cache, KEY)
    assert not old.exists()
    assert new.exists()


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    cache = opened(tmp_path)

    def fails(path: Path) -> None:
        path.write_bytes(b"half of it")
        raise ToolError("nvcc.missing", install="nvcc")

    with refused("nvcc.missing"):
        cache.store(KEY, fails)
    assert list(cache.path.iterdir()) == []


def _makes(folder: Path, start: Any, made: Any) -> None:
    cache = opened(folder)
    start.wait()
    with cache.making(KEY):
        if cache.find(KEY) is None:
            time.sleep(0.05)
            store(cache, KEY, str(os.getpid()).encode())
            made.put(os.getpid())


def test_many_processes_make_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, made = context.Event(), context.SimpleQueue()
    workers = [context.Process(target=_makes, args=(tmp_path, start, made)) for _ in range(6)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 6
    found = opened(tmp_path).find(KEY)
    assert found is not None
    assert found.path.read_bytes() == str(made.get()).encode()
    assert made.empty()


def _stores_and_finds(folder: Path, number: int) -> None:
    cache = opened(folder, most=25)
    for turn in range(40):
        store(cache, f"{(number + turn) % 4}", f"{number}-{turn}".zfill(10).encode())
        with contextlib.suppress(ToolError):  # removed between its description and itself
            found = cache.find(f"{turn % 4}")
            assert found is None or found.path.suffix == ".so"


def test_processes_without_a_lock_never_see_half_of_a_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_stores_and_finds, args=(tmp_path, at)) for at in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4


def test_the_key_has_all_that_makes_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeliner.schedules import Gemm
    from pipeliner.targets import cuda_target

    def key(spec: Any = None, target: str = "h100", candidate: str = "") -> str:
        return keys.kernel_key(spec or Gemm(64, 64, 64), cuda_target(target), candidate)

    base = key()
    assert key() == base
    others = [key(Gemm(64, 64, 128)), key(target="h200"), key(target="a100"), key(candidate="{}")]
    monkeypatch.setattr(keys, "versions_key", lambda: "pipeliner 0.0")
    others.append(key())
    monkeypatch.undo()
    monkeypatch.setattr(keys, "sources", lambda: "edited")
    others.append(key())
    monkeypatch.undo()
    monkeypatch.setenv("TVM_CUDA_NVCC_NO_FAST_MATH", "1")
    others.append(key())
    assert len({base, *others}) == 8


def test_the_digest_of_sources_has_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    keys.sources.cache_clear()
    read: list[str] = []
    whole = Path.read_bytes

    def reads(path: Path) -> bytes:
        read.append(path.as_posix())
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", reads)
    keys.sources()
    for one in ("passes/expand/rewrite.py", "schedules/choice.py", "torch/keys.py"):
        assert any(path.endswith(one) for path in read)
