"""pipeliner.explain: reading CUDA, counting instructions, tracing passes."""

from __future__ import annotations

import tvm

import pipeliner
from pipeliner import cli
from pipeliner.errors import PlanError
from pipeliner.explain.condensed import condensed
from pipeliner.explain.inspect import (
    condense,
    emit,
    find_loop,
    instruction_counts,
    kernel_source,
)
from pipeliner.explain.pass_runs import PassTrace, run_pass, trace
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import cuda_target
from tests.refusals import refused, told

CUDA = """\
__device__ void helper() {
  for (int k_0 = 0; k_0 < 2; ++k_0) {
  }
}
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* A_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* A_ptr) {
  for (int k_0 = 0; k_0 < 3; ++k_0) {
    one();
  }
  for (int k_0_1 = 0; k_0_1 < 64; ++k_0_1) {
    int cse_v1 = (k_0_1 * 4);
    for (int i = 0; i < 2; ++i) {
      if (i < 1) {
        tvm_builtin_ptx_cp_async_cg_async_cg_shared_global_16((&(S_ptr[cse_v1])), A_ptr + 4);
        tvm_builtin_ptx_cp_async_cg_async_cg_shared_global_16((&(S_ptr[cse_v1 + 9])), A_ptr + 8);
      }
    }
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
    __syncthreads();
    x[0] = y[1];
    x[1] = y[2];
    x[2] = z[2];
  }
}
"""


def test_kernel_source_starts_at_the_definition() -> None:
    source = kernel_source(CUDA)
    assert source.startswith('extern "C" __global__')
    assert "helper" not in source
    assert source.count("main_kernel") == 1


def test_find_loop_takes_the_longest_of_that_name() -> None:
    loop = find_loop(kernel_source(CUDA), "k_0")
    assert loop is not None
    assert loop.startswith("for (int k_0_1 = 0;")
    assert loop.endswith("\n}")
    assert loop.count("{") == loop.count("}")
    assert find_loop(CUDA, "nothing") is None


def test_condense() -> None:
    loop = find_loop(kernel_source(CUDA), "k_0")
    assert loop is not None
    assert (
        condense(loop)
        == """\
for (int k_0_1 = 0; k_0_1 < 64; ++k_0_1) {
  for (int i = 0; i < 2; ++i) {
    if (i < 1) {
      cp_async_cg_shared_global_16(S, A);  // x 2
    }
  }
  cp_async_wait_group_1();
  __syncthreads();
  x[0] = y[1];  // x 2
  x[2] = z[2];
}"""
    )


def test_condense_keeps_both_ends_of_what_is_long() -> None:
    code = "\n".join(f"call_{'x' * at}();" for at in range(100))
    lines = condense(code, most=10).splitlines()
    assert len(lines) == 11
    assert lines[5] == "  // ... 90 lines like these ..."
    assert lines[-1] == f"call_{'x' * 99}();"


def test_long_lines_are_cut() -> None:
    assert len(condense("a" * 500 + ";", width=80)) == 80


def test_counts_in_ptx_and_sass() -> None:
    ptx = ".version 9.0\n  cp.async.cg.shared.global [a], [b], 16;\n  bar.sync 0;\n  ld.global.f32 x;\n"
    assert instruction_counts(ptx) == {
        "copies to shared memory, asynchronous": 1,
        "loads from global memory": 1,
        "barriers": 1,
    }
    sass = " LDGSTS.E.BYPASS.128 [R1], [R2] ;\n HMMA.16816.F32 R1 ;\n HMMA.16816.F32 R2 ;\n LDSM.16 R1 ;\n"
    assert instruction_counts(sass) == {
        "copies to shared memory, asynchronous": 1,
        "matrix loads from shared memory": 1,
        "tensor core instructions": 2,
    }


def small():
    return schedule_gemm(Gemm(64, 64, 64), GemmTile(32, 32, 32))


def test_trace_keeps_what_changed_only() -> None:
    runs = trace(small(), "a100", Request()).runs
    assert all(run.changed for run in runs)
    names = [run.name for run in runs]
    ours = [name.removeprefix("pipeliner.") for name in names if name.startswith("pipeliner.")]
    assert ours[:4] == ["Recognise", "MapTiles", "LowerCopies", "Expand"]
    assert "tirx.SplitHostDevice" in names
    expand = next(run for run in runs if run.name == "pipeliner.Expand")
    assert "+++ after" in expand.diff()


SCRIPT = """\
# from tvm.script import tirx as T

@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    T.func_attr({"target": T.target("cuda")})
    # with T.sblock("root"):
    for k in T.serial(4, annotations={"pipeliner.phase": "steady"}):
        with T.attr("A.wait", "pipeliner.origin", "op=A.wait|kind=wait|stage=3"):
            T.attr("A.wait", "pipeliner.op", "A.wait")
            T.ptx.cp(2, "async", "wait_group", "")
        if k < 2:
            with T.sblock("A"):
                T.reads(A[k])
                with T.attr("A", "pipeliner.op", "A"):
                    T.ptx.cp(T.cuda.cvta_generic_to_shared(T.address_of(S[k, f(1, 2)])), T.address_of(A["a, (b"]), 4, "async", "")
            T.ptx.wgmma(C[3], C[4], C[5], C[7], D, E[0], E[1], 1)
            T.tvm_storage_sync("shared", T.bool(False), -1)
    T.evaluate(0)
"""


def test_condensed_script() -> None:
    assert (
        condensed(SCRIPT)
        == """\
def main(A: T.Buffer((8,), "float32")):
    for k in range(4):
        cp.async.wait_group(2)  # A.wait, stage 3
        if k < 2:
            cp.async(&S[k, f(1, 2)], &A["a, (b"], 4)  # A
            wgmma(C[3:6], C[7], D, E[0:2], 1)
            barrier()
    T.evaluate(0)"""
    )


def test_every_function_and_every_stage_of_it_condenses() -> None:
    for run in trace(small(), "a100", Request()).runs:
        _, after = run.texts
        text = condensed(after)
        assert len(text) <= len(after) + after.count('"pipeliner.op"') * 40
        assert not [line for line in text.splitlines() if "T.reads(" in line or ".origin" in line]


def test_trace_among_the_users_own_instruments() -> None:
    seen = PassTrace()
    with cuda_target("a100"), tvm.transform.PassContext(instruments=[seen]):
        pipeliner.passes.SoftwarePipeline()(small().mod)
    assert "pipeliner.Expand" in [run.name for run in seen.runs]


def test_one_pass_with_the_function_before_and_after() -> None:
    expand = run_pass("Expand", small(), "a100")
    assert (expand.name, expand.changed) == ("pipeliner.Expand", True)
    assert "commit_group" not in expand.before["main"].script()
    assert "commit_group" in expand.after["main"].script()
    assert not run_pass("PinRings", small(), "a100").changed
    last = run_pass("Launch", small(), "h100", Request(mechanism="cp_async", depth=2))
    assert "cp.async" in condensed(last.after["main"].script())
    with refused("pass.not_run", PlanError) as found:
        run_pass("Specialise", small(), "a100")
    assert "Expand" in found.value.reason["ran"]


def test_emit() -> None:
    kernel = pipeliner.build(small(), "a100")
    assert "pipeliner.origin" in emit(kernel, "tir")
    assert emit(kernel, "plan") == kernel.plan.explain()
    assert "__global__" in emit(kernel, "cuda")


def test_only_passes_condense(capsys) -> None:
    assert cli.main(["inspect", "gemm", "--condense"]) == 1
    told(capsys.readouterr().err, "option.condense")
