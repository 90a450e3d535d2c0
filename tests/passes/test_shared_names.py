"""Kernels of one module: their dynamic shared memory is declared so that nvcc takes them all."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from pipeliner import meta
from pipeliner.passes.lower import PIPELINE
from pipeliner.passes.smem.shared_names import name_shared
from pipeliner.passes.steps import module_pass
from pipeliner.relax import Schedule
from pipeliner.toolchain import nvcc
from tests.meta.models import model, weights

TARGET = meta.target("h100")
DECLARED = re.compile(r"extern __shared__ __align__\((\d+)\) (\w+) (\w+)\[\]")


def mirror(name: str, dtype: str, scope: str = "shared", align: int = 64) -> Any:
    """Columns of a tile reversed, through one shared buffer."""

    @T.prim_func(s_tir=True, private=True)
    def func(A: T.Buffer((64, 64), dtype), C: T.Buffer((64, 64), dtype)):
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("kernel"):
                    S = T.sblock_alloc_buffer((64, 64), dtype, scope=scope, align=align)
                    for k in range(64):
                        S[k, tx] = A[k, tx]
                    for k in range(64):
                        C[k, tx] = S[k, 63 - tx]

    return func.with_attr("global_symbol", name)


def cuda(mod: Any, pipeline: str = PIPELINE) -> str:
    executable = tvm.compile(mod, TARGET, tir_pipeline=pipeline)
    found = list(modules(executable.mod))
    return "".join(str(one.inspect_source()) for one in found if one.kind == "cuda")


def modules(module: Any) -> Any:
    yield module
    for inner in module.imports:
        yield from modules(inner)


def declarations(source: str) -> dict[str, set[tuple[str, str]]]:
    """What each dynamic shared array is declared with, by its name."""
    found: dict[str, set[tuple[str, str]]] = {}
    for align, dtype, name in DECLARED.findall(source):
        found.setdefault(name, set()).add((dtype, align))
    return found


def test_one_kernel_keeps_the_usual_name() -> None:
    found = declarations(cuda(tvm.IRModule({"f": mirror("f", "float16")})))
    assert found == {"buf_dyn_shmem_ptr": {("half", "64")}}


def test_kernels_that_declare_alike_share_a_name() -> None:
    alike = {name: mirror(name, "float16") for name in "fgh"}
    assert declarations(cuda(tvm.IRModule(alike))) == {"buf_dyn_shmem_ptr": {("half", "64")}}


@pytest.mark.part(6)
@pytest.mark.nvcc
@pytest.mark.parametrize("types", list(itertools.permutations(("float16", "float32", "uint8"))))
def test_kernels_of_any_types_compile_in_any_order(types: tuple[str, ...]) -> None:
    mod = tvm.IRModule({f"f{at}": mirror(f"f{at}", dtype) for at, dtype in enumerate(types)})
    source = cuda(mod)
    assert all(len(forms) == 1 for forms in declarations(source).values())
    assert len(DECLARED.findall(source)) == 3
    nvcc.compile_cuda(source, "sm_90a", "cubin")


FORMS = (("float16", 64), ("float32", 64), ("float16", 128), ("float16", 64))


def stock_with(*more: Any) -> str:
    """TVM's own lowering, and then ``more`` on device functions, under a name for it."""
    pipeline, host, device = tirx.get_tir_pipeline("s_tir")
    name = f"s_tir_with_{len(more)}"

    def finalize() -> Any:
        return tvm.transform.Sequential([device(), *more])

    tirx.register_tir_pipeline(name, lambda: (pipeline, host, finalize))
    return name


@pytest.mark.nvcc
def test_functions_that_are_not_ours_compile_too() -> None:
    """TVM gives what is dynamic from the start its buffer's name, in all functions alike."""
    funcs = {
        f"f{at}": mirror(f"f{at}", dtype, "shared.dyn", align)
        for at, (dtype, align) in enumerate(FORMS)
    }
    clashing = cuda(tvm.IRModule(funcs), stock_with())
    assert declarations(clashing) == {
        "S_ptr": {("half", "64"), ("float", "64"), ("half", "128")},
    }
    source = cuda(tvm.IRModule(funcs), stock_with(module_pass(name_shared)))
    assert declarations(source) == {
        "S_ptr": {("half", "64")},
        "S_1_ptr": {("float", "64")},
        "S_2_ptr": {("half", "128")},
    }
    nvcc.compile_cuda(source, "sm_90a", "cubin")


@pytest.mark.nvcc
@pytest.mark.deep("test_kernels_of_any_types_compile_in_any_order")
def test_a_model_of_our_kernels_and_tvms_compiles_to_machine_code() -> None:
    source = cuda(Schedule(TARGET)(model(weights())))
    assert len({form for forms in declarations(source).values() for form in forms}) > 1
    log = nvcc.compile_cuda(source, "sm_90a", "cubin").log
    assert len(nvcc.resources(log)) == source.count("__launch_bounds__") // 2
