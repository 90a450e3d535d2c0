"""A transformer's layer in relax: attention, gated and biased products are ours, and read in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from pipeliner import meta
from pipeliner.errors import WorkloadError
from pipeliner.kernel.compiled import compile_kernel
from pipeliner.relax import Schedule
from pipeliner.relax.attention import attention_of
from pipeliner.relax.gating import gated_products
from pipeliner.schedules import Attention, GatedGemm, Gemm
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused

from .transformer import BATCH, DIM, HEADS, TOKENS, WIDE, WIDTH, layer, reference

TARGET = meta.target("h100")
ROWS = BATCH * TOKENS
HALF = ("float16", "NN")
QKV = Gemm(ROWS, 3 * WIDTH, WIDTH, None, *HALF, epilogue=("bias",))
OUT = Gemm(ROWS, WIDTH, WIDTH, None, *HALF, epilogue=("residual",))
GATED = GatedGemm(ROWS, WIDE, WIDTH, None, *HALF)
DOWN = Gemm(ROWS, WIDTH, WIDE, None, *HALF)
HEADS_OF_ONE = Attention(
    *(BATCH, HEADS, TOKENS, TOKENS, DIM),
    causal=True,
    layout="BSHD",
    within=(3 * HEADS,) * 3,
    first=(0, HEADS, 2 * HEADS),
)
SPECS = {spec.name: spec for spec in (QKV, HEADS_OF_ONE, OUT, GATED, DOWN)}


@pytest.fixture(scope="module", params=[False, True], ids=["two products", "halves of one"])
def scheduled(request: pytest.FixtureRequest) -> Any:
    return Schedule(TARGET)(layer(together=request.param))


def calls(mod: Any) -> list[tuple[str, list[Any]]]:
    """The kernels that ``main`` calls, in their order, and on what."""
    bindings = [one.value for block in mod["main"].body.blocks for one in block.bindings]
    return [
        (str(call.args[0].name_hint), list(call.args[1]))
        for call in bindings
        if str(getattr(getattr(call, "op", None), "name", "")) == "relax.call_tir"
    ]


def test_five_kernels_are_ours_and_the_rest_are_views(scheduled: Any) -> None:
    found = calls(scheduled)
    assert [name for name, _ in found if name in SPECS] == list(SPECS)
    assert all("reshape" in name for name, _ in found if name not in SPECS)
    (operands,) = (args for name, args in found if name == HEADS_OF_ONE.name)
    assert all(one.same_as(operands[0]) for one in operands)


def test_the_module_computes_what_it_did(scheduled: Any) -> None:
    """Its calls one after the other, by the references of their workloads."""
    x = np.random.default_rng(1).standard_normal((BATCH, TOKENS, WIDTH)).astype("float16")
    values: dict[Any, Any] = {scheduled["main"].params[0]: x}

    def value(expr: Any) -> Any:
        return values[expr] if isinstance(expr, relax.Var) else expr.value.numpy()

    for block in scheduled["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            shape = [int(extent) for extent in call.ty.shape.values]
            name, operands = str(call.args[0].name_hint), [value(one) for one in call.args[1]]
            spec = SPECS.get(name)
            made = operands[0] if spec is None else spec.reference(*operands)
            values[binding.var] = made.astype("float16").reshape(shape)
    out = values[scheduled["main"].body.body]
    right = reference(x)
    np.testing.assert_allclose(out, right, rtol=1e-2, atol=1e-2)


@pytest.mark.part(2)
def test_attention_reads_its_heads_where_they_lie(scheduled: Any) -> None:
    function = next(
        f for var, f in scheduled.functions.items() if str(var.name_hint) == HEADS_OF_ONE.name
    )
    kernel = compile_kernel(function.with_attr("global_symbol", HEADS_OF_ONE.name), TARGET)
    verdict = verify_workload(kernel, HEADS_OF_ONE, timings=("late",), orders=("lockstep",))
    assert verdict.ok, verdict.hazards


def test_a_broadcast_gate_is_no_gated_product() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 32), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            gate, value = (
                builder.emit(relax.op.matmul(x, relax.const(np.ones((32, n), "float16"))))
                for n in (1, 16)
            )
            gate = builder.emit(relax.op.nn.silu(gate))
            out = builder.emit_output(relax.op.multiply(gate, value))
        builder.emit_func_output(out)
    assert list(gated_products(builder.get()["main"])) == []


def attention(*shapes: tuple[int, ...], dtype: str = "float16", **options: Any) -> Any:
    variables = [relax.Var(f"x{at}", relax.TensorType(one, dtype)) for at, one in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("f", variables):
        builder.emit_func_output(builder.emit(relax.op.nn.attention(*variables, **options)))
    return builder.get()["f"].body.blocks[0].bindings[0].value


def nothing(value: Any) -> None:
    """What parameters are bound to."""


def test_which_attention_a_call_is() -> None:
    q, k = (2, 64, 4, 32), (2, 48, 4, 32)
    spec, operands = attention_of(attention(q, k, k, scale=0.5), nothing)
    assert spec == Attention(2, 4, 64, 48, 32, layout="BSHD", scaled=0.5)
    assert [str(one.name) for one in operands] == ["x0", "x1", "x2"]
    for options, shapes in (
        ({"causal_mask": "BottomRight"}, ()),
        ({"window_size": 8, "causal_mask": "TopLeft"}, ()),
        ({}, ((2, 4, 64, 48),)),
    ):
        with refused("relax.mask", WorkloadError):
            attention_of(attention(q, k, k, *shapes, **options), nothing)
    with refused("attention.dtype", WorkloadError):
        attention_of(attention(q, k, k, dtype="float32"), nothing)
    with refused("relax.extents", WorkloadError):
        attention_of(attention(q, k, (2, 48, 4, 16)), nothing)


def test_what_is_refused_is_tvms(caplog: pytest.LogCaptureFixture) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 2, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.attention(x, x, x))
        builder.emit_func_output(out)
    with caplog.at_level("INFO", logger="pipeliner.relax"):
        mod = Schedule(TARGET)(builder.get())
    assert "leave relax.nn.attention to TVM: expected attention on one of" in caplog.text
    assert all(
        "pipeliner.plan" not in (f.attrs or {})
        for f in mod.functions.values()
        if isinstance(f, tvm.tirx.PrimFunc)
    )
