"""Functions whose blocks are bound to CTAs and nothing to threads: none is refused, all are right."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import pipeliner
from pipeliner.kernel.cuda_lines import cuda_lines
from pipeliner.toolchain import nvcc

from ..refusals import says, the
from .odd_tiles import KINDS, Case
from .plain_programs import PROGRAMS

TARGETS = {"a100": "sm_80", "h100": "sm_90a", "v100": "sm_70"}
SPILLED = 64
"""Bytes that a thread may spill: ptxas does so to keep more CTAs on an SM."""


@T.prim_func(s_tir=True)
def on_host(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    T.func_attr({"target": T.target("llvm"), "tirx.noalias": True})
    for i in T.serial(8):
        with T.sblock("double"):
            Y[i] = X[i] * T.float32(2)


def compiled(functions: dict[str, object], target: str) -> str:
    """The CUDA of ``functions``, one module to TVM's own driver with our lowering."""
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    goal = tvm.target.Target({"kind": "cuda", "arch": TARGETS[target]}, host="llvm")
    with goal:
        built = tvm.compile(tvm.IRModule(named), target=goal, tir_pipeline="pipeliner")
    return str(built.mod.imports[0].inspect_source())


@pytest.mark.part(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"),
    [  # all for one of them, and each for another
        (name, target)
        for number, name in enumerate(PROGRAMS)
        for target in ("h100", ("a100", "v100")[number % 2])
    ],
)
def test_it_is_right_and_says_what_one_thread_makes(name: str, target: str) -> None:
    program = PROGRAMS[name]
    kernel = pipeliner.build(program.func, target)
    arrays = program.arrays(np.random.default_rng(0))
    result = kernel.emulate(*arrays.values(), order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    for array, want in program.meaning(arrays).items():
        np.testing.assert_array_equal(result.outputs[array], want, err_msg=array)
    if program.says is not None:
        code, args = program.says
        found = the(code, kernel.plan.reasons)
        assert {name: found[name] for name in args} == args
    alone = says("share.nothing", kernel.plan.reasons)
    assert alone == ("threadIdx" not in cuda_lines(kernel.lowered).source)
    assert kernel.plan.threads == 1 if alone else kernel.plan.threads >= 128


@pytest.mark.part(4)
@pytest.mark.parametrize("name", ["whole sum", "histogram", "argmax", "a second kernel"])
def test_a_plan_that_is_handed_back_is_obeyed(name: str) -> None:
    func = PROGRAMS[name].func
    once = pipeliner.pipeline(func, "h100")
    again = pipeliner.pipeline(func, "h100", plan=pipeliner.plan_of(once))
    assert pipeliner.plan_of(again) == pipeliner.plan_of(once)
    assert pipeliner.build(again).cuda == pipeliner.build(once).cuda


@pytest.mark.nvcc
@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.deep("test_it_is_right_and_says_what_one_thread_makes")
def test_nvcc_compiles_what_stands_beside_a_matmul(target: str) -> None:
    odd = {f"k{n}": Case(kind, "float16", (64, 64, 32)).function() for n, kind in enumerate(KINDS)}
    plain = {f"p{n}": program.func for n, program in enumerate(PROGRAMS.values())}
    source = compiled({**odd, **plain, "on_host": on_host}, target)
    log = nvcc.compile_cuda(source, TARGETS[target], "cubin").log
    used = {one.kernel: one for one in nvcc.resources(log)}
    kernels = len(odd) + len(plain) + 1  # of two kernels is "a second kernel"
    assert len(used) == kernels
    assert {name: one.spills for name, one in used.items() if one.spills > SPILLED} == {}
    assert all(one.registers <= 255 for one in used.values())
