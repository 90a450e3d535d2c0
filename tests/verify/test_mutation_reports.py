"""What mutation says of kernels that are wrong, of barriers too many, and of every operation."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason
from pipeliner.errors import EmulatorError, WorkloadError
from pipeliner.kernel.compiled import Kernel, compile_kernel
from pipeliner.mutation import Campaign, Fate, mutants, mutate, mutated
from pipeliner.mutation.mutants import device_functions
from pipeliner.mutation.operations import kind_of
from pipeliner.targets import cuda_target

from ..refusals import refused, the
from .mutation_kernels import FORMS, count_in_cuda, gemm


def fates_of(func: Any, **options: Any) -> list[Fate]:
    return list(Campaign(func, target="a100", **options).run())


@T.prim_func(s_tir=True)
def reversal(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    """Every second barrier is one too many."""
    T.func_attr({"global_symbol": "reversal", "tirx.noalias": True})
    for tx in T.thread_binding(128, thread="threadIdx.x"):
        with T.sblock("all"):
            S = T.sblock_alloc_buffer((128,), "float32", scope="shared")
            S[tx] = A[tx]
            T.tvm_storage_sync("shared")
            T.tvm_storage_sync("shared")
            B[tx] = S[127 - tx]
            T.tvm_storage_sync("shared")


def stock(func: Any) -> Kernel:
    """``func`` as TVM lowers it, which leaves barriers by hand as they are."""
    return compile_kernel(tvm.IRModule({"main": func}), cuda_target("a100"), "s_tir")


def test_barriers_too_many_survive_and_one_with_nothing_behind_it_is_proved() -> None:
    fates = fates_of(stock(reversal))
    assert len(fates) == count_in_cuda(stock(reversal).cuda)
    *doubled, last = fates
    assert [fate.killed or fate.reason for fate in doubled] == [""] * len(doubled)
    assert last.reason == Reason("mutation.nothing_follows")
    assert not last.killed


def test_a_wrong_output_kills_where_nothing_races() -> None:
    """A slot further in a ring that is all written before it is read."""
    kernel = gemm(3, 3, instruction="simt", mechanism="direct", epilogue="rolled")
    causes = [fate.killed_by for fate in Campaign(kernel).run()]
    assert the("mutation.differs", causes)["size"] == 512


def test_a_kernel_that_is_wrong_itself_is_refused() -> None:
    kernel = gemm(4, 3, **FORMS[0])
    first = next(mutant for mutant in mutants(kernel.lowered) if mutant.kind == "barrier")
    with refused("mutation.hazard", WorkloadError, hazard="race"):
        mutate(mutated(kernel.lowered, first))


def test_a_kernel_that_is_not_what_its_reference_says_is_refused() -> None:
    kernel = gemm(4, 3, **FORMS[0])
    with refused("mutation.wrong_sums", WorkloadError):
        mutate(kernel, reference=lambda a, b, c: (a + 1) @ b.T)
    assert mutate(kernel, reference=lambda a, b, c: a @ b.T, timings=["late"], orders=["lockstep"])


def test_an_operation_inside_an_expression_is_refused() -> None:
    @T.prim_func(s_tir=True)
    def votes(A: T.Buffer((128,), "int32")):
        T.func_attr({"global_symbol": "votes", "tirx.noalias": True})
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.sblock("all"):
                A[tx] = T.cuda.syncthreads_and(A[tx])

    with refused("mutation.in_expressions", EmulatorError, count=1):
        mutants(stock(votes).lowered)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tirx.tvm_storage_sync", "barrier"),
        ("tirx.ptx.bar_sync_count", "barrier"),
        ("tirx.ptx.barrier_cluster_arrive", "barrier"),
        ("tirx.cuda.cluster_sync", "barrier"),
        ("tirx.ptx.cp_async_wait_all", "wait"),
        ("tirx.ptx.wgmma_wait_group", "wait"),
        ("tirx.cuda.mbarrier_wait", "wait"),
        ("tirx.ptx.mbarrier_try_wait_parity", "wait"),
        ("tirx.ptx.griddepcontrol", "wait"),
        ("tirx.ptx.cp_async_bulk_commit_group", "commit"),
        ("tirx.ptx.mbarrier_init", "arrival"),
        ("tirx.ptx.mbarrier_arrive_expect_tx", "arrival"),
        ("tirx.ptx.cp_async_mbarrier_arrive", "arrival"),
        ("tirx.ptx.wgmma_fence", "fence"),
        ("tirx.ptx.fence_proxy", "fence"),
        ("tirx.ptx.cp_async_cg", None),
        ("tirx.ptx.setmaxnreg", None),
        ("tirx.ptx.mma", None),
        ("tirx.cuda.elect_sync", None),
        ("tirx.tvm_mma_sync", None),
    ],
)
def test_what_synchronises(name: str, kind: str | None) -> None:
    assert tvm.ir.Op.get(name).name == name
    assert kind_of(name) == kind


def test_the_mutants_of_one_kernel_leave_it_alone() -> None:
    kernel = gemm(4, 3, **FORMS[0])
    before = kernel.lowered.script()
    mutate(kernel)
    assert kernel.lowered.script() == before
    kernels, _ = device_functions(kernel.lowered)
    assert all(isinstance(func, tirx.PrimFunc) for func in kernels.values())
