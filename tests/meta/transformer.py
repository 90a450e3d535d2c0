"""A transformer's layer in relax, as PyTorch's importer leaves it: biased products, heads, SwiGLU."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

BATCH, TOKENS, HEADS, DIM, WIDE = 2, 64, 2, 32, 128
WIDTH = HEADS * DIM


def weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "gate": (WIDTH, WIDE)}
    shapes |= {"value": (WIDTH, WIDE), "down": (WIDE, WIDTH)}
    made = {name: rng.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    made["bias"] = rng.standard_normal(3 * WIDTH)
    return {name: array.astype("float16") for name, array in made.items()}


def layer(*, together: bool = False) -> Any:
    """For (batch, tokens, width): attention, a residual, SwiGLU.

    ``together``: gate and value are halves of one product.
    """
    w = weights()
    op, nn = relax.op, relax.op.nn
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((BATCH, TOKENS, WIDTH), "float16"))
    emit = builder.emit

    def product(value: Any, matrix: Any) -> Any:
        return emit(op.matmul(value, relax.const(matrix)))

    def half(value: Any, at: int) -> Any:
        return emit(relax.TupleGetItem(value, at))

    with builder.function("main", [x]):
        with builder.dataflow():
            qkv = emit(op.add(product(x, w["qkv"]), relax.const(w["bias"])))
            qkv = emit(op.reshape(qkv, (BATCH, TOKENS, 3 * HEADS, DIM)))
            split = emit(op.split(emit(op.permute_dims(qkv, [0, 2, 1, 3])), 3, axis=1))
            heads = [emit(op.permute_dims(half(split, at), [0, 2, 1, 3])) for at in range(3)]
            made = emit(nn.attention(*heads, causal_mask="TopLeft"))
            y = emit(op.reshape(made, (BATCH, TOKENS, WIDTH)))
            y = emit(op.add(product(y, w["out"]), x))
            if together:
                both = product(y, np.concatenate([w["gate"], w["value"]], axis=-1))
                gate, value = (half(emit(op.split(both, 2, axis=-1)), at) for at in range(2))
                gate = emit(nn.silu(gate))
            else:
                gate, value = product(y, w["gate"]), product(y, w["value"])
                gate = emit(op.multiply(gate, emit(op.sigmoid(gate))))
            wide = emit(op.multiply(gate, value))
            out = builder.emit_output(product(wide, w["down"]))
        builder.emit_func_output(out)
    return builder.get()


def reference(x: Any) -> Any:
    """What the layer makes of ``x``, in float64."""
    w = {name: array.astype("f8") for name, array in weights().items()}
    wide = x.astype("f8")
    qkv = (
        (wide @ w["qkv"] + w["bias"]).reshape(BATCH, TOKENS, 3, HEADS, DIM).transpose(2, 0, 3, 1, 4)
    )
    scores = qkv[0] @ qkv[1].swapaxes(-1, -2) / np.sqrt(DIM)
    scores = np.exp(np.where(np.tril(np.ones((TOKENS, TOKENS))), scores, -np.inf))
    made = scores / scores.sum(-1, keepdims=True) @ qkv[2]
    y = made.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH) @ w["out"] + wide
    gate = y @ w["gate"]
    return (gate / (1 + np.exp(-gate)) * (y @ w["value"])) @ w["down"]
