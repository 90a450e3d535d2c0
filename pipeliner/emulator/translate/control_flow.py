"""Translate branches and loops: threads that part run under masks, or as groups of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx import ForKind

from ...errors import EmulatorError
from ..base.dtypes import split_lanes
from ..base.intervals import Span, combined, within
from ..memory.spaces import is_local_scope
from . import calls
from .buffers import constant_extent
from .expressions import Expressions
from .operation import is_pure, op_name
from .source import Val, Writer

_TRIP_COUNTS: Final = (0, 1 << 30)
"""What trip counts are at least, and less than."""


class ControlFlow(Expressions):
    """Translation of branches and loops."""

    def __init__(self) -> None:
        super().__init__(Writer())
        self.loops: list[tuple[str, str]] = []  # (printed name, text of the current value)
        self.outside: dict[int, int] = {}  # loops around each of these, by its statement
        self.polled: set[str] = set()  # parameters that while loops read, '' for what is not known
        self.number = -1  # of the statement, in preorder, sequences and attributes not counted
        self.is_last = True  # whether nothing follows the statement in the kernel

    @abstractmethod
    def statement(self, stmt: Any) -> None:
        """Translate a statement."""

    @abstractmethod
    def step(self, stmt: Any) -> None:
        """Begin a statement: what follows is attributed to it."""

    def branch(self, stmt: Any) -> None:
        """Translate an if statement."""
        if self.touches_memory(stmt.condition):
            self.step(stmt)
        cond = self.settle(self.cast(self.expr(stmt.condition), "bool"), "cond")
        self._decide(stmt, cond)
        if not cond.varying:
            with self.writer.block(f"if {cond.text}:"):
                self.statement(stmt.then_case)
            if stmt.else_case is not None:
                with self.writer.block("else:"):
                    self.statement(stmt.else_case)
            return
        branches = [(cond.text, stmt.then_case)]
        if stmt.else_case is not None:
            branches.append((f"~{cond.text}", stmt.else_case))
        if any(_may_block(body) for _, body in branches):
            self._fork(branches)
            return
        for text, body in branches:
            with self.under(text):
                self.statement(body)

    def _decide(self, stmt: Any, value: Val) -> None:
        """Emit a check of the ``value`` that decides how a statement goes on."""
        if value.wraps:
            self.step(stmt)
            self.use(value)

    def _fork(self, branches: list[tuple[str, Any]]) -> None:
        """Run divided branches that may block as thread groups of their own, joined at the end."""
        programs, masks = [], []
        for text, body in branches:
            mask = self.writer.fresh("mask")
            self.writer.emit(f"{mask} = narrow({self.mask}, {text})")
            part = self.writer.fresh("part")
            outer, self.mask = self.mask, mask
            with self.writer.block(f"def {part}():"):
                self.statement(body)
                self.writer.emit("if False: yield")
            self.mask = outer
            masks.append(mask)
            programs.append(f"*(({part}(),) if {mask} is not NOBODY else ())")
        name = self.writer.fresh("branches")
        self.writer.emit(f"{name} = ({', '.join(programs)},)")
        rest = f", s.others({', '.join([self.mask, *masks])})" if self.is_last else ""
        self.writer.emit(f"if {name}: yield Fork({name}{rest})")

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Translate what is not the last of the kernel."""
        outer, self.is_last = self.is_last, False
        yield
        self.is_last = outer

    @contextmanager
    def _within(self, name: str, text: str) -> Any:
        self.loops.append((name, text))
        yield
        self.loops.pop()

    def loop(self, stmt: Any) -> None:
        """Translate a for loop."""
        if stmt.kind in (ForKind.THREAD_BINDING, ForKind.PARALLEL):
            name = stmt.loop_var.name
            raise EmulatorError("emulator.loop", name=name, kind=ForKind(stmt.kind).name)
        low = self.settle(self.expr(stmt.min), "low")
        extent = self.settle(self.expr(stmt.extent), "extent")
        stride = getattr(stmt, "step", None)
        step = 1 if stride is None else constant_extent(stride)
        dtype, _ = split_lanes(stmt.loop_var.ty)
        high = self.add(low, extent)
        self._decide(stmt, high)
        self.outside[self.number] = len(self.loops)
        known = positions(low, extent)
        name = self.writer.fresh(stmt.loop_var.name)
        if not low.varying and not extent.varying:
            around = "".join(f"{text}, " for _, text in self.loops)
            trips = f"{self.number}, {low.text}, {high.text}, {step}, ({around})"
            header = f"for {name} in s.trips({trips}):"
            inside = self._within(stmt.loop_var.name, name)
            with self.followed(), self.writer.block(header) as depth, inside:
                self.env[stmt.loop_var] = Val(name, dtype, depth=depth, known=known)
                if may_wait(stmt):
                    self.writer.begin(f"if {name} is None:", "    yield AtHead()", "    continue")
                self.statement(stmt.body)
            return
        self._varying_for(stmt, name, low, high, step, known)

    def trip_count(self, number: int, own: Any) -> Val:
        """The trip count of the loop around that is statement ``number``, ``own`` by its code.

        It is asked for where it stands: a proof knows more of it in later iterations.
        """
        value = self.expr(own)
        around = "".join(f"{text}, " for _, text in self.loops[: self.outside[number]])
        text = f"s.trip_count({number}, {value.text}, ({around}))"
        return Val(text, value.dtype, depth=self.writer.depth, pure=False, known=_TRIP_COUNTS)

    def _varying_for(
        self, stmt: Any, name: str, low: Val, high: Val, step: int, known: Span | None
    ) -> None:
        """Translate a loop that each thread leaves as its own extent ends."""
        w = self.writer
        dtype, _ = split_lanes(stmt.loop_var.ty)
        mask = w.fresh("mask")
        w.emit(
            f"{name} = s.full({low.text}, {self.dtype(dtype)})"
            if not low.varying
            else f"{name} = {low.text}.copy()"
        )
        enter = f"{mask} = narrow({self.mask}, {name} < {high.text})"
        w.emit(enter)
        outer, self.mask = self.mask, mask
        with (
            self.followed(),
            w.block(f"while {mask} is not NOBODY:") as depth,
            self._within(stmt.loop_var.name, f"int({name}.max())"),
        ):
            self.env[stmt.loop_var] = Val(name, dtype, varying=True, depth=depth, known=known)
            self.statement(stmt.body)
            w.emit(f"{name} = {name} + {step}")
            w.emit(enter.replace(f"narrow({outer},", f"narrow({mask},"))
        self.mask = outer

    def repeat(self, stmt: Any) -> None:
        """Translate a while loop."""
        w = self.writer
        mask = w.fresh("mask")
        w.emit(f"{mask} = {self.mask}")
        outer, self.mask = self.mask, mask
        with self.followed(), w.block("while True:"):
            self.step(stmt)
            cond = self.cast(self.expr(stmt.condition), "bool")
            self.use(cond)
            w.emit(f"{mask} = narrow({mask}, {cond.text})")
            w.emit(f"if {mask} is NOBODY: break")
            self.statement(stmt.body)
            if _spins(stmt):
                self.polled |= self._read_in(stmt)
                w.emit(f"yield s.spin({mask})")
        self.mask = outer

    def _read_in(self, stmt: Any) -> set[str]:
        """The parameters that a statement loads from, '' where it may be any other memory."""
        if any(not is_pure(call) for call in calls_in(stmt)):
            return {""}
        refs = (self.buffers.get(buffer) for buffer in _loaded(stmt))
        return {ref.memory.param or "" for ref in refs if ref and ref.memory.space != "local"}


def positions(low: Val, extent: Val) -> Span | None:
    """Values of a loop variable or an axis; None where nothing is known of its extent."""
    end = combined("+", low.span, extent.span)
    if low.span is None or end is None or not within(end, low.dtype):
        return None
    return low.span[0], max(low.span[0], end[1] - 1)


def may_wait(loop: Any) -> bool:
    """Whether threads wait for each other, or for copies, in a loop."""
    return any(calls.blocks(call) or "wait" in op_name(call) for call in calls_in(loop.body))


def _may_block(stmt: Any) -> bool:
    """Whether a statement contains an operation at which threads wait for each other."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, (tirx.While, found.append))
    return any(map(calls.blocks, calls_in(stmt))) or any(map(_spins, found))


def _spins(loop: Any) -> bool:
    """Whether a loop may wait for others: it reads memory, and has no wait of its own."""
    inside = calls_in(loop)
    if any(map(calls.waits_by_warp, inside)):
        return False
    outside = (not is_local_scope(buffer.scope()) for buffer in _loaded(loop))
    return any(outside) or not all(map(is_pure, inside))


def _loaded(stmt: Any) -> list[Any]:
    """The buffers that a statement loads from."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, (ir.TensorLoad, lambda load: found.append(load.source)))
    return found


def calls_in(stmt: Any) -> list[Any]:
    """All calls in a statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, (ir.Call, found.append))
    return found
