"""Translate TIR expressions, loads and stores to text of the generated code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import tvm_ffi
from tvm import ir
from tvm.ir import prim
from tvm.tirx.buffer import is_buffer_var

from ..errors import EmulatorError
from . import calls
from .buffers import BufferRef, Memory, Pointer
from .dtypes import is_float, is_int, numpy_dtype, split_lanes
from .fragments import mma_spec
from .source import Val, Writer

_ARITHMETIC: Final = {
    prim.Add: "+", prim.Sub: "-", prim.Mul: "*", prim.LShift: "<<", prim.RShift: ">>",
    prim.BitwiseAnd: "&", prim.BitwiseOr: "|", prim.BitwiseXor: "^",
}  # fmt: skip
_COMPARISONS: Final = {
    prim.EQ: "==", prim.NE: "!=", prim.LT: "<", prim.LE: "<=", prim.GT: ">", prim.GE: ">=",
}  # fmt: skip
_DIVISIONS: Final = {
    prim.Div: "trunc_div", prim.Mod: "trunc_mod", prim.FloorDiv: "floor_div",
    prim.FloorMod: "floor_mod",
}  # fmt: skip


class Expressions:
    """State shared by the translators: environment, views, mask; and expression translation."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.mask = "None"
        self.env: dict[Any, Val | Pointer] = {}
        self.pointers: dict[Any, Memory] = {}
        self.buffers: dict[Any, BufferRef] = {}
        self.wmma_shape: tuple[int, int, int] | None = None
        self.access_sizes: set[int] = set()
        self.namespace: dict[str, Any] = {}
        self._views: dict[tuple[Memory, str], str] = {}

    # Names in the generated code

    def dtype(self, name: str) -> str:
        """Name of the numpy dtype object."""
        key = f"D_{name}"
        self.namespace.setdefault(key, numpy_dtype(name))
        return key

    def const(self, value: int | float, dtype: str) -> Val:
        if is_float(dtype):
            key = f"C_{dtype}_{value!r}".replace(".", "p").replace("-", "m").replace("+", "")
            self.namespace.setdefault(key, numpy_dtype(dtype).type(value))
            return Val(key, dtype, const=value)
        number = bool(value) if dtype == "bool" else int(value)
        return Val(repr(number), dtype, const=number)

    def mma(self, shape: str, a_type: str, b_type: str, d_type: str) -> str:
        """Name of the tables of an mma instruction."""
        key = f"M_{shape}_{a_type}_{b_type}_{d_type}"
        self.namespace.setdefault(key, mma_spec(shape, a_type, b_type, d_type))
        return key

    def view(self, memory: Memory, dtype: str) -> str:
        """Name of the run-time view of a memory, made in the prologue of the kernel."""
        key = (memory, dtype)
        if key in self._views:
            return self._views[key]
        name = self.writer.fresh(f"v_{memory.name}")
        head = self.writer.scopes[1].head
        d = self.dtype(dtype)
        if memory.space == "global":
            head.append(f"{name} = {memory.param}.view({d})")
        elif memory.space == "shared":
            nbytes = "dynamic_bytes" if memory.nbytes is None else memory.nbytes
            head.append(f"{name} = SharedView({memory.name!r}, s.cta.window, {d}, {memory.base}, {nbytes})")  # fmt: skip
        elif memory.space == "wmma":
            head.append(f"{name} = warp.Wmma(s, {memory.name!r}, {memory.nbytes}, {d})")
        else:
            first = next((v for (m, _), v in self._views.items() if m is memory), None)
            make = (
                f"{first}.view({d})"
                if first
                else f"LocalView.allocate({memory.name!r}, s, {memory.nbytes}, {d})"
            )
            head.append(f"{name} = {make}")
            head.append(f"{name}_a = {name}.array")
        self._views[key] = name
        return name

    def settle(self, value: Val, stem: str) -> Val:
        """A value that later statements may use: impure ones are copied to a name now."""
        if value.pure:
            return value
        name = self.writer.fresh(stem)
        self.writer.emit(f"{name} = {value.text}")
        if value.varying:
            # A row of registers is a view that a later store would change.
            self.writer.emit(f"{name} = np.array({name})")
        return Val(name, value.dtype, value.lanes, value.varying, self.writer.depth, False)

    def make(
        self, text: str, dtype: str, operands: list[Val], lanes: int = 1,
        varying: bool | None = None,
    ) -> Val:  # fmt: skip
        """The result of an operation on ``operands``, hoisted if it is pure."""
        varies = any(v.varying for v in operands) if varying is None else varying
        if not all(v.pure for v in operands):
            return Val(text, dtype, lanes, varies, self.writer.depth, False)
        depth = max([1, *(v.depth for v in operands)])
        return Val(self.writer.hoist(text, depth), dtype, lanes, varies, depth)

    def touches_memory(self, expr: Any) -> bool:
        """Whether evaluating has effects or reads memory, so that it must stay in place."""
        found = False

        def load(_: Any) -> None:
            nonlocal found
            found = True

        def call(node: Any) -> None:
            nonlocal found
            found = found or not calls.is_pure(node)

        tvm_ffi.structural_walk(expr, [(ir.TensorLoad, load), (ir.Call, call)])
        return found

    @contextmanager
    def under(self, cond: str) -> Iterator[None]:
        """Code for the threads of the present mask for which ``cond`` holds, if any."""
        mask = self.writer.fresh("mask")
        self.writer.emit(f"{mask} = narrow({self.mask}, {cond})")
        outer, self.mask = self.mask, mask
        with self.writer.block(f"if {mask} is not NOBODY:"):
            yield
        self.mask = outer

    # Expressions

    def expr(self, node: Any) -> Val:
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            raise EmulatorError(f"cannot emulate expression {type(node).__name__}: {node}")
        return handler(self, node)

    def _var(self, node: Any) -> Val:
        value = self.env.get(node)
        if not isinstance(value, Val):
            raise EmulatorError(f"cannot emulate variable {node.name!r}: it has no scalar value")
        return value

    def _imm(self, node: Any) -> Val:
        return self.const(node.value, split_lanes(node.ty)[0])

    def _wrapped(self, text: str, value: Val) -> str:
        """Python ints have no width: give the result of an operation its own."""
        bits = int(numpy_dtype(value.dtype).itemsize * 8)
        if value.dtype.startswith("uint"):
            return f"(({text}) & {(1 << bits) - 1})"
        # Signed overflow of 32 and 64 bits is undefined in C: such a value fails on use.
        return text if bits >= 32 else f"arith.wrap({text}, {bits}, True)"

    def binary(self, symbol: str, a: Val, b: Val) -> Val:
        lanes = max(a.lanes, b.lanes)
        text = f"({a.text} {symbol} {b.text})"
        result = Val(text, a.dtype, lanes, a.varying or b.varying)
        if result.python_int and a.integer:
            if a.const is not None and b.const is not None:
                folded = eval(self._wrapped(text, result), {"arith": self.namespace["arith"]})
                return self.const(folded, a.dtype)
            text = self._wrapped(text, result)
        return self.make(text, a.dtype, [a, b], lanes)

    def add(self, a: Val, b: Val) -> Val:
        if b.const == 0 and a.integer:
            return a
        if a.const == 0 and b.integer:
            return b
        return self.binary("+", a, b)

    def scale(self, a: Val, factor: int) -> Val:
        return a if factor == 1 else self.binary("*", a, self.const(factor, a.dtype))

    def _arithmetic(self, node: Any) -> Val:
        return self.binary(_ARITHMETIC[type(node)], self.expr(node.a), self.expr(node.b))

    def _division(self, node: Any) -> Val:
        a, b = self.expr(node.a), self.expr(node.b)
        lanes = max(a.lanes, b.lanes)
        if is_float(a.dtype):
            return self.make(f"({a.text} / {b.text})", a.dtype, [a, b], lanes)
        return self.make(f"arith.{_DIVISIONS[type(node)]}({a.text}, {b.text})", a.dtype,
                         [a, b], lanes)  # fmt: skip

    def _extremum(self, node: Any) -> Val:
        a, b = self.expr(node.a), self.expr(node.b)
        name = "min" if isinstance(node, prim.Min) else "max"
        lanes = max(a.lanes, b.lanes)
        if a.python_int and b.python_int:
            return self.make(f"{name}({a.text}, {b.text})", a.dtype, [a, b])
        # CUDA's min and max of floats are fminf and fmaxf: a NaN loses.
        ufunc = f"np.f{name}" if is_float(a.dtype) else f"np.{name}imum"
        return self.make(f"{ufunc}({a.text}, {b.text})", a.dtype, [a, b], lanes)

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
            if both:
                self.writer.emit(f"{out} = {out} & {b.text}")
            else:
                mask = self.mask
                self.writer.emit(f"{out} = {out} | (({b.text}) & (True if {mask} is None else {mask}))")  # fmt: skip
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
            if cond.python_int and a.varying == b.varying and a.lanes == b.lanes:
                return self.make(f"({a.text} if {cond.text} else {b.text})", dtype,
                                 [cond, a, b], lanes)  # fmt: skip
            test = f"{cond.text}[:, None]" if lanes > cond.lanes and cond.varying else cond.text
            return self.make(f"arith.where({test}, {a.text}, {b.text}, {d})", dtype,
                             [cond, a, b], lanes)  # fmt: skip
        test = self.settle(cond, "cond")
        out = self.writer.fresh("chosen")
        shape = "s.n" if lanes == 1 else f"(s.n, {lanes})"
        self.writer.emit(f"{out} = np.zeros({shape}, {d})")
        if test.varying:
            opposite = f"~{test.text}"
            column = f"{test.text}[:, None]" if lanes > 1 else test.text
            for text, side in ((test.text, yes), (opposite, no)):
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
        simple = not is_float(value.dtype) or is_float(dtype) and not dtype.startswith("float8")
        text = f"{value.text}.astype({d})" if simple else f"arith.cast({value.text}, {d})"
        return self.make(text, dtype, [value], value.lanes)

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
            return self.const(self.namespace["arith"].wrap(int(value.const), bits, signed), dtype)
        text = f"arith.wrap(int({value.text}), {bits}, {signed})"
        return self.make(text, dtype, [value])

    def _cast(self, node: Any) -> Val:
        return self.cast(self.expr(node.value), split_lanes(node.ty)[0])

    def _ramp(self, node: Any) -> Val:
        base, stride = self.expr(node.base), self.expr(node.stride)
        lanes = int(node.lanes.value)
        steps = f"np.arange({lanes}, dtype={self.dtype(base.dtype)})"
        if stride.varying:
            raise EmulatorError(f"cannot emulate a ramp whose stride varies: {node}")
        column = f"{base.text}[:, None]" if base.varying else base.text
        return self.make(f"({column} + {steps} * {stride.text})", base.dtype, [base, stride], lanes)

    def _broadcast(self, node: Any) -> Val:
        value = self.expr(node.value)
        lanes = int(node.lanes.value)
        if not value.varying:
            # numpy broadcasts the scalar itself.
            return Val(value.text, value.dtype, lanes, False, value.depth, value.pure)
        return self.make(f"{value.text}[:, None]", value.dtype, [value], lanes)

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
        result = calls.translate(self, node)
        if result is None:
            raise EmulatorError(f"cannot emulate call {node.op.name!r} as a value")
        return result

    # Memory

    def buffer(self, var: Any) -> BufferRef:
        ref = self.buffers.get(var)
        if ref is None:
            raise EmulatorError(f"cannot emulate buffer {var.name!r}: it is not declared")
        return ref

    def index(self, ref: BufferRef, indices: Any) -> tuple[Val, int]:
        """Element index and width of an access: contiguous vectors give their first element."""
        if len(indices) != 1:
            raise EmulatorError(f"cannot emulate buffer {ref.name!r}: expected one flat index")
        node, width = indices[0], ref.lanes
        if isinstance(node, prim.Ramp) and getattr(node.stride, "value", None) == 1:
            width = int(node.lanes.value) * ref.lanes
            node = node.base
        at = self.expr(node)
        if at.lanes > 1 and not at.varying:
            at = self.make(f"np.broadcast_to({at.text}, (s.n, {at.lanes}))", at.dtype, [at],
                           at.lanes, True)  # fmt: skip
        return self.scale(self.add(at, ref.offset), ref.lanes), width

    def note_access(self, ref: BufferRef, width: int) -> None:
        """Shared accesses decide the granule of the shadow state."""
        if ref.memory.space == "shared":
            self.note_shared(numpy_dtype(ref.dtype).itemsize * width)

    def note_shared(self, size: int) -> None:
        self.access_sizes.add(size & -size)

    def _load(self, node: Any) -> Val:
        return self.load(self.buffer(node.source), *self.index_of(node))

    def index_of(self, node: Any) -> tuple[Val, int]:
        return self.index(self.buffer(node.source), node.indices)

    def load(self, ref: BufferRef, at: Val, width: int) -> Val:
        self.note_access(ref, width)
        if ref.memory.space == "wmma":
            raise EmulatorError(f"cannot emulate a load of wmma fragment {ref.name!r}")
        view = self.view(ref.memory, ref.dtype)
        lanes = max(width, at.lanes)
        d = self.writer.depth
        if ref.memory.space == "local":
            if at.const is not None and width == 1:
                return Val(self.register(ref, int(at.const)), ref.dtype, 1, True, d, False)
            text = f"{view}.load(s, {at.text}, {self.mask}, {width})"
            return Val(text, ref.dtype, lanes, True, d, False)
        text = f"{view}.load(s, {at.text}, {self.mask}, {width})"
        varying = at.varying
        if not varying and lanes == 1 and not is_float(ref.dtype):
            text = f"{'bool' if ref.dtype == 'bool' else 'int'}({text})"
        return Val(text, ref.dtype, lanes, varying, d, False)

    def register(self, ref: BufferRef, at: int) -> str:
        """Text of one register of every thread."""
        itemsize = numpy_dtype(ref.dtype).itemsize
        assert ref.memory.nbytes is not None
        if not 0 <= at < ref.memory.nbytes // itemsize:
            raise EmulatorError(
                f"cannot emulate {ref.name!r}[{at}]: it has {ref.memory.nbytes // itemsize} elements"
            )
        return f"{self.view(ref.memory, ref.dtype)}_a[:, {at}]"

    def store(self, buffer: Any, indices: Any, value: Val) -> None:
        ref = self.buffer(buffer)
        at, width = self.index(ref, indices)
        self.store_at(ref, at, width, value)

    def store_at(self, ref: BufferRef, at: Val, width: int, value: Val) -> None:
        self.note_access(ref, width)
        view = self.view(ref.memory, ref.dtype)
        text = value.text
        if value.lanes > 1 and not value.varying:
            text = f"np.asarray({text})[None]"
        if ref.memory.space == "local" and at.const is not None and width == 1:
            register = self.register(ref, int(at.const))
            if self.mask == "None":
                self.writer.emit(f"{register} = {text}")
                return
        self.writer.emit(f"{view}.store(s, {at.text}, {text}, {self.mask}, {width})")

    # Pointers

    def units(self, pointer: Pointer, size: int) -> Val:
        """Index of a pointer in elements of ``size`` bytes."""
        if pointer.unit % size == 0:
            return self.scale(pointer.index, pointer.unit // size)
        total = self.scale(pointer.index, pointer.unit)
        return self.make(f"({total.text} // {size})", total.dtype, [total])

    def bytes_of(self, pointer: Pointer) -> Val:
        """Byte offset in the memory; in the shared window for shared memory."""
        offset = self.units(pointer, 1)
        if pointer.memory.space == "shared":
            return self.add(offset, self.const(pointer.memory.base, offset.dtype))
        return offset

    def element(self, pointer: Pointer, dtype: str) -> tuple[BufferRef, Val]:
        """A pointer as a buffer of ``dtype`` and an element index."""
        size = numpy_dtype(dtype).itemsize
        ref = BufferRef(pointer.memory, pointer.memory.name, dtype, 1, self.const(0, "int32"))
        return ref, self.units(pointer, size)

    def pointer(self, node: Any) -> Pointer:
        """The memory and offset an address expression denotes."""
        if isinstance(node, ir.Var):
            return self._pointer_var(node)
        if isinstance(node, ir.Call):
            return calls.address(self, node)
        if isinstance(node, prim.Cast):
            return self.pointer(node.value)
        if isinstance(node, prim.Add):
            first = calls.is_address(node.a) or isinstance(self.env.get(node.a), Pointer)
            base, offset = (node.a, node.b) if first else (node.b, node.a)
            return self.shifted(self.pointer(base), self.expr(offset))
        raise EmulatorError(f"cannot emulate address {type(node).__name__}: {node}")

    def _pointer_var(self, var: Any) -> Pointer:
        zero = self.const(0, "int32")
        if var in self.pointers:
            return Pointer(self.pointers[var], zero, 1, "uint8")
        known = self.env.get(var)
        if isinstance(known, Pointer):
            return known
        if is_buffer_var(var):
            ref = self.buffer(var)
            size = numpy_dtype(ref.dtype).itemsize * ref.lanes
            return Pointer(ref.memory, ref.offset, size, ref.dtype)
        raise EmulatorError(f"cannot emulate pointer {var.name!r}: it denotes no known memory")

    def shifted(self, pointer: Pointer, offset: Val) -> Pointer:
        """A pointer moved by bytes."""
        moved = self.add(self.units(pointer, 1), offset)
        return Pointer(pointer.memory, moved, 1, pointer.dtype)

    def advanced(self, pointer: Pointer, elements: Val, size: int) -> Pointer:
        """A pointer moved by elements of ``size`` bytes."""
        return Pointer(pointer.memory, self.add(self.units(pointer, size), elements), size,
                       pointer.dtype)  # fmt: skip


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
    ir.TensorLoad: Expressions._load,
}
