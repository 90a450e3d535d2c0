"""A planted defect is all that tells a broken kernel's CUDA from the whole one's."""

from __future__ import annotations

import difflib

import pytest

from .planted import CROSSING, DEFECTS, planted, whole

SHOWS = {"barrier": "__syncthreads()", "wait": "wait_group", "slot": "buf_dyn_shmem"}


@pytest.mark.parametrize(("name", "kind"), DEFECTS)
def test_the_cuda_differs_where_the_defect_is(name: str, kind: str) -> None:
    before = whole(name, "sm_90").cuda.splitlines()
    after = planted(name, kind, "sm_90").cuda.splitlines()
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert any(SHOWS[kind] in line for line in changed), changed
    assert len(changed) <= 40


@pytest.mark.parametrize("name", CROSSING)
@pytest.mark.deep("test_the_cuda_differs_where_the_defect_is")
def test_a_proxy_fence_left_out_is_all_that_differs(name: str) -> None:
    """The emulator objects to nothing but the fence that is missing."""
    before = whole(name, "sm_90a").cuda.splitlines()
    after = planted(name, "fence", "sm_90a").cuda.splitlines()
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert any("fence.proxy.async" in line for line in changed), changed
    assert len(changed) <= 10
