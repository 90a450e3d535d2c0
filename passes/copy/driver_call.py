"""Call the CUDA driver's cuTensorMapEncodeIm2col from a function's host code.

TVM's runtime has a function for tiled tensor maps but none for im2col. Nothing that TVM loads makes
the driver visible to code that is compiled later, and its host code calls functions only by name.
So a helper in LLVM IR, linked into the host code that calls it, finds the driver with ``dlopen``
and the function with ``dlsym``, and calls it with arrays made of plain numbers. An exported library
therefore needs only the driver.

Source: CUDA driver API, cuTensorMapEncodeIm2col; arrays start with the innermost dimension, those
of the corners too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import tvm
from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...values.elements import element
from ..ir.nodes import Expr, Stmt, Var, i32, seq

ENCODE_IM2COL: Final = "pipeliner_encode_im2col"

_DRIVER: Final = "libcuda.so.1"
_FUNCTION: Final = "cuTensorMapEncodeIm2col"
_RTLD_NOW: Final = 2
_NO_DRIVER: Final = -1

_ARRAYS: Final = {
    "shape": ("i64", 5),
    "pitch": ("i64", 4),
    "lower": ("i32", 3),
    "upper": ("i32", 3),
    "step": ("i32", 5),
}
"""Types and lengths of the function's arrays; a tensor of fewer dimensions leaves the rest 0."""

_SCALARS: Final = ("channels", "pixels", "swizzle", "promotion")


def encode_im2col(
    var: Var,
    dtype: str,
    data: Expr,
    shape: Sequence[int],
    pitch: Sequence[int],
    lower: Sequence[int],
    upper: Sequence[int],
    step: Sequence[int],
    *scalars: int,
) -> Stmt:
    """Return host code that fills the tensor map ``var``; when run it may raise RuntimeError.

    Arguments are those of the driver's function, inner dimensions first. ``scalars``: channels of a
    pixel, pixels, swizzle and promotion.
    """
    numbers: list[Expr] = []
    arrays = (shape, pitch, lower, upper, step)
    for (kind, length), values in zip(_ARRAYS.values(), arrays, strict=True):
        padded = [*values, *[0] * (length - len(values))]
        numbers += [tirx.const(value, f"int{kind[1:]}") for value in padded]
    kind_of_element = element(dtype).tensor_map
    assert kind_of_element is not None, dtype
    call = T.call_extern(
        "int32", ENCODE_IM2COL, var, kind_of_element, len(shape), data, *numbers, *scalars
    )
    result = Var(f"{var.name}_result", "int32")
    text = tvm.ir.StringImm
    failed = Reason("call.tensor_map", name=str(var.name), function=_FUNCTION, driver=_DRIVER)
    done = tirx.AssertStmt(
        tirx.EQ(result, i32(0)),
        text("RuntimeError"),
        [text(str(failed))],
    )
    return tirx.AttrStmt(
        i32(0), "pragma_import_llvm", text(_helper()), seq(tirx.Bind(result, call), done)
    )


def _helper() -> str:
    """Return the helper, which returns the driver function's status, or -1 without a driver."""
    parameters = ["ptr %map", "i32 %dtype", "i32 %rank", "ptr %data"]
    filled: list[str] = []
    for name, (kind, length) in _ARRAYS.items():
        filled.append(f"%{name} = alloca [{length} x {kind}]")
        for n in range(length):
            parameters.append(f"{kind} %{name}.{n}")
            filled.append(f"%{name}.at{n} = getelementptr {kind}, ptr %{name}, i32 {n}")
            filled.append(f"store {kind} %{name}.{n}, ptr %{name}.at{n}")
    parameters += [f"i32 %{name}" for name in _SCALARS]
    arguments = (
        "ptr %map, i32 %dtype, i32 %rank, ptr %data, ptr %shape, ptr %pitch, ptr %lower, "
        "ptr %upper, i32 %channels, i32 %pixels, ptr %step, i32 0, i32 %swizzle, i32 %promotion, "
        "i32 0"
    )
    return "\n".join(
        [
            _text("driver", _DRIVER),
            _text("function", _FUNCTION),
            "declare ptr @dlopen(ptr, i32)",
            "declare ptr @dlsym(ptr, ptr)",
            f"define linkonce_odr hidden i32 @{ENCODE_IM2COL}({', '.join(parameters)}) {{",
            "start:",
            *filled,
            f"%driver = call ptr @dlopen(ptr @{ENCODE_IM2COL}.driver, i32 {_RTLD_NOW})",
            "%no_driver = icmp eq ptr %driver, null",
            "br i1 %no_driver, label %failed, label %find",
            "find:",
            f"%function = call ptr @dlsym(ptr %driver, ptr @{ENCODE_IM2COL}.function)",
            "%no_function = icmp eq ptr %function, null",
            "br i1 %no_function, label %failed, label %encode",
            "encode:",
            f"%result = call i32 %function({arguments})",
            "ret i32 %result",
            "failed:",
            f"ret i32 {_NO_DRIVER}",
            "}",
        ]
    )


def _text(name: str, value: str) -> str:
    """Return a constant of the helper: text and the zero that ends it."""
    size = len(value) + 1
    return f'@{ENCODE_IM2COL}.{name} = private constant [{size} x i8] c"{value}\\00"'
