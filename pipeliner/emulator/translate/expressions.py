"""Translate TIR expressions to text of the generated code."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from tvm import ir
from tvm.ir import prim

from ...errors import EmulatorError
from ..base import arith
from ..base.dtypes import is_float, is_int, numpy_dtype, split_lanes
from ..base.intervals import combined, union, within
from .operation import op_name
from .pointers import Pointers
from .source import Val

_ARITHMETIC: Final = {
    prim.Add: "+",
    prim.Sub: "-",
    prim.Mul: "*",
    prim.LShift: "<<",
    prim.RShift: ">>",
    prim.BitwiseAnd: "&",
    prim.BitwiseOr: "|",
    prim.BitwiseXor: "^",
}
"""Operator of each arithmetic expression."""

_COMPARISONS: Final = {
    prim.EQ: "==",
    prim.NE: "!=",
    prim.LT: "<",
    prim.LE: "<=",
    prim.GT: ">",
    prim.GE: ">=",
}
"""Operator of each comparison."""

_DIVISIONS: Final = {
    prim.Div: "trunc_div",
    prim.Mod: "trunc_mod",
    prim.FloorDiv: "floor_div",
    prim.FloorMod: "floor_mod",
}
"""Function of ``arith`` for each division."""


class Expressions(Pointers):
    """Translation of expressions."""

    @abstractmethod
    def trip_count(self, number: int, own: Any) -> Val:
        """The trip count of the loop around that is statement ``number``, ``own`` by its code."""

    def expr(self, node: Any) -> Val:
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            raise EmulatorError(
                "emulator.expression", kind=type(node).__name__, expression=str(node)
            )
        return handler(self, node)

    def _var(self, node: Any) -> Val:
        value = self.env.get(node)
        if not isinstance(value, Val):
            raise EmulatorError("emulator.variable", name=node.name)
        return value

    def _imm(self, node: Any) -> Val:
        return self.const(node.value, split_lanes(node.ty)[0])

    def _arithmetic(self, node: Any) -> Val:
        return self.binary(_ARITHMETIC[type(node)], self.expr(node.a), self.expr(node.b))

    def _division(self, node: Any) -> Val:
        a, b = self.expr(node.a), self.expr(node.b)
        lanes = max(a.lanes, b.lanes)
        if is_float(a.dtype):
            return self.make(f"({a.text} / {b.text})", a.dtype, [a, b], lanes)
        name = _DIVISIONS[type(node)]
        span = combined(name, a.span, b.span)
        return self.make(f"arith.{name}({a.text}, {b.text})", a.dtype, [a, b], lanes, known=span)

    def _extremum(self, node: Any) -> Val:
        a, b = self.expr(node.a), self.expr(node.b)
        name = "min" if isinstance(node, prim.Min) else "max"
        lanes = max(a.lanes, b.lanes)
        span = combined(name, a.span, b.span)
        if a.python_int and b.python_int:
            return self.make(f"{name}({a.text}, {b.text})", a.dtype, [a, b], known=span)
        # CUDA's min and max of floats are fminf and fmaxf: a NaN loses.
        ufunc = f"np.f{name}" if is_float(a.dtype) else f"np.{name}imum"
        return self.make(f"{ufunc}({a.text}, {b.text})", a.dtype, [a, b], lanes, known=span)

    def _comparison(self, node: Any) -> Val:
        a, b = self.expr(node.a), self.expr(node.b)
        text = f"({a.text} {_COMPARISONS[type(node)]} {b.text})"
        lanes = max(a.lanes, b.lanes)
        if lanes == 1 and not a.varying and not b.varying:
            text = f"bool{text}"
        return self.make(text, "bool", [a, b], lanes)

    def _logical(self, node: Any) -> Val:
        a = self.expr(node.a)
        both = isinstance(node, prim.And)
        if not self.touches_memory(node.b):
            b = self.expr(node.b)
            if a.python_int and b.python_int:
                word = "and" if both else "or"
                return self.make(f"({a.text} {word} {b.text})", "bool", [a, b])
            return self.binary("&" if both else "|", a, b)
        # `&&` and `||` do not evaluate their right side where the left decides.
        out = self.writer.fresh("both" if both else "either")
        self.writer.emit(f"{out} = np.array(np.broadcast_to({a.text}, s.n))")
        with self.under(out if both else f"~{out}"):
            b = self.expr(node.b)
            self.writer.emit(f"{out} = {out} {'&' if both else '|'} {b.text}")
        return Val(out, "bool", 1, True, self.writer.depth, False)

    def _not(self, node: Any) -> Val:
        a = self.expr(node.a)
        return self.make(f"(not {a.text})" if a.python_int else f"~{a.text}", "bool", [a], a.lanes)

    def _bitwise_not(self, node: Any) -> Val:
        a = self.expr(node.a)
        text = self._wrapped(f"~{a.text}", a) if a.python_int else f"~{a.text}"
        return self.make(text, a.dtype, [a], a.lanes)

    def _select(self, node: Any) -> Val:
        return self.choose(node.condition, node.true_value, node.false_value, node.ty)

    def choose(self, condition: Any, yes: Any, no: Any, ty: Any) -> Val:
        """``c ? a : b``: C evaluates one side only, so loads run under a narrowed mask."""
        dtype, lanes = split_lanes(ty)
        cond = self.expr(condition)
        lazy = self.touches_memory(yes) or self.touches_memory(no)
        d = self.dtype(dtype)
        if not lazy or cond.lanes > 1:
            a, b = self.expr(yes), self.expr(no)
            known = union(a.span, b.span)
            if cond.python_int and a.varying == b.varying and a.lanes == b.lanes:
                return self.make(
                    f"({a.text} if {cond.text} else {b.text})",
                    dtype,
                    [cond, a, b],
                    lanes,
                    known=known,
                )
            test = f"{cond.text}[:, None]" if lanes > cond.lanes and cond.varying else cond.text
            return self.make(
                f"arith.where({test}, {a.text}, {b.text}, {d})",
                dtype,
                [cond, a, b],
                lanes,
                known=known,
            )
        self.use(cond)
        return self._choose_lazily(self.settle(cond, "cond"), yes, no, dtype, lanes)

    def _choose_lazily(self, test: Val, yes: Any, no: Any, dtype: str, lanes: int) -> Val:
        d = self.dtype(dtype)
        out = self.writer.fresh("chosen")
        shape = "s.n" if lanes == 1 else f"(s.n, {lanes})"
        self.writer.emit(f"{out} = np.zeros({shape}, {d})")
        if test.varying:
            column = f"{test.text}[:, None]" if lanes > 1 else test.text
            for text, side in ((test.text, yes), (f"~{test.text}", no)):
                with self.under(text):
                    value = self.expr(side).text
                    order = f"{value}, {out}" if side is yes else f"{out}, {value}"
                    self.writer.emit(f"{out} = arith.where({column}, {order}, {d})")
        else:
            for header, side in ((f"if {test.text}:", yes), ("else:", no)):
                with self.writer.block(header):
                    self.writer.emit(f"{out}[:] = {self.expr(side).text}")
        return Val(out, dtype, lanes, True, self.writer.depth, False)

    def cast(self, value: Val, dtype: str) -> Val:
        if value.dtype == dtype:
            return value
        d = self.dtype(dtype)
        if value.python_int:
            return self._cast_int(value, dtype)
        if not value.varying and value.lanes == 1:
            text = f"arith.cast({value.text}, {d})[()]"
            if is_int(dtype):
                text = f"int({text})"
            return self.make(text, dtype, [value])
        known = value.span if within(value.span, dtype) else None
        simple = not is_float(value.dtype) or (is_float(dtype) and not dtype.startswith("float8"))
        text = f"{value.text}.astype({d})" if simple else f"arith.cast({value.text}, {d})"
        return self.make(text, dtype, [value], value.lanes, known=known)

    def _cast_int(self, value: Val, dtype: str) -> Val:
        """From a Python int or bool."""
        if value.const is not None and not is_int(dtype):
            return self.const(value.const, dtype)
        if is_float(dtype):
            return self.make(f"{self.dtype(dtype)}.type({value.text})", dtype, [value])
        if dtype == "bool":
            return self.make(f"bool({value.text})", dtype, [value])
        bits = numpy_dtype(dtype).itemsize * 8
        signed = not dtype.startswith("uint")
        if value.const is not None:
            return self.const(arith.wrap(int(value.const), bits, signed), dtype)
        if within(value.span, dtype):
            return self.make(f"int({value.text})", dtype, [value], known=value.span)
        text = f"arith.wrap(int({value.text}), {bits}, {signed})"
        return self.make(text, dtype, [value])

    def _cast(self, node: Any) -> Val:
        return self.cast(self.expr(node.value), split_lanes(node.ty)[0])

    def _ramp(self, node: Any) -> Val:
        base, stride = self.expr(node.base), self.expr(node.stride)
        lanes = int(node.lanes.value)
        if stride.varying:
            raise EmulatorError("emulator.ramp", expression=str(node))
        column = base
        if base.varying:
            column = self.make(f"{base.text}[:, None]", base.dtype, [base], known=base.known)
        count = f"np.arange({lanes}, dtype={self.dtype(base.dtype)})"
        steps = self.make(count, base.dtype, [], lanes, known=(0, lanes - 1))
        return self.binary("+", column, self.binary("*", steps, stride))

    def _broadcast(self, node: Any) -> Val:
        value = self.expr(node.value)
        lanes = int(node.lanes.value)
        if not value.varying:
            # numpy broadcasts the scalar itself.
            return Val(
                value.text,
                value.dtype,
                lanes,
                False,
                value.depth,
                value.pure,
                None,
                value.known,
                value.wraps,
            )
        return self.make(f"{value.text}[:, None]", value.dtype, [value], lanes, known=value.known)

    def whole(self, value: Val) -> str:
        """Text of a vector with all its lanes present, (n, lanes) or (lanes,)."""
        shape = f"(s.n, {value.lanes})" if value.varying else f"({value.lanes},)"
        return f"np.broadcast_to(np.asarray({value.text}, {self.dtype(value.dtype)}), {shape})"

    def _shuffle(self, node: Any) -> Val:
        vectors = [self.expr(v) for v in node.vectors]
        picks = [int(i.value) for i in node.indices]
        varying = any(v.varying for v in vectors)
        parts = []
        for v in vectors:
            shape = f"(s.n, {v.lanes})" if varying else f"({v.lanes},)"
            source = v.text
            if v.lanes == 1 and v.varying:
                source = f"{source}[:, None]"
            elif v.varying != varying and v.lanes > 1:
                source = self.whole(v)
            parts.append(f"np.broadcast_to(np.asarray({source}, {self.dtype(v.dtype)}), {shape})")
        joined = f"np.concatenate([{', '.join(parts)}], axis=-1)"
        chosen = picks[0] if len(picks) == 1 else picks
        text = f"{joined}[..., {chosen}]"
        if not varying and len(picks) == 1 and is_int(vectors[0].dtype):
            text = f"int({text})"
        return self.make(text, vectors[0].dtype, vectors, len(picks))

    def _let(self, node: Any) -> Val:
        self.env[node.var] = self.settle(self.expr(node.value), node.var.name)
        return self.expr(node.body)

    def _call(self, node: Any) -> Val:
        result = self.call(node)
        if result is None:
            raise EmulatorError("emulator.no_value", name=op_name(node))
        return result


_EXPRESSIONS: Final[dict[type, Callable[[Any, Any], Val]]] = {
    ir.Var: Expressions._var,
    prim.IntImm: Expressions._imm,
    prim.FloatImm: Expressions._imm,
    **dict.fromkeys(_ARITHMETIC, Expressions._arithmetic),
    **dict.fromkeys(_DIVISIONS, Expressions._division),
    **dict.fromkeys(_COMPARISONS, Expressions._comparison),
    prim.Min: Expressions._extremum,
    prim.Max: Expressions._extremum,
    prim.And: Expressions._logical,
    prim.Or: Expressions._logical,
    prim.Not: Expressions._not,
    prim.BitwiseNot: Expressions._bitwise_not,
    prim.Select: Expressions._select,
    prim.Cast: Expressions._cast,
    prim.Ramp: Expressions._ramp,
    prim.Broadcast: Expressions._broadcast,
    prim.Shuffle: Expressions._shuffle,
    prim.Let: Expressions._let,
    ir.Call: Expressions._call,
    ir.TensorLoad: Expressions.load_node,
}
"""Translator of each type of expression."""
