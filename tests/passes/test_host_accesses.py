"""Statements that no kernel contains: the host would run them on the GPU's memory."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.targets import cuda_target
from tests.refusals import refused


@T.prim_func(s_tir=True)
def unbound_sum(a: T.handle, c: T.handle) -> None:
    """Partial sums by a kernel, and their sum by nobody: it ended in a segmentation fault."""
    T.func_attr({"global_symbol": "unbound_sum", "tirx.noalias": True})
    A = T.match_buffer(a, (2, 64, 32))
    C = T.match_buffer(c, (1, 64))
    P = T.alloc_buffer((2, 64))
    for z in T.thread_binding(2, thread="blockIdx.y"):
        for x in T.thread_binding(1, thread="blockIdx.x"):
            for i in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("P"):
                    P[z, x * 64 + i] = A[z, x * 64 + i, 0]
    for j in range(64):
        with T.sblock("total"):
            C[0, j] = P[0, j] + P[1, j]


@T.prim_func(s_tir=True)
def asked_by_the_host(a: T.handle, n: T.handle, c: T.handle) -> None:
    """A kernel that is launched where the GPU's memory says so."""
    T.func_attr({"global_symbol": "asked_by_the_host", "tirx.noalias": True})
    A = T.match_buffer(a, (64,))
    N = T.match_buffer(n, (1,), "int32")
    C = T.match_buffer(c, (64,))
    if N[0] > 3:
        for x in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("C"):
                C[x] = A[x]


@T.prim_func(s_tir=True)
def as_often_as(a: T.handle, c: T.handle, n: T.int32) -> None:
    """A kernel that the host launches some times: it reads nothing but an argument."""
    T.func_attr({"global_symbol": "as_often_as", "tirx.noalias": True})
    A = T.match_buffer(a, (64,))
    C = T.match_buffer(c, (64,))
    for _ in range(n):
        for x in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("C"):
                C[x] = A[x]


@pytest.mark.parametrize("request_", [{}, {"depth": 2}])
def test_a_sum_that_binds_nothing_is_refused(request_: Any) -> None:
    of = {"function": "unbound_sum", "block": "total", "buffer": "C"}
    with refused("host.access", PlanError, **of):
        pipeliner.pipeline(unbound_sum, "h100", **request_)


def test_tvm_s_own_driver_refuses_it_too() -> None:
    target = tvm.target.Target(cuda_target("h100"), host="llvm")
    with refused("host.access"):
        tvm.compile(unbound_sum, target, tir_pipeline="pipeliner")


def test_a_condition_of_the_host_is_refused() -> None:
    with refused("host.access", PlanError, block="asked_by_the_host", buffer="N"):
        pipeliner.pipeline(asked_by_the_host, "h100")


def test_the_host_may_launch_a_kernel_some_times() -> None:
    assert pipeliner.pipeline(as_often_as, "h100") is not None
