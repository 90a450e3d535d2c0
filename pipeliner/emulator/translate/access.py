"""State of a translation, and access to memory: views, loads, stores and addresses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import tvm_ffi
from tvm import ir, sym
from tvm.ir import prim

from ...errors import EmulatorError
from ..base import arith
from ..base.dtypes import is_float, numpy_dtype
from ..base.intervals import Span, combined, within
from ..launch.global_uses import GlobalUse
from ..units.fragments import mma_spec
from .buffers import BufferRef, Memory, Pointer
from .operation import is_pure
from .source import Val, Writer

_WRAPPING: Final = ("+", "-", "*", "<<")
"""Operators whose results may leave 32 bits."""

_LARGEST: Final = 2**31 - 1
"""The largest signed integer of 32 bits."""

_NOTHING: Final[frozenset[str]] = frozenset()


class Translation:
    """State shared by the translators: environment, views, mask; and all access to memory."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.mask = "None"
        self.env: dict[Any, Val | Pointer] = {}
        self.pointers: dict[Any, Memory] = {}
        self.buffers: dict[Any, BufferRef] = {}
        self.wmma_shape: tuple[int, int, int] | None = None
        self.access_sizes: set[int] = set()
        self.global_uses: dict[str, GlobalUse] = {}  # by the parameter's name in generated code
        self.namespace: dict[str, Any] = {}
        self.matrix_memories: set[Memory] = set()  # registers that wgmma uses asynchronously
        self._views: dict[tuple[Memory, str], str] = {}
        self._addressing = False

    @abstractmethod
    def expr(self, node: Any) -> Val:
        """Translate an expression."""

    @abstractmethod
    def call(self, node: Any) -> Val | None:
        """Translate a call; None: it is a statement."""

    @abstractmethod
    def cast(self, value: Val, dtype: str) -> Val:
        """Convert a value."""

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
        return Val(repr(number), dtype, const=number, known=(int(number), int(number)))

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
            place = f"s.cta.window, {d}, {memory.base}, {nbytes}"
            head.append(f"{name} = SharedView({memory.name!r}, {place})")
        elif memory.space == "wmma":
            head.append(f"{name} = wmma.Wmma(s, {memory.name!r}, {memory.nbytes}, {d})")
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
        """Return a value that later statements may use: impure ones are copied to a name now."""
        if value.pure:
            return value
        name = self.writer.fresh(stem)
        self.writer.emit(f"{name} = {value.text}")
        if value.varying:
            # A row of registers is a view that a later store would change.
            self.writer.emit(f"{name} = np.array({name})")
        return Val(
            name,
            value.dtype,
            value.lanes,
            value.varying,
            self.writer.depth,
            False,
            known=value.known,
            wraps=value.wraps,
        )

    def make(
        self,
        text: str,
        dtype: str,
        operands: list[Val],
        lanes: int = 1,
        varying: bool | None = None,
        known: Span | None = None,
    ) -> Val:
        """Return the result of an operation on ``operands``, hoisted if it is pure."""
        varies, pure, depth, wraps = bool(varying), True, 1, _NOTHING
        for one in operands:
            varies |= varying is None and one.varying
            pure &= one.pure
            depth = max(depth, one.depth)
            wraps |= one.wraps
        if not pure:
            return Val(text, dtype, lanes, varies, self.writer.depth, False, None, known, wraps)
        name = self.writer.hoist(text, depth)
        return Val(name, dtype, lanes, varies, depth, True, None, known, wraps)

    def touches_memory(self, expr: Any) -> bool:
        """Whether evaluating has effects or reads memory, so that it must stay in place."""
        if isinstance(expr, ir.Var | prim.IntImm):
            return False
        found = False

        def load(_: Any) -> None:
            nonlocal found
            found = True

        def call(node: Any) -> None:
            nonlocal found
            found = found or not is_pure(node)

        tvm_ffi.structural_walk(expr, [(ir.TensorLoad, load), (ir.Call, call)])
        return found

    @contextmanager
    def under(self, cond: str) -> Iterator[None]:
        """Emit what follows for the threads of the mask for which ``cond`` holds, if any."""
        mask = self.writer.fresh("mask")
        self.writer.emit(f"{mask} = narrow({self.mask}, {cond})")
        outer, self.mask = self.mask, mask
        with self.writer.block(f"if {mask} is not NOBODY:"):
            yield
        self.mask = outer

    # Scalar arithmetic that addresses need

    def _wrapped(self, text: str, value: Val) -> str:
        """Return ``text`` wrapped to the width of ``value``: Python ints have none."""
        bits = int(numpy_dtype(value.dtype).itemsize * 8)
        if value.dtype.startswith("uint"):
            return f"(({text}) & {(1 << bits) - 1})"
        # Signed overflow is undefined in C: of 32 bits it is checked, nothing reaches 64.
        return text if bits >= 32 else f"arith.wrap({text}, {bits}, True)"

    def binary(self, symbol: str, a: Val, b: Val) -> Val:
        lanes = max(a.lanes, b.lanes)
        text = f"({a.text} {symbol} {b.text})"
        span = combined(symbol, a.span, b.span)
        if a.dtype == "int32" and symbol in _WRAPPING and not within(span, "int32"):
            return self._checked(symbol, a, b)
        known = span if within(span, a.dtype) else None
        result = Val(text, a.dtype, lanes, a.varying or b.varying)
        if result.python_int and a.integer:
            if a.const is not None and b.const is not None:
                folded = eval(self._wrapped(text, result), {"arith": arith})
                return self.const(folded, a.dtype)
            text = self._wrapped(text, result)
        return self.make(text, a.dtype, [a, b], lanes, known=known)

    def _checked(self, symbol: str, a: Val, b: Val) -> Val:
        """Emit arithmetic that may leave 32 bits: an index must not, loaded values may."""
        lanes = max(a.lanes, b.lanes)
        uniform = not (a.varying or b.varying) and lanes == 1
        text = f"({a.text} {symbol} {b.text})"
        if not (a.pure and b.pure) and not self._addressing:
            return self.make(
                f"arith.wrap({text}, 32, True)" if uniform else text, a.dtype, [a, b], lanes
            )
        checked = f"arith.checked(s, {text!r}, {symbol!r}, {a.text}, {b.text})"
        result = self.make(checked, a.dtype, [a, b], lanes)
        by = -1 if b.const is None else int(b.const)
        if symbol == "+" and by >= 0 and a.varying and a.text.isidentifier() and not result.pure:
            return self._raised(a, by, result)
        return self.settle(result, "index")._replace(wraps=result.wraps | {text})

    def _raised(self, a: Val, by: int, checked: Val) -> Val:
        """Emit ``a + by``, ``checked`` where the greatest ``a`` comes too near to the end."""
        most = self.writer.known(a.text)
        if most is None:
            most = self.writer.fresh("most")
            self.writer.emit(f"{most} = arith.greatest({a.text})")
            self.writer.scopes[-1].known[a.text] = most
        text, name = f"({a.text} + {by})", self.writer.fresh("index")
        fits = f"{most} <= {_LARGEST - by} and not s.wrapped"
        self.writer.emit(f"{name} = {text} if {fits} else {checked.text}")
        return checked._replace(text=name, depth=self.writer.depth, wraps=checked.wraps | {text})

    def use(self, value: Val) -> None:
        """Emit a check that an index, an address or a condition comes of nothing that has wrapped.

        What wraps without being used, behind a guard that fails, is no hazard.
        """
        if value.wraps:
            keys = tuple(sorted(value.wraps))
            self.writer.emit(f"if s.wrapped: s.use({keys!r}, {self.mask})")

    @contextmanager
    def addressing(self) -> Iterator[None]:
        """Translate what follows as an index, also where it is computed from what was loaded."""
        outer, self._addressing = self._addressing, True
        yield
        self._addressing = outer

    def add(self, a: Val, b: Val) -> Val:
        """Return a sum that an address needs: in 64 bits where 32 may not do, as for a pointer."""
        if b.const == 0 and a.integer:
            return a
        if a.const == 0 and b.integer:
            return b
        return self.binary("+", *self._wide("+", a, b))

    def scale(self, a: Val, factor: int) -> Val:
        if factor == 1:
            return a
        return self.binary("*", *self._wide("*", a, self.const(factor, a.dtype)))

    def _wide(self, symbol: str, a: Val, b: Val) -> tuple[Val, Val]:
        span = combined(symbol, a.span, b.span)
        if a.dtype == b.dtype and within(span, a.dtype):
            return a, b
        return self.cast(a, "int64"), self.cast(b, "int64")

    # Memory

    def buffer(self, var: Any) -> BufferRef:
        ref = self.buffers.get(var)
        if ref is None:
            raise EmulatorError("emulator.undeclared", buffer=var.name)
        return ref

    def index(self, ref: BufferRef, indices: Any, *, loading: bool = False) -> tuple[Val, int]:
        """Return element index and width of an access: of a contiguous vector its first element."""
        if len(indices) != 1:
            raise EmulatorError("emulator.indices", buffer=ref.name, count=len(indices))
        node, width = indices[0], ref.lanes
        if isinstance(node, prim.Ramp) and getattr(node.stride, "value", None) == 1:
            lanes = int(node.lanes.value)
            if not loading or _divisible(node.base, lanes):
                width = lanes * ref.lanes
                node = node.base
        with self.addressing():
            at = self.expr(node)
        self.use(at)
        if at.lanes > 1 and not at.varying:
            at = self.make(
                f"np.broadcast_to({at.text}, (s.n, {at.lanes}))",
                at.dtype,
                [at],
                at.lanes,
                True,
                at.known,
            )
        return self.scale(self.add(at, ref.offset), ref.lanes), width

    def note_access(self, ref: BufferRef, width: int, **use: bool) -> None:
        """Note an access, whose size decides how fine shadow state is; ``use``: a GlobalUse."""
        size = numpy_dtype(ref.dtype).itemsize * width
        if ref.memory.space == "shared":
            self.note_shared(size)
        self.note_global(ref.memory, size, **use)

    def note_global(self, memory: Memory, size: int, **use: bool) -> None:
        """Note an access of ``size`` bytes to global memory (0: the call decides)."""
        if memory.space == "global":
            known = self.global_uses.setdefault(memory.param, GlobalUse())
            known.add(GlobalUse(size=size & -size, **use))

    def note_shared(self, size: int) -> None:
        self.access_sizes.add(size & -size)

    def load_node(self, node: Any) -> Val:
        """Translate a TensorLoad."""
        ref = self.buffer(node.source)
        return self.load(ref, *self.index(ref, node.indices, loading=True))

    def load(self, ref: BufferRef, at: Val, width: int) -> Val:
        self.note_access(ref, width, reads=True)
        if ref.memory.space == "wmma":
            raise EmulatorError("emulator.wmma_load", buffer=ref.name)
        view = self.view(ref.memory, ref.dtype)
        lanes = max(width, at.lanes)
        d = self.writer.depth
        self._note_touch(ref, view, at, width)
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

    def _note_touch(self, ref: BufferRef, view: str, at: Val, width: int) -> None:
        """Emit a check of an access to registers that a wgmma may be using."""
        if ref.memory in self.matrix_memories:
            self.writer.emit(f"matrix.touch(s, {view}, {at.text}, {width}, {self.mask})")

    def register(self, ref: BufferRef, at: int) -> str:
        """Text of one register of every thread."""
        itemsize = numpy_dtype(ref.dtype).itemsize
        assert ref.memory.nbytes is not None
        count = ref.memory.nbytes // itemsize
        if not 0 <= at < count:
            raise EmulatorError("emulator.register", buffer=ref.name, index=at, size=count)
        return f"{self.view(ref.memory, ref.dtype)}_a[:, {at}]"

    def store(self, buffer: Any, indices: Any, value: Val) -> None:
        ref = self.buffer(buffer)
        at, width = self.index(ref, indices)
        self.store_at(ref, at, width, value)

    def assign(self, target: Any, value: Val) -> None:
        """Write a destination register; 32-bit values keep their bits whatever its type."""
        if not isinstance(target, ir.TensorLoad):
            raise EmulatorError("ptx.destination", expression=str(target))
        dtype = str(target.ty)
        if dtype != value.dtype:
            text = f"{value.text}.view({self.dtype(dtype)})"
            value = Val(text, dtype, 1, True, value.depth, False)
        self.store(target.source, target.indices, value)

    def store_at(self, ref: BufferRef, at: Val, width: int, value: Val) -> None:
        self.note_access(ref, width, writes=True)
        view = self.view(ref.memory, ref.dtype)
        text = value.text
        if value.lanes > 1 and not value.varying:
            text = f"np.asarray({text})[None]"
        self._note_touch(ref, view, at, width)
        if ref.memory.space == "local" and at.const is not None and width == 1:
            register = self.register(ref, int(at.const))
            if self.mask == "None":
                self.writer.emit(f"{register} = {text}")
                return
        self.writer.emit(f"{view}.store(s, {at.text}, {text}, {self.mask}, {width})")


def _divisible(base: Any, lanes: int) -> bool:
    """Whether CUDA codegen prints one vector load: it scalarises what it cannot prove aligned.

    Stores have no such test in codegen_c.cc, so a misaligned vector store is printed as one.
    """
    modular = sym.Analyzer().modular_set(base)
    return int(modular.coeff) % lanes == 0 and int(modular.base) % lanes == 0
