"""Translate the PTX instructions of sm_90: mbarriers, fences, clusters, wgmma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import ir
from tvm.ir import TensorLoad

from ...errors import EmulatorError
from ..units.mbarrier import SIZE
from ..units.wgmma import wgmma_spec
from .expressions import Expressions
from .operation import PtxInstruction, address_name, is_address
from .source import Val

_WGMMA_KINDS: Final = ("f16", "bf16", "tf32", "fp8", "int", "f16_f16acc", "fp8_f16acc")
_WGMMA: Final = tuple(f"wgmma_{kind}_{form}" for kind in _WGMMA_KINDS for form in ("ss", "rs"))
"""All forms of wgmma.mma_async."""

_TRY_WAITS: Final = (
    "mbarrier_test_wait_parity",
    "mbarrier_try_wait_parity",
    "mbarrier_try_wait_parity_no_hint",
)
"""Waits by parity that may give up."""

WAITS: Final = (*_TRY_WAITS, "barrier_cluster_wait", "wgmma_wait_group")
"""Instructions at which threads wait for each other."""

_ENGINE_WORDS: Final = ("mbarrier", "bulk", "wgmma", "barrier_cluster", "fence_proxy")
"""Parts of the names of instructions that involve asynchronous engines."""


def uses_engines(name: str) -> bool:
    """Whether an instruction involves mbarriers, bulk copies or wgmma."""
    return any(word in name for word in _ENGINE_WORDS)


def address(c: Expressions, node: Any, size: int) -> tuple[str, str]:
    """Return buffer and text of a shared address: a pointer, or a number (from mapa)."""
    if not (is_address(node) or isinstance(node, ir.Var)):
        c.note_shared(size)
        return "shared::cluster", c.expr(node).text
    pointer = c.pointer(node)
    if pointer.memory.space != "shared":
        raise EmulatorError("ptx.address_space", expected="shared", space=pointer.memory.space)
    c.note_shared(size)
    return address_name(node), c.bytes_of(pointer).text


# mbarrier


def _init(c: Expressions, ins: PtxInstruction) -> None:
    name, at = address(c, ins.one("addr"), SIZE)
    count = c.expr(ins.one("count"))
    c.writer.emit(f"hopper.mbarrier_init(s, {name!r}, {at}, {count.text}, {c.mask})")


def _inval(c: Expressions, ins: PtxInstruction) -> None:
    name, at = address(c, ins.one("addr"), SIZE)
    c.writer.emit(f"hopper.mbarrier_inval(s, {name!r}, {at}, {c.mask})")


def _arrive(c: Expressions, ins: PtxInstruction) -> None:
    _, at = address(c, ins.one("addr"), SIZE)
    count = c.expr(ins.one("count")).text if "count" in ins.operands else "1"
    nbytes = c.expr(ins.one("tx_count")).text if "tx_count" in ins.operands else "None"
    if ins.name == "mbarrier_expect_tx":
        count = "0"
    release = ins.modifiers.get("sem", "") != "relaxed"
    c.writer.emit(f"hopper.mbarrier_arrive(s, {at}, {count}, {nbytes}, {release}, {c.mask})")


def _complete_tx(c: Expressions, ins: PtxInstruction) -> None:
    _, at = address(c, ins.one("addr"), SIZE)
    nbytes = c.expr(ins.one("tx_count"))
    c.writer.emit(f"hopper.mbarrier_complete(s, {at}, {nbytes.text}, {c.mask})")


def _cp_async_arrive(c: Expressions, ins: PtxInstruction) -> None:
    _, at = address(c, ins.one("addr"), SIZE)
    counted = not ins.modifiers["noinc"]
    c.writer.emit(f"hopper.cp_async_arrive(s, {at}, {counted}, {c.mask})")


def wait(c: Expressions, addr: Any, parity: Any) -> None:
    """Emit a wait that does not give up."""
    _, at = address(c, addr, SIZE)
    c.writer.emit(f"yield from hopper.mbarrier_wait(s, {at}, {c.expr(parity).text}, {c.mask})")


def _try_wait(c: Expressions, ins: PtxInstruction) -> None:
    ins.expect(phase_type=("", "phase_type::primary"), sem=("", "acquire"))
    _, at = address(c, ins.one("addr"), SIZE)
    done, parity = c.writer.fresh("done"), c.expr(ins.one("phase"))
    c.writer.emit(
        f"{done} = yield from hopper.mbarrier_wait(s, {at}, {parity.text}, {c.mask}, patient=False)"
    )
    _set(c, ins.one("wait_complete"), Val(done, "bool", 1, False, c.writer.depth, False))


def _set(c: Expressions, target: Any, value: Val) -> None:
    """Write a destination register, converted to its type."""
    if not isinstance(target, TensorLoad):
        raise EmulatorError("ptx.destination", expression=str(target))
    c.store(target.source, target.indices, c.cast(value, str(target.ty)))


# Fences


def _fence_proxy(c: Expressions, ins: PtxInstruction) -> None:
    if ins.modifiers["proxykind"] == "async":
        space = ins.modifiers["space"].partition("::")[0]
        spaces = (space,) if space else ("shared", "global")
        c.writer.emit(f"hopper.proxy_fence(s, {spaces!r}, {c.mask})")


def _fence_init(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"hopper.mbarrier_fence(s, {c.mask})")


def _nothing(c: Expressions, ins: PtxInstruction) -> None:
    """Emit nothing: prefetches and register budgets change no result here."""


def _grid_dependency(c: Expressions, ins: PtxInstruction) -> None:
    # launch_dependents orders nothing: who starts by it waits for the end of this kernel.
    if ins.modifiers["action"] == "wait":
        c.writer.emit(f"hopper.grid_wait(s, {c.mask})")


def _warpgroup_aligned(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"s.warps({c.mask}, {ins.name!r})")


# Clusters


def _cluster_arrive(c: Expressions, ins: PtxInstruction) -> None:
    release = ins.modifiers.get("sem", "") != "relaxed"
    c.writer.emit(f"hopper.cluster_arrive(s, {release}, {c.mask})")


def _cluster_wait(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"yield from hopper.cluster_wait(s, {c.mask})")


def _mapa(c: Expressions, ins: PtxInstruction) -> None:
    _, at = address(c, ins.one("a"), SIZE)
    text = f"hopper.map_address(s, {at}, {c.expr(ins.one('b')).text}, {c.mask})"
    _set(c, ins.one("d"), Val(text, "uint32", 1, True, c.writer.depth, False))


def _rank(c: Expressions, ins: PtxInstruction) -> None:
    _, at = address(c, ins.one("a"), SIZE)
    text = f"hopper.rank_of_address(s, {at})"
    _set(c, ins.one("d"), Val(text, "uint32", 1, True, c.writer.depth, False))


def _bar_arrive(c: Expressions, ins: PtxInstruction) -> None:
    number, count = c.expr(ins.one("a")), c.expr(ins.one("b"))
    if number.varying or count.varying:
        raise EmulatorError("emulator.named_barrier", varies="number or count")
    listed = f"{number.text}, {count.text}"
    c.writer.emit(f"yield s.barrier({c.mask}, {listed}, aligned=False, wait=False)")


# Warps


def _elect(c: Expressions, ins: PtxInstruction) -> None:
    lane, leads = c.writer.fresh("lane"), c.writer.fresh("leads")
    c.writer.emit(f"{lane}, {leads} = hopper.elect(s, {c.mask})")
    for name, text, dtype in (("d", lane, "uint32"), ("p", leads, "bool")):
        if name in ins.operands:
            _set(c, ins.one(name), Val(text, dtype, 1, True, c.writer.depth, False))


def _stmatrix(c: Expressions, ins: PtxInstruction) -> None:
    _, at = address(c, ins.one("p"), 16)
    registers = ", ".join(c.expr(node).text for node in ins.operands["r"])
    transposed = bool(ins.modifiers["trans"])
    c.writer.emit(f"hopper.stmatrix(s, {at}, [{registers}], {transposed}, {c.mask})")


# wgmma


def _wgmma_fence(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"matrix.wgmma_fence(s, {c.mask})")


def _wgmma_commit(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"matrix.wgmma_commit(s, {c.mask})")


def _wgmma_wait(c: Expressions, ins: PtxInstruction) -> None:
    c.writer.emit(f"yield from matrix.wgmma_wait(s, {c.expr(ins.one('group')).text}, {c.mask})")


def _registers(c: Expressions, nodes: list[Any]) -> str:
    """Text of (view, columns) of registers, all of one array."""
    refs = [c.buffer(node.source) for node in nodes]
    if len({(ref.memory, ref.dtype) for ref in refs}) > 1:
        raise EmulatorError("ptx.wgmma_arrays", expression=str(nodes[0]))
    columns = [c.index(ref, node.indices)[0] for ref, node in zip(refs, nodes, strict=True)]
    if any(column.varying for column in columns):
        raise EmulatorError("ptx.wgmma_index", expression=str(nodes[0]))
    listed = ", ".join(column.text for column in columns)
    return f"({c.view(refs[0].memory, refs[0].dtype)}, ({listed},))"


def _wgmma(c: Expressions, ins: PtxInstruction) -> None:
    m = ins.modifiers
    spec = f"W_{m['shape']}_{m['dtype']}_{m['atype']}_{m['btype']}"
    c.namespace.setdefault(spec, wgmma_spec(m["shape"], m["dtype"], m["atype"], m["btype"]))
    registers = "a" in ins.operands
    a = _registers(c, ins.operands["a"]) if registers else c.expr(ins.one("a_desc")).text
    b, scale_d = c.expr(ins.one("b_desc")).text, c.expr(ins.one("scale_d")).text

    def immediate(name: str, default: int) -> int:
        return int(ins.one(name).value) if name in ins.operands else default

    scales = immediate("scale_a", 1), immediate("scale_b", 1)
    majors = tuple("mn" if immediate(f"trans_{x}", 0) else "k" for x in "ab")
    saturate = bool(m.get("satfinite", ""))
    d = _registers(c, ins.operands["d"])
    c.writer.emit(
        f"matrix.wgmma_mma(s, {spec}, {m['atype']!r}, {d}, {a}, {b}, {scale_d}, "
        f"{scales}, {majors}, {saturate}, {c.mask})"
    )


def matrix_registers(ins: PtxInstruction) -> list[Any]:
    """Buffers whose registers a wgmma works on asynchronously."""
    if ins.name not in _WGMMA:
        return []
    return [node.source for name in ("a", "d") for node in ins.operands.get(name, [])]


HANDLERS: Final[dict[str, Callable[[Any, PtxInstruction], None]]] = {
    "mbarrier_init": _init,
    "mbarrier_inval": _inval,
    **dict.fromkeys(
        (
            "mbarrier_arrive",
            "mbarrier_arrive_nocount",
            "mbarrier_arrive_expect_tx",
            "mbarrier_expect_tx",
        ),
        _arrive,
    ),
    "mbarrier_complete_tx": _complete_tx,
    "cp_async_mbarrier_arrive": _cp_async_arrive,
    **dict.fromkeys(_TRY_WAITS, _try_wait),
    "fence_mbarrier_init": _fence_init,
    "fence_proxy": _fence_proxy,
    **dict.fromkeys(
        ("prefetch", "prefetchu", "cp_async_bulk_prefetch", "cp_async_bulk_tensor_prefetch"),
        _nothing,
    ),
    "griddepcontrol": _grid_dependency,
    "setmaxnreg": _warpgroup_aligned,
    "barrier_cluster_arrive": _cluster_arrive,
    "barrier_cluster_wait": _cluster_wait,
    "bar_arrive": _bar_arrive,
    "barrier_arrive": _bar_arrive,
    "mapa_u32": _mapa,
    "getctarank": _rank,
    "elect_sync": _elect,
    "stmatrix": _stmatrix,
    "wgmma_fence": _wgmma_fence,
    "wgmma_commit_group": _wgmma_commit,
    "wgmma_wait_group": _wgmma_wait,
    **dict.fromkeys(_WGMMA, _wgmma),
}
