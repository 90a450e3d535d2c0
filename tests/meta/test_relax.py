"""A relax model end to end: what is ours becomes our kernels, the rest stays TVM's, it compiles."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, tirx

import pipeliner
from pipeliner import meta
from pipeliner.diagnostics import Reason
from pipeliner.errors import WorkloadError
from pipeliner.kernel.compiled import compile_kernel
from pipeliner.plan.request import Request
from pipeliner.records import Record, Records
from pipeliner.records.candidate import Candidate, versions_key, workload_key
from pipeliner.relax import IS_SCHEDULED, Schedule, conv2d_of, matmul_of
from pipeliner.schedules import Conv, Gemm, GemmTile, conv2d
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused, says

from .models import CHANNELS, CLASSES, FILTERS, HIDDEN, IMAGES, SIZE, model, weights

TARGET = meta.target("h100")
CONV = conv2d(IMAGES, SIZE, SIZE, CHANNELS, FILTERS, 3, 3, pad=1, epilogue=("relu",))
UP = Gemm(IMAGES * SIZE * SIZE, HIDDEN, FILTERS, layout="NN", epilogue=("gelu",))
DOWN = Gemm(IMAGES * SIZE * SIZE, CLASSES, HIDDEN, layout="NN")
FIRST = Gemm(None, HIDDEN, CHANNELS, layout="NN", epilogue=("silu",))
LAST = Gemm(None, CLASSES, HIDDEN, layout="NN")
OURS = (CONV, UP, DOWN, FIRST, LAST)


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    """One of the products is tuned, to something that nobody would choose."""
    path = tmp_path_factory.mktemp("relax") / "tuned.sqlite"
    odd = Candidate(GemmTile(64, 64, 32), Request(depth=2, instruction="mma"))
    with Records(path) as records:
        key = (workload_key(UP), "h100", versions_key())
        records.add(Record(*key, odd.to_json(), samples=(7.5,)))
    return path


@pytest.fixture(scope="module")
def scheduled(db):
    return Schedule(TARGET, db=db)(model(weights()))


def functions(mod):
    return {str(v.name_hint): f for v, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}


def test_products_and_convolutions_are_ours_and_the_rest_is_not(scheduled):
    found = functions(scheduled)
    ours = {name for name, func in found.items() if "pipeliner.plan" in func.attrs}
    assert ours == {spec.name for spec in OURS}
    assert set(found) - ours == {"sum", "reshape"}
    assert all(func.attrs[IS_SCHEDULED] for func in found.values())


def test_the_record_is_used_and_the_plan_says_so(scheduled):
    plans = {spec: pipeliner.plan_of(functions(scheduled)[spec.name]) for spec in OURS}
    assert plans[UP].reasons[0] == Reason("recorded.tuned", us=7.5, tried=1, file="tuned.sqlite")
    assert {r.depth for loop in plans[UP].loops for r in loop.rings if r.scope == "shared"} == {2}
    assert plans[UP].matmuls[0].instruction.startswith("mma.")
    assert says("recorded.no_record", plans[DOWN].reasons[:1])


def test_it_compiles_with_our_lowering_in_tvms_driver(scheduled):
    executable = tvm.compile(scheduled, TARGET, tir_pipeline="pipeliner")
    source = "".join(
        str(module.inspect_source()) for module in imported(executable.mod) if module.kind == "cuda"
    )
    for spec in OURS:
        assert f"{spec.name}_kernel" in source
    assert "sum_kernel" in source


def imported(module):
    yield module
    for inner in module.imports:
        yield from imported(inner)


@pytest.mark.parametrize("spec", [CONV, UP], ids=lambda spec: spec.name)
@pytest.mark.part(2)
def test_its_kernels_are_right(scheduled, spec):
    """In the emulator, against float64: the very functions of the module."""
    function = functions(scheduled)[spec.name].with_attr("global_symbol", spec.name)
    kernel = compile_kernel(function, TARGET)
    verdict = verify_workload(kernel, spec, timings=("late",), orders=("random",))
    assert verdict.ok, verdict.hazards


def call(op, *shapes, dtype="float16", **options):
    variables = [relax.Var(f"x{at}", relax.TensorType(one, dtype)) for at, one in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("f", variables):
        made = builder.emit(op(*variables, **options))
        builder.emit_func_output(made)
    return builder.get()["f"].body.blocks[0].bindings[0].value


def test_what_a_call_is():
    n = tirx.Var("n", "int64")
    matmul, conv = relax.op.matmul, relax.op.nn.conv2d
    assert matmul_of(call(matmul, (8, 16), (16, 32))) == Gemm(8, 32, 16, layout="NN")
    assert matmul_of(call(matmul, (n, 16), (16, 32))).m is None
    assert matmul_of(call(matmul, (3, 8, 16), (3, 16, 32))).batch == 3
    assert matmul_of(call(matmul, (3, 8, 16), (16, 32))) == Gemm(24, 32, 16, layout="NN")
    assert matmul_of(call(matmul, (3, 2, 8, 16), (3, 2, 16, 32))).batch == 6
    nhwc = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    found = conv2d_of(
        call(conv, (1, 9, 9, 8), (16, 3, 3, 8), strides=2, padding=(0, 1, 2, 3), **nhwc)
    )
    assert isinstance(found, Conv)
    assert (found.stride, found.pad) == ((2, 2), ((0, 2), (1, 3)))


@pytest.mark.parametrize(
    ("make", "code", "args"),
    [
        (
            lambda n: matmul_of(call(relax.op.matmul, (8, n), (n, 32))),
            "relax.axis",
            {"axis": 1},
        ),
        (
            lambda n: matmul_of(call(relax.op.matmul, (2, 8, 4), (3, 2, 4, 8))),
            "relax.axes",
            {"a": 3, "b": 4},
        ),
        (
            lambda n: conv2d_of(call(relax.op.nn.conv2d, (1, 8, 9, 9), (4, 8, 3, 3))),
            "relax.layouts",
            {"layouts": ("NCHW", "OIHW", "NCHW")},
        ),
    ],
    ids=["symbolic k", "broadcast", "layout"],
)
def test_what_is_not_ours_says_why(make, code, args):
    with refused(code, WorkloadError, **args):
        make(tirx.Var("n", "int64"))
