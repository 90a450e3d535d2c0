"""What of a kernel's generated code a proof has to run: the rest moves data, which it ignores.

``sliced`` keeps every access of shared memory, every synchronisation, every use of registers by
wgmma, the control flow, and the registers that decide. It leaves out arithmetic on data, stores to
other registers, and where copies read or write global memory:

    s.step((28,))                                     s.step((28,))
    matrix.touch(s, acc, 0, 2, m)               =>    matrix.touch(s, acc, 0, 4, m)
    pairs.store(s, 0, half(acc.load(0)), m)
    s.step((29,))
    matrix.touch(s, acc, 2, 2, m)
    pairs.store(s, 2, half(acc.load(2)), m)
    s.step((30,))                                     s.step((30,))
    S.store(s, at, pairs.load(s, 0), m)               S.note(s, at, m, 1, writes=True)

What is left out can be wrong in ways that other checks judge: bounds of global memory and of
registers, values. Uses of neighbouring registers are one use, blamed on the first statement.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from ...emulator.translate.source import Code, Entry

_MODULES: Final = ("np", "arith", "mathfn")
_FUNCTIONS: Final = ("bool", "int", "float", "min", "max", "abs", "narrow", "range")
_CALLS: Final = (
    "s.full",
    "s.others",
    "s.trip_count",
    "hopper.map_address",
    "hopper.rank_of_address",
    "hopper.elect",
    "matrix.matrix_descriptor",
    "warp.active_mask",
    "warp.computed_pair",
    "warp.logic_of_three",
    "warp.narrowed_pair",
    "warp.nearest_tf32",
    "warp.permuted_bytes",
)
"""Modules, functions and calls that have a value and no effect."""

_UNITS: Final = ("s", "atomics", "grid_barrier", "hopper", "matrix", "mma_runs", "tma", "warp")
_UNITS_OF_TILES: Final = "wmma"
"""What else generated code calls: units of the emulator."""

_MULTIPLIES: Final = (
    "warp.mma",
    "warp.mma_legacy",
    "mma_runs.multiply_all",
    "wmma.mma",
    "wmma.fill",
)
"""Arithmetic of whole warps, on registers alone; the last operand is the mask."""

_NOTHING: Final = "[]"
_DATA: Final = {
    "tma.tensor_load": {4: _NOTHING, 6: "None"},
    "tma.tensor_store": {4: _NOTHING},
    "tma.bulk_load": {4: "0"},
    "tma.bulk_store": {2: "0"},
    "warp.cp_async": {4: "0", 7: "None"},
    "matrix.wgmma_mma": {6: "1"},
    "hopper.stmatrix": {2: ""},
    "warp.shuffle": {2: "0"},
}
"""Operands by position that are data or places in global memory, and what stands for them."""

_TOUCH: Final = "matrix.touch"
_STEP: Final = "s.step"


def sliced(code: Code, deciding: Collection[str], *, dependent: bool) -> Entry:
    """Return what a proof has to run of a kernel, that yields where it must wait.

    ``deciding``: the local buffers that decide. ``dependent``: whether the launch may begin before
    the kernel before has ended, so that accesses of global memory matter.
    """
    tree = ast.parse(code.waiting)
    views = _Views(tree)
    (kernel,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    slicer = _Slicer(views, frozenset(deciding), dependent=dependent)
    kernel.body = slicer.body(kernel.body, slicer.live(kernel.body))
    return code.compiled(ast.fix_missing_locations(tree))


class _Views:
    """Which memory each name of the code is a view of, or the array of one."""

    def __init__(self, tree: ast.AST) -> None:
        self.spaces: dict[str, str] = {}
        self.buffers: dict[str, str] = {}
        self.arrays: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._define(node.targets[0].id, node.value)

    def _define(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Attribute) and value.attr == "array":
            self.arrays[name] = _named(value.value)
        if not isinstance(value, ast.Call):
            return
        function = _called(value)
        if function == "LocalView.allocate":
            self.spaces[name] = "local"
            self.buffers[name] = ast.literal_eval(value.args[0])
        elif function == "SharedView":
            self.spaces[name] = "shared"
        elif name.startswith("v_") and function.endswith(".view"):
            of = function.removesuffix(".view")
            self.spaces[name] = self.spaces.get(of, "global")
            self.buffers[name] = self.buffers.get(of, "")

    def space(self, name: str) -> str:
        """The space of a view, empty for other names."""
        return self.spaces.get(name, "")

    def buffer(self, name: str) -> str:
        """The local buffer of a view or of its array."""
        return self.buffers.get(self.arrays.get(name, name), "")


@dataclass
class _Kept:
    """A body being written: statements, the step that comes first, and touches that may grow."""

    body: list[ast.stmt] = field(default_factory=list)
    step: ast.stmt | None = None
    checks: list[ast.stmt] = field(default_factory=list)
    touches: dict[str, list[ast.Call]] = field(default_factory=dict)

    def add(self, stmt: ast.stmt) -> None:
        """Add a statement that does something, behind its step."""
        if self.step is not None:
            self.body.append(self.step)
            self.step = None
        self.body.extend(self.checks)
        self.checks = []
        self.body.append(stmt)

    def touch(self, call: ast.Call) -> None:
        """Add a use of registers, to one of their neighbours where there is one."""
        _, view, index, width, mask = call.args
        if not isinstance(index, ast.Constant) or not isinstance(width, ast.Constant):
            self.add(ast.Expr(call))
            return
        known = self.touches.setdefault(f"{_named(view)} {ast.dump(mask)}", [])
        first, last = _constant(index), _constant(index) + _constant(width)
        for other in known:
            start, size = (_constant(arg) for arg in other.args[2:4])
            if first <= start + size and start <= last:
                low, high = min(first, start), max(last, start + size)
                other.args[2], other.args[3] = ast.Constant(low), ast.Constant(high - low)
                return
        grown = ast.Call(call.func, list(call.args), [])
        known.append(grown)
        self.add(ast.Expr(grown))


class _Slicer:
    """Decides what is kept, and writes it."""

    def __init__(self, views: _Views, deciding: frozenset[str], *, dependent: bool) -> None:
        self._views = views
        self._deciding = deciding
        self._dependent = dependent

    # Names that matter

    def live(self, body: list[ast.stmt]) -> set[str]:
        """The names that what is kept needs, in a body and in all inside."""
        makers: dict[str, list[ast.expr]] = {}
        needed: list[str] = []
        for stmt in _every(body):
            needed.extend(self._needs(stmt))
            for name, value in _assigned(stmt):
                makers.setdefault(name, []).append(value)
        found: set[str] = set()
        while needed:
            name = needed.pop()
            if name not in found:
                found.add(name)
                for value in makers.get(name, ()):
                    needed.extend(_names(value))
        return found

    def _needs(self, stmt: ast.stmt) -> Iterator[str]:
        """The names that a statement needs whatever is live."""
        if isinstance(stmt, ast.While):
            yield from _names(stmt)  # it is kept as it is
        elif isinstance(stmt, ast.If):
            yield from _names(stmt.test)
        elif isinstance(stmt, ast.For):
            yield from _names(stmt.iter)
        elif isinstance(stmt, ast.Assign | ast.Expr):
            for effect in self._effects_of(stmt):
                yield from _names(effect)

    def _effects_of(self, stmt: ast.Assign | ast.Expr) -> list[ast.expr]:
        """What of a statement is kept even if its result is not needed."""
        if isinstance(stmt.value, ast.Yield | ast.YieldFrom):
            return [stmt.value]
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Subscript):
            target = stmt.targets[0]
            if self._views.buffer(_named(target.value)) in self._deciding:
                return [stmt.value, target]
            return [*self._effects(stmt.value), *self._effects(target.slice)]
        return list(self._effects(stmt.value))

    def _effects(self, expr: ast.expr) -> Iterator[ast.expr]:
        """The calls in an expression that do something, in order, without their data."""
        if not isinstance(expr, ast.Call):
            for part in ast.iter_child_nodes(expr):
                if isinstance(part, ast.expr):
                    yield from self._effects(part)
            return
        function = _called(expr)
        base, _, method = function.rpartition(".")
        space = self._views.space(base)
        if space and method in ("load", "store"):
            yield from self._access(expr, base, space, method == "store")
        elif function in _MULTIPLIES:
            yield _parsed(f"s.warps({ast.unparse(expr.args[-1])}, 'mma')")
        elif function == "warp.store_registers" or method == "reset":
            if not self._keeps(expr):
                for arg in expr.args:
                    yield from self._effects(arg)
            else:
                yield expr
        elif base.split(".")[0] in (*_UNITS, _UNITS_OF_TILES) and function not in _CALLS:
            yield self._without_data(expr, function)
        elif not base or function in _CALLS or base in _MODULES or base not in _UNITS:
            yield from (e for arg in (expr.func, *expr.args) for e in self._effects(arg))

    def _keeps(self, expr: ast.Call) -> bool:
        """Whether a call changes registers that decide."""
        return any(self._views.buffer(name) in self._deciding for name in _names(expr))

    def _access(self, call: ast.Call, base: str, space: str, writes: bool) -> Iterator[ast.expr]:
        """What is kept of a load or store of a view."""
        if space == "local":
            if writes and self._views.buffer(base) in self._deciding:
                yield call
            else:
                for arg in call.args:
                    yield from self._effects(arg)
            return
        index, mask = call.args[1], call.args[3 if writes else 2]
        width = call.args[4 if writes else 3] if len(call.args) > 3 + writes else ast.Constant(1)
        if writes:
            yield from self._effects(call.args[2])
        if space == "shared":
            note = _parsed(f"{base}.note(s, None, None, 1, writes={writes})")
            note.args[1:4] = [index, mask, width]
            yield note
            return
        yield from self._effects(index)
        if self._dependent:
            yield _parsed(f"s.touch_global({base}.name, {ast.unparse(mask)})")

    def _without_data(self, call: ast.Call, function: str) -> ast.Call:
        args = list(call.args)
        for at, text in _DATA.get(function, {}).items():
            if at < len(args):
                given = args[at]
                count = len(given.elts) if isinstance(given, ast.List) else 0
                args[at] = ast.parse(text or f"[{'0, ' * count}]", mode="eval").body
        return ast.Call(call.func, args, call.keywords)

    # Writing

    def body(self, stmts: list[ast.stmt], live: set[str]) -> list[ast.stmt]:
        """Return what is kept of a body."""
        kept = _Kept()
        for stmt in stmts:
            self._write(stmt, live, kept)
        return kept.body

    def _write(self, stmt: ast.stmt, live: set[str], kept: _Kept) -> None:
        if isinstance(stmt, ast.Expr) and _is_step(stmt):
            kept.step, kept.checks = stmt, []
        elif isinstance(stmt, ast.If) and ast.unparse(stmt.test) == "s.wrapped":
            kept.checks.append(stmt)
        elif isinstance(stmt, ast.FunctionDef):
            stmt.body = self.body(stmt.body, live)
            kept.body.append(stmt)
        elif isinstance(stmt, ast.If | ast.For):
            self._nested(stmt, live, kept)
        elif isinstance(stmt, ast.Assign):
            self._assign(stmt, live, kept)
        elif isinstance(stmt, ast.Expr):
            for effect in self._effects_of(stmt):
                self._effect(effect, kept)
        else:
            kept.touches.clear()
            kept.add(stmt)

    def _nested(self, stmt: ast.If | ast.For, live: set[str], kept: _Kept) -> None:
        inside = self.body(stmt.body, live)
        other = self.body(stmt.orelse, live)
        if not inside and not other:
            return
        kept.touches.clear()
        if isinstance(stmt, ast.If):
            kept.body.append(ast.If(stmt.test, inside or [ast.Pass()], other))
        else:
            kept.body.append(ast.For(stmt.target, stmt.iter, inside or [ast.Pass()], other))

    def _assign(self, stmt: ast.Assign, live: set[str], kept: _Kept) -> None:
        target = stmt.targets[0]
        wanted = any(name in live for name, _ in _assigned(stmt))
        effects = self._effects_of(stmt)
        if isinstance(stmt.value, ast.Yield | ast.YieldFrom) or (wanted and effects):
            self._flush(stmt.value, kept)
            kept.add(stmt)
        elif isinstance(target, ast.Subscript):
            if self._views.buffer(_named(target.value)) in self._deciding:
                kept.body.append(stmt)
            else:
                for effect in effects:
                    self._effect(effect, kept)
        elif wanted:
            kept.body.append(stmt)
        else:
            for effect in effects:
                self._effect(effect, kept)

    def _effect(self, effect: ast.expr, kept: _Kept) -> None:
        if isinstance(effect, ast.Call) and _called(effect) == _TOUCH:
            kept.touch(effect)
            return
        self._flush(effect, kept)
        stays_local = isinstance(effect, ast.Call) and self._views.space(_target(effect))
        if stays_local == "local":
            kept.body.append(ast.Expr(effect))
        else:
            kept.add(ast.Expr(effect))

    def _flush(self, effect: ast.expr, kept: _Kept) -> None:
        """Let no touch grow across an operation of the matrix units."""
        calls = [_called(node) for node in ast.walk(effect) if isinstance(node, ast.Call)]
        if any(name.startswith("matrix.") for name in calls):
            kept.touches.clear()


def _every(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a body, those inside others too."""
    for stmt in body:
        yield from (node for node in ast.walk(stmt) if isinstance(node, ast.stmt))


def _assigned(stmt: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement assigns, with the value."""
    if isinstance(stmt, ast.Assign):
        target = stmt.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        for name in names:
            if isinstance(name, ast.Name):
                yield name.id, stmt.value


def _names(expr: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(expr) if isinstance(node, ast.Name))


def _named(expr: ast.expr) -> str:
    return expr.id if isinstance(expr, ast.Name) else ""


def _called(call: ast.Call) -> str:
    """What a call calls, as ``module.function``; of a method of an expression, ``.method``."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute):
        return f"{_named(function.value)}.{function.attr}"
    return ""


def _target(call: ast.Call) -> str:
    """Return the view that a call stores into; of another call, what it calls."""
    of = call.func
    if isinstance(of, ast.Attribute) and of.attr == "store":
        return _named(of.value)
    return _called(call)


def _is_step(stmt: ast.Expr) -> bool:
    return isinstance(stmt.value, ast.Call) and _called(stmt.value) == _STEP


def _constant(expr: ast.expr) -> int:
    return int(ast.literal_eval(expr))


def _parsed(text: str) -> ast.Call:
    expr = ast.parse(text, mode="eval").body
    assert isinstance(expr, ast.Call)
    return expr
