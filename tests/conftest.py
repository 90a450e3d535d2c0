"""Markers: what needs a GPU or nvcc is skipped where there is none, with the reason."""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec

import pytest

from pipeliner.bench.peers import tensor_intrinsics
from pipeliner.errors import ToolError
from pipeliner.targets import gpu
from pipeliner.toolchain.nvcc import find_nvcc
from tests.parts import chosen

# TVM's parser looks at the whole stack for each function, and for frames that come from no file
# inspect.getmodule searches all modules unless they are known: those that a process of pytest-xdist
# begins with, those of the import system and the parser's own.
for name in ("string", "frozen importlib._bootstrap", "frozen importlib._bootstrap_external",
             "frozen runpy", "ast"):  # fmt: skip
    inspect.modulesbyfile.setdefault(os.path.abspath(f"<{name}>"), "")


@cache
def missing(marker: str) -> str | None:
    """Why tests with ``marker`` cannot run here, or None."""
    if marker == "gpu" and gpu() is None:
        return "no GPU is visible"
    if marker == "gpu" and find_spec("torch") is None:
        return "PyTorch is missing"
    if marker in ("gpu", "nvcc"):
        try:
            find_nvcc()
        except ToolError as err:
            return str(err)
    return None


@pytest.fixture(scope="session")
def intrinsics() -> None:
    """TVM's tensor intrinsics: 8 seconds, 20 where TVM itself loads them in the middle of a test."""
    tensor_intrinsics()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept on disk is that of this run: no test finds what another one has left."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PIPELINER_CACHE", str(tmp_path_factory.mktemp("cache")))
        environment.setenv("PIPELINER_PROVE", "never")  # beside nvcc: other tests need processors
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cases", action="store_true", help="also those left to verify-all")
    parser.addoption("--shard", default="1/1", help="one part of all tests, such as 2/8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, count = map(int, config.getoption("shard").split("/"))
    asked = (*config.args, config.option.keyword)
    one_case = any("[" in arg for arg in asked)
    one_test = any("::" in arg or arg.startswith("test_") for arg in asked)
    all_cases = one_case or config.getoption("all_cases")
    kept = items if all_cases else chosen(items, deep=one_test)
    kept = kept[number - 1 :: count]
    left_out = set(items).difference(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = kept


def pytest_collection_finish() -> None:
    """What was collected stays: no later garbage collection need look at it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers():
        reason = missing(mark.name)
        if reason is not None:
            pytest.skip(reason)
