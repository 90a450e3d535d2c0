"""Copies: mechanism, width, alignment, ragged edges."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.plan import CopyPlan, KernelPlan
from tests.refusals import refused

from ..corpus.annotated import gemm, simt_gemm
from ..corpus.harness import run
from . import functions, gemms
from .checks import calls, check, data, gemm_inputs, pipelined_loop, product


def copy_of(plan: KernelPlan, source: str) -> CopyPlan:
    return next(copy for copy in plan.copies if copy.src == source)


def test_f6_misaligned_rows_get_narrow_copies() -> None:
    """TVM emits a 16-byte cp.async at an address that is only 4-byte aligned; ours must narrow it."""
    inputs = {"A": data(32, 65), "B": data(64, 32, seed=1)}
    truth = {"C": inputs["A"][:, 1:] @ inputs["B"]}
    plan = check(gemms.shifted_gemm(), inputs, truth)
    assert copy_of(plan, "A").vector_bytes == 4
    assert copy_of(plan, "B").vector_bytes == 16


@pytest.mark.parametrize("vector", [1, 4])
def test_f10_copies_that_are_not_vectorised(vector: int) -> None:
    """TVM lets a Hexagon pass claim an asynchronous copy whose inner loop is serial, and then cannot
    translate it; ours must copy it."""
    func = simt_gemm([0, 0, 1], [0, 1, 2], [0], vector=vector, vectorize=False)
    inputs = gemm_inputs()
    check(func, inputs, product(inputs))
    assert "dma" not in pipeliner.build(pipeliner.pipeline(func, "sm_80")).cuda


@pytest.mark.parametrize(("m", "n", "k"), [(28, 32, 56), (32, 32, 60)])
def test_f14_int8_zero_padding(m: int, n: int, k: int) -> None:
    """TVM prints ``make_int2`` of eight arguments for a padded int8 tile, and never copies it
    asynchronously since its zero is not a float; ours must do both right."""
    inputs = {"A": data(m, k, dtype="int8"), "B": data(k, n, dtype="int8", seed=1)}
    func = gemms.padded_gemm(m, n, k, "int8", "int32", 8)
    plan = check(func, inputs, product(inputs, "int32"))
    assert copy_of(plan, "A").mechanism == "cp_async"


@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_f14_int8_zero_padding_compiles() -> None:
    """As above: nvcc takes the CUDA."""
    func = gemms.padded_gemm(28, 32, 56, "int8", "int32", 8)
    assert pipeliner.build(pipeliner.pipeline(func, "sm_80")).resources.stack == 0


def test_f17_register_copies_load_early_and_store_late() -> None:
    """TVM moves the global load and the shared store of a synchronous copy together, so that no
    latency is hidden; ours must compute between them."""
    inputs = gemm_inputs()
    func = simt_gemm([], [])
    loop = pipelined_loop(check(func, inputs, product(inputs), mechanism="register"))
    compute = max(loop.ops, key=lambda op: (op.kind in ("mma", "compute"), op.occupancy))
    for tile in ("A_shared", "B_shared"):
        load, store = loop.op(f"{tile}.load"), loop.op(f"{tile}.store")
        early = load.stage < store.stage or load.order < compute.order < store.order
        assert early, [(op.name, op.stage, op.order) for op in loop.ops]


def test_f17_registers_serve_gpus_without_asynchronous_copies() -> None:
    """As above for an annotated synchronous pipeline: the answer is right at every depth."""
    inputs = gemm_inputs()
    for gap in (1, 2):
        check(simt_gemm([0, 0, gap], [0, 1, 2]), inputs, product(inputs))


@pytest.mark.parametrize(("k", "width"), [(64, 16), (60, 8), (62, 4)])
def test_f19_half_precision_rows_keep_asynchronous_copies(k: int, width: int) -> None:
    """TVM falls back to scalar loads and stores for the whole A tile when rows of K halves are not
    16-byte aligned; ours must use the widest asynchronous copy that is."""
    inputs = {"A": data(30, k, dtype="float16"), "B": data(k, 32, dtype="float16", seed=1)}
    func = gemms.padded_gemm(30, 32, k, "float16", "float32", 8)
    plan = check(func, inputs, product(inputs), tolerance=1e-4)
    assert (copy_of(plan, "A").mechanism, copy_of(plan, "A").vector_bytes) == ("cp_async", width)
    assert copy_of(plan, "B").vector_bytes == 16


def test_f20_ragged_edges_are_filled_by_the_copy_itself() -> None:
    """TVM writes ``@p cp.async`` beside a predicated zero store; ours must give the copy its source
    size, and store nothing else to the tile."""
    inputs = {"A": data(30, 60), "B": data(60, 28, seed=1)}
    func = gemms.padded_gemm(30, 28, 60, "float32", "float32", 4)
    check(func, inputs, product(inputs))
    kernel = pipeliner.build(pipeliner.pipeline(func, "sm_80"))
    copies = calls(kernel.lowered, "cp_async_cg") + calls(kernel.lowered, "cp_async_ca")
    assert copies
    assert all(len(call.args) > 3 for call in copies if "A" in str(call.args[1]))


def test_f22_fused_convolution_stays_within_shared_memory() -> None:
    """TVM's compaction makes the weight tile of a fused convolution many times too large, and two
    versions of it overflow shared memory; ours must choose what fits and be right."""
    inputs = {"X": data(1, 8, 8, 16), "W": data(3, 3, 16, 32, seed=1)}
    padded = np.pad(inputs["X"], ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [padded[:, i : i + 8, j : j + 8] @ inputs["W"][i, j] for i in range(3) for j in range(3)]
    plan = check(gemms.fused_conv(), inputs, {"Y": np.sum(taps, axis=0)})
    assert 0 < plan.smem.bytes <= plan.smem.budget


def test_f24_double_buffer_scope_is_a_request() -> None:
    """TVM ignores ``double_buffer_scope`` outside an annotated loop; ours must overlap that copy."""
    inputs = gemm_inputs()
    loop = pipelined_loop(check(gemms.double_buffered_gemm(), inputs, product(inputs)))
    assert min(loop.ring("A_shared").depth, loop.ring("B_shared").depth) >= 2


def test_a_mask_that_leaves_out_the_start_of_a_vector_is_no_source_size() -> None:
    """cp.async leaves out the end of a vector, never its start; a copy that needs it must go through
    registers, and be refused where cp.async is asked for."""
    inputs = {"A": data(8, 512, dtype="int8")}
    masked = np.where(np.arange(512) >= 2, inputs["A"], 0).astype("int32")
    columns = np.arange(64)
    truth = {"C": masked[:, 504 - columns * 8] + masked[:, 507 - columns * 8]}
    plan = check(functions.rows_from_the_third_byte, inputs, truth, tolerance=0)
    assert copy_of(plan, "A").mechanism == "register"
    with refused("cp_async.mask", PlanError, nbytes=4):
        pipeliner.pipeline(functions.rows_from_the_third_byte, "sm_80", mechanism="cp_async")


def test_vectors_of_the_user_survive() -> None:
    """A copy that the user vectorised by four floats moves 16 bytes a thread, asynchronously."""
    inputs = gemm_inputs()
    func = simt_gemm([], [], func=gemm(32, 64))
    fast = pipeliner.pipeline(func, "sm_80", mechanism="cp_async", epilogue="rolled")
    emulation = run(fast, inputs, product(inputs))
    assert emulation.total("copies") == 2 * 8 * 64
