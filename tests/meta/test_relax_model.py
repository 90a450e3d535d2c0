"""A model as an importer leaves it: batch norms folded, laid out, converted, epilogues fused."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from pipeliner import meta
from pipeliner.kernel.compiled import compile_kernel
from pipeliner.relax import Schedule, prepared
from pipeliner.schedules import Gemm, conv2d
from pipeliner.verification.verdict import verify_workload

TARGET = meta.target("h100")
SIZE, CHANNELS, WIDTH, CLASSES = 8, 32, 64, 64
SHAPE = {"n": 1, "h": SIZE, "w": SIZE}
PARAMS = {"w0": (WIDTH, CHANNELS, 3, 3), "w1": (WIDTH, CHANNELS, 1, 1), "w2": (WIDTH, CLASSES)}
PARAMS |= {f"{name}{at}": (WIDTH,) for at in (0, 1) for name in ("gamma", "beta", "mean", "var")}

MAIN = conv2d(*SHAPE.values(), CHANNELS, WIDTH, 3, 3, pad=1, epilogue=("bias", "residual", "relu"))
SHORT = conv2d(*SHAPE.values(), CHANNELS, WIDTH, 1, 1, epilogue=("bias",))
LAST = Gemm(SIZE * SIZE, CLASSES, WIDTH, layout="NN", out="float32")


def weights() -> dict[str, object]:
    rng = np.random.default_rng(0)
    made = {
        name: rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        for name, shape in PARAMS.items()
    }
    made |= {f"var{at}": 0.5 + rng.random(WIDTH) for at in (0, 1)}
    return {name: value.astype("float32") for name, value in made.items()}


def block() -> tvm.IRModule:
    """A residual block with channels outside the image, as PyTorch's importer makes it."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, CHANNELS, SIZE, SIZE), "float32"))
    params = {name: relax.Var(name, relax.TensorType(s, "float32")) for name, s in PARAMS.items()}
    nn = relax.op.nn

    def normed(y, at):
        stats = [params[f"{name}{at}"] for name in ("gamma", "beta", "mean", "var")]
        made = builder.emit(nn.batch_norm(builder.emit(y), *stats, axis=1, training=False))
        return builder.emit(relax.TupleGetItem(made, 0))

    with builder.function("main", [x, *params.values()]):
        with builder.dataflow():
            main = normed(nn.conv2d(x, params["w0"], padding=1), 0)
            short = normed(nn.conv2d(x, params["w1"]), 1)
            y = builder.emit(nn.relu(builder.emit(relax.op.add(main, short))))
            y = builder.emit(relax.op.permute_dims(y, [0, 2, 3, 1]))
            y = builder.emit(relax.op.reshape(y, (SIZE * SIZE, WIDTH)))
            out = builder.emit_output(builder.emit(relax.op.matmul(y, params["w2"])))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def ready() -> tvm.IRModule:
    params = {name: tvm.runtime.tensor(value) for name, value in weights().items()}
    return prepared(block(), params, half_inputs=True)


@pytest.fixture(scope="module")
def scheduled(ready: tvm.IRModule) -> tvm.IRModule:
    return Schedule(TARGET)(ready)


def operators(mod: tvm.IRModule) -> list[str]:
    calls = [binding.value for one in mod["main"].body.blocks for binding in one.bindings]
    return [str(call.op.name) for call in calls if isinstance(call, relax.Call)]


def test_nothing_is_left_of_batch_norms_and_of_what_depends_on_weights_alone(ready):
    found = operators(ready)
    assert found.count("relax.nn.conv2d") == 2
    assert not {"relax.nn.batch_norm", "relax.multiply", "relax.sqrt"} & set(found)
    assert found.count("relax.permute_dims") == 1  # of the images, which come channels first


def test_bias_residual_and_activation_are_in_the_kernels(scheduled):
    functions = {
        str(where.name_hint): "pipeliner.plan" in one.attrs
        for where, one in scheduled.functions.items()
        if isinstance(one, tvm.tirx.PrimFunc)
    }
    assert {name for name, ours in functions.items() if ours} == {MAIN.name, SHORT.name, LAST.name}
    assert {name for name, ours in functions.items() if not ours} == {"reshape", "transpose"}


@pytest.mark.parametrize("spec", [MAIN, SHORT], ids=lambda spec: spec.name)
def test_its_kernels_are_right(scheduled, spec):
    function = scheduled[spec.name].with_attr("global_symbol", spec.name)
    verdict = verify_workload(
        compile_kernel(function, TARGET), spec, timings=("late",), orders=("random",)
    )
    assert verdict.ok, verdict.hazards


def test_it_computes_what_it_did_before(ready):
    """On the CPU, prepared and not, both as TVM compiles them: batch norms are folded right."""
    values = weights()
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, SIZE, SIZE)).astype("float32")
    plain = relax.transform.DecomposeOpsForInference()(block())
    expected = on_cpu(plain, x, *(values[name] for name in PARAMS))
    found = on_cpu(ready, x.astype("float16"))
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02 * abs(expected).max())


def on_cpu(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(one) for one in inputs)).numpy()
