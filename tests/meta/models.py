"""A small real model in relax: a convolution, products with symbolic rows, activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

SIZE, CHANNELS, FILTERS, HIDDEN, CLASSES = 16, 64, 64, 128, 64
IMAGES = 2


def weights(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {
        "filters": (FILTERS, 3, 3, CHANNELS),
        "up": (FILTERS, HIDDEN),
        "down": (HIDDEN, CLASSES),
        "first": (CHANNELS, HIDDEN),
    }
    return {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype("float16")
        for name, shape in shapes.items()
    }


def model(values: dict[str, Any]) -> Any:
    """``conv``: images to classes of each pixel; ``mlp``: any number of rows; both mixed."""
    builder = relax.BlockBuilder()
    image = relax.Var("x", relax.TensorType((IMAGES, SIZE, SIZE, CHANNELS), "float16"))
    with builder.function("conv", [image]):
        with builder.dataflow():
            y = relax.op.nn.conv2d(
                image,
                relax.const(values["filters"]),
                padding=1,
                data_layout="NHWC",
                kernel_layout="OHWI",
            )
            y = builder.emit(relax.op.nn.relu(builder.emit(y)))
            y = builder.emit(relax.op.reshape(y, (IMAGES * SIZE * SIZE, FILTERS)))
            y = builder.emit(relax.op.matmul(y, relax.const(values["up"])))
            y = builder.emit(relax.op.nn.gelu(y))
            y = builder.emit(relax.op.matmul(y, relax.const(values["down"])))
            out = builder.emit_output(builder.emit(relax.op.sum(y, axis=1)))
        builder.emit_func_output(out)
    rows = tvm.tirx.Var("n", "int64")
    batch = relax.Var("x", relax.TensorType((rows, CHANNELS), "float16"))
    with builder.function("mlp", [batch]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(batch, relax.const(values["first"])))
            y = builder.emit(relax.op.nn.silu(y))
            out = builder.emit_output(builder.emit(relax.op.matmul(y, relax.const(values["down"]))))
        builder.emit_func_output(out)
    return builder.get()
