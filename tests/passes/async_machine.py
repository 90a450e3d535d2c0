"""A tiny interpreter of thread-free TensorIR on which cp.async lands as late as its waits allow.

One thread, scalar code, buffers as numpy arrays full of NaN until written: enough to run an
expanded loop whose copies are asynchronous, which LLVM cannot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.s_tir import SBlockRealize

_BINARY = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: np.less,
    tirx.EQ: np.equal,
}


class AsyncMachine:
    """Runs statements on ``memory`` (buffer name -> array); ``in_flight``: copies by commit group."""

    def __init__(self, memory: dict[str, np.ndarray], scalars: dict[str, int]) -> None:
        self.memory = dict(memory)
        self.buffers: dict[Any, np.ndarray] = {}
        self.env: dict[str, Any] = dict(scalars)
        self.groups: list[list[Any]] = []
        self.open: list[Any] = []

    def run(self, func: Any) -> dict[str, np.ndarray]:
        """The memory after ``func``, all copies landed."""
        self.statement(func.body)
        self.land(0)
        assert not self.open, "copies that no group was committed for"
        return self.memory

    def array(self, buf: Any) -> np.ndarray:
        if buf in self.buffers:
            return self.buffers[buf]
        return self.memory[str(buf.name)]

    def land(self, keep: int) -> None:
        while len(self.groups) > keep:
            for array, index, values in self.groups.pop(0):
                array[index] = values

    def statement(self, stmt: Any) -> None:
        if isinstance(stmt, tirx.SeqStmt):
            for child in stmt.seq:
                self.statement(child)
        elif isinstance(stmt, tirx.AttrStmt):
            self.statement(stmt.body)
        elif isinstance(stmt, SBlockRealize):
            for buf in stmt.block.alloc_buffers:
                shape = [int(extent.value) for extent in buf.shape]
                self.buffers[buf] = np.full(shape, np.nan, "float32")
            self.statement(stmt.block.body)
        elif isinstance(stmt, tirx.For):
            low, extent = self.value(stmt.min), self.value(stmt.extent)
            for i in range(int(low), int(low) + int(extent)):
                self.env[stmt.loop_var] = i
                self.statement(stmt.body)
        elif isinstance(stmt, tirx.IfThenElse):
            if self.value(stmt.condition):
                self.statement(stmt.then_case)
        elif isinstance(stmt, tirx.BufferStore):
            self.array(stmt.buffer)[self.index(stmt.indices)] = self.value(stmt.value)
        else:
            self.call(stmt.value)

    def call(self, call: Any) -> None:
        if not isinstance(call, Call):
            return
        name = call.op.name
        if name == "tirx.ptx.cp_async_commit_group":
            self.groups.append(self.open)
            self.open = []
        elif name == "tirx.ptx.cp_async_wait_group":
            self.land(int(call.args[0].value))
        else:
            assert name.startswith("tirx.ptx.cp_async_c"), name
            target, source = call.args[0].args[0].args[0], call.args[1].args[0]
            count = int(call.args[2].value) // 4
            array, start = self.array(target.source), self.index(target.indices)
            first = self.index(source.indices)
            values = self.array(source.source)[(*first[:-1], slice(first[-1], first[-1] + count))]
            index = (*start[:-1], slice(start[-1], start[-1] + count))
            array[index] = np.nan  # the data of the slot is gone from the issue on
            self.open.append((array, index, values.copy()))

    def index(self, indices: Any) -> tuple[int, ...]:
        return tuple(int(self.value(index)) for index in indices)

    def value(self, expr: Any) -> Any:
        if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
            return expr.value
        if isinstance(expr, Var):
            return self.env[expr] if expr in self.env else self.env[str(expr.name)]
        if isinstance(expr, TensorLoad):
            index = self.index(expr.indices)
            array = self.array(expr.source)
            assert all(0 <= i < n for i, n in zip(index, array.shape)), f"{expr} is out of bounds"
            return array[index]
        return _BINARY[type(expr)](self.value(expr.a), self.value(expr.b))
