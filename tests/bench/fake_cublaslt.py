"""A library in cuBLASLt's place: it reads what it is passed as C does, and multiplies by numpy."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {
    0: np.dtype("float32"),
    2: np.dtype("float16"),
    3: np.dtype("int8"),
    10: np.dtype("int32"),
    14: np.dtype(ml_dtypes.bfloat16),
    28: np.dtype(ml_dtypes.float8_e4m3fn),
}

C_NAMES = {
    "cublasLtCreate": "create",
    "cublasLtMatmulDescCreate": "create_operation",
    "cublasLtMatmulDescSetAttribute": "set_attribute",
    "cublasLtMatmulDescDestroy": "destroy",
    "cublasLtMatrixLayoutCreate": "create_layout",
    "cublasLtMatrixLayoutSetAttribute": "set_attribute",
    "cublasLtMatrixLayoutDestroy": "destroy",
    "cublasLtMatmulPreferenceCreate": "create_preference",
    "cublasLtMatmulPreferenceSetAttribute": "set_attribute",
    "cublasLtMatmulPreferenceDestroy": "destroy",
    "cublasLtMatmulAlgoGetHeuristic": "heuristic",
    "cublasLtMatmulAlgoConfigGetAttribute": "configuration",
    "cublasLtMatmul": "multiply",
}

OK, INVALID, UNSUPPORTED = 0, 7, 15


class FakeCublasLt:
    """``states``: of the algorithms that its heuristic returns; ``refuses``: those that do not run.

    ``ran``: the algorithms that multiplied, ``limits``: bytes of workspace that were allowed,
    ``fast``: whether sums of fp8 were to stay on tensor cores.
    """

    def __init__(self, states: tuple[int, ...] = (OK, OK), refuses: tuple[int, ...] = ()) -> None:
        self._made: dict[int, dict[int | str, Any]] = {}
        self._states, self._refuses = states, refuses
        self.ran: list[int] = []
        self.limits: list[int] = []
        self.fast: list[int] = []
        self.freed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self, C_NAMES[name])

    def create(self, handle: Any) -> int:
        handle._obj.value = 0x1000
        return OK

    def create_operation(self, made: Any, compute: int, scale: int) -> int:
        return self._new(made, compute=compute, scale=scale)

    def create_layout(self, made: Any, dtype: int, rows: Any, columns: Any, leading: Any) -> int:
        sizes = {"rows": rows.value, "columns": columns.value, "leading": leading.value}
        return self._new(made, dtype=TYPES[dtype], **sizes)

    def create_preference(self, made: Any) -> int:
        return self._new(made)

    def set_attribute(self, one: Any, attribute: Any, value: Any, size: Any) -> int:
        assert size.value == ctypes.sizeof(value._obj)
        self._made[one.value][attribute.value] = value._obj.value
        return OK

    def destroy(self, one: Any) -> int:
        del self._made[one.value]
        self.freed += 1
        return OK

    def heuristic(
        self, handle: Any, of: Any, a: Any, b: Any, c: Any, d: Any, preference: Any, most: Any,
        results: Any, count: Any,
    ) -> int:  # fmt: skip
        assert handle.value == 0x1000
        assert c.value == d.value
        self.limits.append(self._made[preference.value][1])
        self.fast.append(self._made[of.value].get(25, 0))
        count._obj.value = min(most.value, len(self._states))
        for at, state in enumerate(self._states[: most.value]):
            results[at].state = state
            results[at].algorithm.data[0] = at
        return OK if self._states else UNSUPPORTED

    def configuration(
        self, algorithm: Any, attribute: Any, value: Any, size: Any, written: Any
    ) -> int:
        wide = {7: 2, 8: 2}.get(attribute.value, 4)
        if size.value != wide:
            return INVALID
        value._obj.value = {0: 66, 1: 20 + algorithm._obj.data[0], 2: 1}.get(attribute.value, 0)
        return OK

    def multiply(
        self, handle: Any, of: Any, alpha: Any, a: Any, of_a: Any, b: Any, of_b: Any, beta: Any,
        c: Any, of_c: Any, d: Any, of_d: Any, algorithm: Any, workspace: Any, size: Any,
        stream: Any,
    ) -> int:  # fmt: skip
        which = algorithm._obj.data[0]
        if which in self._refuses:
            return UNSUPPORTED
        what = self._made[of.value]
        integer = what["compute"] == 72
        assert isinstance(alpha._obj, ctypes.c_int32 if integer else ctypes.c_float)
        assert (alpha._obj.value, beta._obj.value) == (1, 0)
        assert (c.value, of_c.value) == (d.value, of_d.value)
        wide = np.int64 if integer else np.float64
        left = self._matrices(a, of_a).astype(wide)
        right = self._matrices(b, of_b).astype(wide)
        left = left.swapaxes(1, 2) if what[3] else left
        right = right.swapaxes(1, 2) if what[4] else right
        out = self._matrices(d, of_d)
        out[...] = (left @ right).astype(out.dtype)
        self.ran.append(which)
        return OK

    def _new(self, made: Any, **fields: Any) -> int:
        made._obj.value = 0x2000 + len(self._made) + self.freed
        self._made[made._obj.value] = dict(fields)
        return OK

    def _matrices(self, pointer: Any, layout: Any) -> Any:
        """The matrices of a batch in memory, each by columns."""
        of = self._made[layout.value]
        count, stride = of.get(5, 1), of.get(6, 0)
        elements = stride * (count - 1) + of["leading"] * of["columns"]
        raw = (ctypes.c_uint8 * (elements * of["dtype"].itemsize)).from_address(pointer.value)
        flat = np.frombuffer(raw, of["dtype"])
        steps = tuple(step * of["dtype"].itemsize for step in (stride, 1, of["leading"]))
        shape = (count, of["rows"], of["columns"])
        return np.lib.stride_tricks.as_strided(flat, shape, steps)
