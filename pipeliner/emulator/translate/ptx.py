"""Translate ``T.ptx`` calls: cp.async, matrix and barrier instructions up to sm_89."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from tvm import ir, tirx

from ...errors import EmulatorError
from ..base.dtypes import numpy_dtype
from ..memory.spaces import LocalView
from ..units.fragments import Mma, mma_spec
from ..units.mma_runs import REGISTER, MmaRun
from . import ptx_bulk, ptx_hopper, ptx_memory
from .buffers import Memory, Pointer
from .expressions import Expressions
from .operation import PtxInstruction, decode, op_name
from .source import Val

_BARRIERS: Final = ("bar_sync", "bar_sync_count", "barrier_sync", "barrier_sync_count")
"""Named barriers at which threads wait."""

_COPIES: Final = (
    "cp_async_ca",
    "cp_async_cg",
    "cp_async_ca_src_size",
    "cp_async_cg_src_size",
    "cp_async_ca_ignore_src",
    "cp_async_cg_ignore_src",
)
"""Forms of cp.async."""

_PRODUCTS: Final = ("mma", "mma_f16acc", "mma_int")
"""Forms of mma.sync."""

_PAIRS: Final = ("add_half", "sub_half", "mul_half", "fma_half")
"""Arithmetic on two 16-bit floats in a word."""

_IN_REGISTERS: Final = (
    *_PRODUCTS,
    *_PAIRS,
    "cvt_tf32_f32",
    "cvt_f16x2_f32",
    "cvt_bf16x2_f32",
    "prmt",
    "lop3",
)
"""Instructions on registers alone."""

_COPY_BYTES: Final = {"ca": (4, 8, 16), "cg": (16,)}
"""Sizes in bytes that cp.async takes, by cache operator."""


def blocks(name: str) -> bool:
    """Whether threads wait for each other in the instruction."""
    return name.removeprefix("tirx.ptx.") in (*_BARRIERS, "bar_arrive", *ptx_hopper.WAITS)


def uses_engines(name: str) -> bool:
    """Whether an instruction involves mbarriers, bulk copies or wgmma."""
    return name.startswith("tirx.ptx.") and ptx_hopper.uses_engines(name)


def matrix_registers(call: Any) -> list[Any]:
    """Buffers whose registers an instruction works on asynchronously."""
    if not op_name(call).startswith("tirx.ptx.wgmma"):
        return []
    return ptx_hopper.matrix_registers(decode(call))


def translate(c: Expressions, call: Any) -> None:
    """Emit one instruction, under its predicate if it has one."""
    name = str(call.op.name).removeprefix("tirx.ptx.")
    handler = _HANDLERS.get(name)
    if handler is None:
        raise EmulatorError("ptx.unknown", instruction=name, call=str(call))
    instruction = decode(call)
    guard: Any = nullcontext()
    if instruction.predicate is not None:
        predicate = c.settle(c.cast(c.expr(instruction.predicate), "bool"), "pred")
        guard = c.under(predicate.text)
    with guard:
        handler(c, instruction)


def _cp_async(c: Expressions, ins: PtxInstruction) -> None:
    dst, src, size_node, *rest = (ins.one(name) for name in ins.operands)
    size = int(size_node.value)
    cache = ins.name.split("_")[2]
    if size not in _COPY_BYTES[cache]:
        raise EmulatorError("ptx.cp_async", cache=cache, nbytes=size)
    src_size: Val | None = None
    if ins.name.endswith("src_size"):
        src_size = c.expr(rest[0])
    elif ins.name.endswith("ignore_src"):
        ignored = c.cast(c.expr(rest[0]), "int32")
        src_size = c.make(f"({size} - {size} * {ignored.text})", "int32", [ignored])
    emit_cp_async(c, c.pointer(dst), c.pointer(src), size, src_size)


def emit_cp_async(
    c: Expressions, dst: Pointer, src: Pointer, size: int, src_size: Val | None
) -> None:
    """Emit a cp.async of ``size`` bytes; EmulatorError: not from global to shared memory."""
    if dst.memory.space != "shared" or src.memory.space != "global":
        raise EmulatorError(
            "ptx.cp_async_spaces", source=src.memory.space, destination=dst.memory.space
        )
    c.note_shared(size)
    c.note_global(src.memory, size, reads=True)
    at, start = c.bytes_of(dst), c.units(src, 1)
    source = c.view(src.memory, "uint8")
    tail = "" if src_size is None else f", {src_size.text}"
    c.writer.emit(
        f"warp.cp_async(s, {dst.memory.name!r}, {at.text}, {source}, {start.text}, {size}, "
        f"{c.mask}{tail})"
    )


def _commit(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"warp.commit_group(s, {c.mask})")


def _wait_group(c: Expressions, ins: PtxInstruction) -> None:
    (operand,) = (values[0] for values in ins.operands.values())
    c.writer.emit(f"warp.wait_group(s, {c.expr(operand).text}, {c.mask})")


def _wait_all(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"warp.wait_all(s, {c.mask})")


def _ldmatrix(c: Expressions, ins: PtxInstruction) -> None:
    count = int(ins.modifiers["num"][1:])
    transposed = bool(ins.modifiers["trans"])
    c.note_shared(16)
    at = c.bytes_of(c.pointer(ins.one("p")))
    names = [c.writer.fresh("word") for _ in range(count)]
    c.writer.emit(
        f"{', '.join(names)}, = warp.ldmatrix(s, {at.text}, {count}, {transposed}, {c.mask})"
    )
    for name, target in zip(names, ins.operands["r"], strict=True):
        c.assign(target, Val(name, "uint32", 1, True, c.writer.depth, False))


def _mma(c: Expressions, ins: PtxInstruction) -> None:
    m = ins.modifiers
    if (m["alayout"], m["blayout"]) != ("row", "col"):
        raise EmulatorError("ptx.mma_layouts", a_layout=m["alayout"], b_layout=m["blayout"])
    spec = c.mma(m["shape"], m["atype"], m["btype"], m["dtype"])
    groups = []
    for name in ("a", "b", "c"):
        texts = []
        for node in ins.operands[name]:
            value = c.expr(node)
            text = value.text
            if not value.varying:
                text = f"s.full({text}, {c.dtype(value.dtype)})"
            texts.append(text)
        groups.append(f"[{', '.join(texts)}]")
    saturate = m.get("satfinite", "") == "satfinite"
    targets = ins.operands["d"]
    names = [c.writer.fresh("d") for _ in targets]
    c.writer.emit(
        f"{', '.join(names)}, = warp.mma(s, {spec}, {', '.join(groups)}, {saturate}, {c.mask})"
    )
    carrier = {"f16": "uint32", "f32": "float32", "s32": "int32"}[m["dtype"]]
    for name, target in zip(names, targets, strict=True):
        c.assign(target, Val(name, carrier, 1, True, c.writer.depth, False))


@dataclass(frozen=True)
class Product:
    """An mma.sync on registers that are known: the memory and the registers of each operand."""

    spec: str
    mma: Mma
    saturate: bool
    memories: tuple[Memory, ...]
    registers: tuple[tuple[int, ...], ...]


def multiplies(stmt: Any) -> bool:
    """Whether a statement is an mma.sync."""
    if not isinstance(stmt, tirx.Evaluate) or not isinstance(stmt.value, ir.Call):
        return False
    return op_name(stmt.value).removeprefix("tirx.ptx.") in _PRODUCTS


def stays_in_registers(call: Any) -> bool:
    """Whether an instruction touches nothing but registers of its own warp."""
    return op_name(call).removeprefix("tirx.ptx.") in _IN_REGISTERS


def product(c: Expressions, call: Any) -> Product | None:
    """Return what an mma.sync does; None where it must stand alone."""
    ins = decode(call)
    m = ins.modifiers
    if ins.predicate is not None or (m["alayout"], m["blayout"]) != ("row", "col"):
        return None
    memories, registers = [], []
    for name in ("a", "b", "c", "d"):
        found = [_register(c, node) for node in ins.operands[name]]
        if None in found or len({memory for memory, _ in filter(None, found)}) != 1:
            return None
        memories += [memory for memory, _ in filter(None, found[:1])]
        registers.append(tuple(at for _, at in filter(None, found)))
    types = (m["shape"], m["atype"], m["btype"], m["dtype"])
    saturate = m.get("satfinite", "") == "satfinite"
    key = c.mma(*types)
    return Product(key, mma_spec(*types), saturate, tuple(memories), tuple(registers))


def _register(c: Expressions, node: Any) -> tuple[Memory, int] | None:
    """Return the memory and the number of a register of four bytes, None for anything else."""
    if not isinstance(node, ir.TensorLoad) or len(node.indices) != 1:
        return None
    ref, index = c.buffers.get(node.source), getattr(node.indices[0], "value", None)
    if ref is None or index is None or ref.memory.space != "local" or ref.offset.const is None:
        return None
    if ref.lanes > 1 or numpy_dtype(ref.dtype).itemsize != REGISTER:
        return None
    at, count = int(index) + int(ref.offset.const), (ref.memory.nbytes or 0) // REGISTER
    if ref.memory in c.matrix_memories or not 0 <= at < count:
        return None
    return ref.memory, at


class Products:
    """A run of mma.sync of which none reads what an earlier one writes: emitted as one."""

    def __init__(self, c: Expressions) -> None:
        self._c = c
        self._run: list[Product] = []
        self._written: set[int] = set()

    def take(self, product: Product | None) -> None:
        """Add a product; emit those before it where it is None, or cannot be made with them."""
        if self._run and (product is None or not self._joins(product)):
            self._emit()
            self._run, self._written = [], set()
        if product is not None:
            self._run.append(product)
            self._written.update(product.registers[3])

    def _joins(self, product: Product) -> bool:
        first = self._run[0]
        if product.memories != first.memories or product.spec != first.spec:
            return False
        target = product.memories[3]
        touched = {
            at
            for memory, registers in zip(product.memories, product.registers, strict=True)
            for at in registers
            if memory is target
        }
        return product.saturate == first.saturate and not touched & self._written

    def _emit(self) -> None:
        c, first = self._c, self._run[0]
        a, b, addend, d = ([one.registers[at] for one in self._run] for at in range(4))
        run = MmaRun.of(
            first.mma,
            first.saturate,
            (_width(first.memories[0]), a),
            (_width(first.memories[1]), b),
            addend,
            d,
        )
        name = c.writer.fresh("run")
        c.namespace[name] = run
        kind = first.mma.d_type.name
        types = ("uint32", "uint32", kind, kind)
        files = [f"{c.view(m, t)}_a" for m, t in zip(first.memories, types, strict=True)]
        c.writer.emit(f"mma_runs.multiply_all(s, {name}, {', '.join(files)}, {c.mask})")


def _width(memory: Memory) -> int:
    """Registers in the file of a lane, as ``LocalView`` pads it."""
    assert memory.nbytes is not None
    return LocalView.padded(memory.nbytes) // REGISTER


def _bar_sync(c: Expressions, ins: PtxInstruction) -> None:
    number, *count = [c.expr(values[0]) for values in ins.operands.values()]
    if any(v.varying for v in count):
        raise EmulatorError("emulator.named_barrier", varies="count")
    listed = ", ".join(v.text for v in (number, *count))
    if number.varying:
        c.writer.emit(f"yield hopper.named_barriers(s, {c.mask}, {listed})")
    else:
        c.writer.emit(f"yield s.barrier({c.mask}, {listed}, aligned=False)")


def _warp_sync(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"s.sync_warp({c.mask})")


def _cvt_tf32(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(rnd=("rna",), satfinite=("",), relu=("",))
    value = c.expr(ins.one("a"))
    text = value.text if value.varying else f"s.full({value.text}, {c.dtype('float32')})"
    rounded = Val(f"warp.nearest_tf32({text})", "float32", 1, True, c.writer.depth, False)
    c.assign(ins.one("d"), rounded)


def _permute(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(mode=("",))
    words = []
    for name in ("a", "b", "c"):
        value = c.cast(c.expr(ins.one(name)), "uint32")
        words.append(value.text if value.varying else f"s.full({value.text}, {c.dtype('uint32')})")
    text = f"warp.permuted_bytes({', '.join(words)})"
    c.assign(ins.one("d"), Val(text, "uint32", 1, True, c.writer.depth, False))


def _logic(c: Expressions, ins: PtxInstruction) -> None:
    words = []
    for name in ("a", "b", "c"):
        value = c.cast(c.expr(ins.one(name)), "uint32")
        words.append(value.text if value.varying else f"s.full({value.text}, {c.dtype('uint32')})")
    text = f"warp.logic_of_three({int(ins.one('immLut').value)}, {', '.join(words)})"
    c.assign(ins.one("d"), Val(text, "uint32", 1, True, c.writer.depth, False))


def _cvt_pair(c: Expressions, ins: PtxInstruction) -> None:
    kind = {"cvt_f16x2_f32": "float16", "cvt_bf16x2_f32": "bfloat16"}[ins.name]
    ins.expect(rnd=("rn",), satfinite=("",), relu=("",))
    texts = []
    for name in ("b", "a"):
        value = c.expr(ins.one(name))
        texts.append(value.text if value.varying else f"s.full({value.text}, {c.dtype('float32')})")
    text = f"warp.narrowed_pair({', '.join(texts)}, {c.dtype(kind)})"
    c.assign(ins.one("d"), Val(text, "uint32", 1, True, c.writer.depth, False))


def _pair(c: Expressions, ins: PtxInstruction) -> None:
    flags = ("rnd", "ftz", "sat", "oob", "relu")
    ins.expect(
        **{name: ("rn",) if name == "rnd" else ("",) for name in flags if name in ins.modifiers},
        type=("f16x2", "bf16x2"),
    )
    kind = {"f16x2": "float16", "bf16x2": "bfloat16"}[ins.modifiers["type"]]
    words = []
    for name in ("a", "b", "c")[: len(ins.operands) - 1]:
        value = c.cast(c.expr(ins.one(name)), "uint32")
        words.append(value.text if value.varying else f"s.full({value.text}, {c.dtype('uint32')})")
    name = ins.name.removesuffix("_half")
    text = f"warp.computed_pair({name!r}, {c.dtype(kind)}, {', '.join(words)})"
    c.assign(ins.one("d"), Val(text, "uint32", 1, True, c.writer.depth, False))


_HANDLERS: Final[dict[str, Callable[[Any, PtxInstruction], None]]] = {
    **dict.fromkeys(_COPIES, _cp_async),
    **dict.fromkeys(_BARRIERS, _bar_sync),
    "cp_async_commit_group": _commit,
    "cp_async_wait_group": _wait_group,
    "cp_async_wait_all": _wait_all,
    "ldmatrix": _ldmatrix,
    **dict.fromkeys(_PRODUCTS, _mma),
    "bar_warp_sync": _warp_sync,
    "cvt_tf32_f32": _cvt_tf32,
    "cvt_f16x2_f32": _cvt_pair,
    "cvt_bf16x2_f32": _cvt_pair,
    "prmt": _permute,
    "lop3": _logic,
    **dict.fromkeys(_PAIRS, _pair),
    **ptx_hopper.HANDLERS,
    **ptx_bulk.HANDLERS,
    **ptx_memory.HANDLERS,
}
