"""Plan one arena for the shared memory of a kernel, before barriers are placed.

    A: 4 x 16384 bytes, B: 4 x 32768, C_staged after the loop: 65536
 => A at 0, B at 65536, C_staged at 0 (its lifetime overlaps neither's)

Every shared buffer becomes dynamic shared memory with its own offset. Two buffers share bytes only
if their lifetimes do not overlap; barrier placement knows the arena and orders them. That is why it
is planned here: TVM's own reuse runs after its barriers and races.

A buffer lives from its first to its last use, and throughout every loop inside its allocation that
uses it. An mbarrier lives to the end: nothing else may be written where one was made (PTX ISA,
mbarrier.inval).

Sharing inside a loop would cost a barrier in each iteration, so buffers of one loop share only if
the kernel does not fit otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...diagnostics import Reason
from ...errors import LoweringError, PlanError
from ...plan import SmemBuffer, SmemPlan
from ..ir import nodes as ir
from ..ir.calls import MBARRIERS, called
from ..ir.kernels import bodies, map_kernels, thread_tag
from ..ir.named_pass import named_pass
from ..sync.mbarriers import ROLES_ATTR
from .vthreads import is_virtual, private_to

DYNAMIC: Final = "shared.dyn"

ALIGNMENT: Final = 128
"""Bytes of one transaction of shared memory: more than any vector access needs."""

DEFAULT_BUDGET: Final = 48 * 1024
"""Bytes that every CUDA GPU gives a CTA without opting in."""


@dataclass(eq=False)
class _Life:
    """A shared buffer: where it is allocated and the span of statements in which it is used.

    ``loops``: serial loops around the allocation. ``vthreads``: loops of virtual threads around it.
    ``has_mbarriers``: instructions work on mbarriers in it.
    """

    buffer: Any
    loops: tuple[Any, ...]
    vthreads: tuple[Any, ...]
    start: int = -1
    end: int = -1
    has_mbarriers: bool = False
    name: str = ""
    bytes: int = 0
    alignment: int = ALIGNMENT
    offset: int = 0

    def overlaps(self, other: _Life) -> bool:
        """Whether both are alive at some statement."""
        return self.start <= other.end and other.start <= self.end

    def meets(self, other: _Life) -> bool:
        """Whether both occupy some byte."""
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


@named_pass("Place")
def place(
    func: Any, budget: int = DEFAULT_BUDGET, *, native_bf16: bool = True
) -> tuple[Any, SmemPlan]:
    """Return ``func`` with its shared buffers in dynamic shared memory, and the arena.

    ``budget``: bytes a CTA may have; PlanError says what does not fit. ``native_bf16``: False for a
    GPU without bfloat16, where TVM later makes every bfloat16 buffer of the kernel float32.
    """
    plans: list[SmemPlan] = []
    taken: set[str] = set()

    def kernel(stmt: Any) -> Any:
        lives = _Lifetimes(stmt).lives
        for life in lives:
            _measure(life, stmt, taken, native_bf16)
        plans.append(_arrange(func, lives, budget))
        return _renamed(stmt, lives)

    placed = map_kernels(func, kernel)
    return placed, SmemPlan(
        bytes=max((plan.bytes for plan in plans), default=0),
        budget=budget,
        buffers=tuple(buffer for plan in plans for buffer in plan.buffers),
    )


def least_bytes(kernel: Any, *, native_bf16: bool = True) -> int:
    """Return the bytes that shared buffers of ``kernel`` need; ``native_bf16`` as for ``place``."""
    lives = _Lifetimes(kernel).lives
    taken: set[str] = set()
    for life in lives:
        _measure(life, kernel, taken, native_bf16)
    return _pack(lives, inside_loops=True)


class _Lifetimes:
    """Numbers the statements of a kernel and finds the span of each shared buffer."""

    def __init__(self, kernel: Any) -> None:
        self._clock = 0
        self._by_buffer: dict[Any, _Life] = {}
        self._visit(kernel, (), ())
        for life in self._by_buffer.values():
            life.end = self._clock if life.has_mbarriers else life.end

    @property
    def lives(self) -> list[_Life]:
        """Return every buffer that is used, in the order of first use."""
        used = [life for life in dict.fromkeys(self._by_buffer.values()) if life.start >= 0]
        return sorted(used, key=lambda life: life.start)

    def _visit(self, stmt: Any, loops: tuple[Any, ...], vthreads: tuple[Any, ...]) -> None:
        for buffer in _allocated(stmt):
            self._by_buffer[buffer] = _Life(buffer, loops, vthreads)
        start = self._clock
        if type(stmt) is tirx.AllocBuffer:
            return
        if type(stmt) is tirx.DeclBuffer:  # a view lives and dies with its memory
            for root in ir.variables(stmt.data) & self._by_buffer.keys():
                self._by_buffer[stmt.buffer] = self._by_buffer[root]
        inner = bodies(stmt)
        self._use(_own_expressions(stmt) if inner else [stmt])
        repeats = type(stmt) in (tirx.For, tirx.While) and thread_tag(stmt) is None
        if repeats:
            loops = (*loops, stmt)
        if is_virtual(stmt):
            vthreads = (*vthreads, stmt)
        for body in inner:
            self._visit(body, loops, vthreads)
        if repeats:
            self._extend(loops, start)
        if type(stmt) is tirx.AttrStmt and stmt.attr_key == ROLES_ATTR:
            self._run_at_once(start)

    def _use(self, nodes: Sequence[Any]) -> None:
        self._clock += 1
        for node in nodes:
            on_mbarrier = type(node) is tirx.Evaluate and called(node.value).startswith(MBARRIERS)
            for var in () if type(node) in ir.CONSTANTS else ir.variables(node):
                life = self._by_buffer.get(var)
                if life is not None:
                    life.start = self._clock if life.start < 0 else life.start
                    life.end = self._clock
                    life.has_mbarriers |= on_mbarrier

    def _run_at_once(self, start: int) -> None:
        """Extend what roles used since ``start``: they run at the same time."""
        for life in self._by_buffer.values():
            if life.end > start:
                life.start, life.end = min(life.start, start + 1), self._clock

    def _extend(self, loops: tuple[Any, ...], start: int) -> None:
        """Extend, over a loop that ends now, what it used and was allocated outside it."""
        for life in self._by_buffer.values():
            if life.end > start and len(life.loops) < len(loops):
                life.start, life.end = min(life.start, start + 1), self._clock


def _allocated(stmt: Any) -> Iterator[Any]:
    if type(stmt) is ir.SBlockRealize:
        yield from (buffer for buffer in stmt.block.alloc_buffers if ir.is_shared(buffer))
    elif type(stmt) is tirx.AllocBuffer and ir.is_shared(stmt.buffer):
        yield stmt.buffer


def _own_expressions(stmt: Any) -> list[Any]:
    """Return the expressions of a compound statement, without those of its inner statements."""
    kind = type(stmt)
    if kind is tirx.For:
        return [stmt.min, stmt.extent]
    if kind in (tirx.IfThenElse, tirx.While):
        return [stmt.condition]
    if kind is ir.SBlockRealize:
        return [stmt.predicate, *stmt.iter_values]
    return [stmt.value] if kind is tirx.AttrStmt else []


def _measure(life: _Life, kernel: Any, taken: set[str], native_bf16: bool) -> None:
    """Fill in name, bytes and alignment."""
    buffer = life.buffer
    size = _flat_bytes(buffer)
    if size is None:
        shape = tuple(map(str, buffer.shape))
        raise LoweringError("smem.shape", buffer=str(buffer.name), shape=shape)
    if str(buffer.dtype) == "bfloat16" and not native_bf16:
        size *= 2
    for vthread in life.vthreads:
        if buffer in private_to(vthread):
            size *= ir.const_int(vthread.extent) or 1
    name, count = str(buffer.name), 0
    while name in taken:
        count += 1
        name = f"{buffer.name}_{count}"
    taken.add(name)
    life.name, life.bytes = name, size
    life.alignment = max(ALIGNMENT, int(buffer.ty.data_alignment))


def _flat_bytes(buffer: Any) -> int | None:
    """Return the bytes of a buffer once flattened, padding between rows included."""
    if not buffer.strides:
        return ir.buffer_bytes(buffer)
    rows, stride = ir.const_int(buffer.shape[0]), ir.const_int(buffer.strides[0])
    return None if rows is None or stride is None else rows * stride * ir.dtype_bytes(buffer.dtype)


def _arrange(func: Any, lives: Sequence[_Life], budget: int) -> SmemPlan:
    """Return the arena of one kernel: with sharing inside loops only if it does not fit without."""
    total = _pack(lives, inside_loops=False)
    if total > budget:
        total = _pack(lives, inside_loops=True)
    if total > budget:
        raise PlanError(
            "smem.full",
            kernel=str((func.attrs or {}).get("global_symbol", "main")),
            nbytes=total,
            buffers=tuple(
                Reason("smem.buffer", buffer=life.name, nbytes=life.bytes) for life in lives
            ),
            budget=budget,
        )
    return SmemPlan(total, budget, tuple(_entry(life, lives) for life in lives))


def _pack(lives: Sequence[_Life], *, inside_loops: bool) -> int:
    """Give each buffer the lowest free place, large ones first; return the bytes of them all."""
    done: list[_Life] = []
    for life in sorted(lives, key=lambda life: (-life.alignment, -life.bytes, life.start)):
        others = [other for other in done if not _may_share(life, other, inside_loops)]
        ends = [0, *(other.offset + other.bytes for other in others)]
        for offset in sorted(_aligned(end, life.alignment) for end in ends):
            life.offset = offset
            if not any(life.meets(other) for other in others):
                break
        done.append(life)
    return max((life.offset + life.bytes for life in lives), default=0)


def _may_share(a: _Life, b: _Life, inside_loops: bool) -> bool:
    if a.overlaps(b):
        return False
    common = [loop for loop in a.loops if any(loop.same_as(other) for other in b.loops)]
    return inside_loops or not common


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _entry(life: _Life, lives: Sequence[_Life]) -> SmemBuffer:
    sharing = tuple(other.name for other in lives if other is not life and life.meets(other))
    return SmemBuffer(
        buffer=life.name,
        offset=life.offset,
        bytes=life.bytes,
        alignment=life.alignment,
        shares_with=sharing,
        reason=Reason("smem.shared") if sharing else "",
    )


def _renamed(kernel: Any, lives: Sequence[_Life]) -> Any:
    """Return ``kernel`` with each buffer dynamic and under its own name."""
    new: dict[Any, Any] = {}
    for life in lives:
        buffer = life.buffer
        if str(buffer.scope()) != DYNAMIC or str(buffer.name) != life.name:
            new[buffer] = tirx.decl_buffer(
                list(buffer.shape),
                buffer.dtype,
                life.name,
                strides=list(buffer.strides) or None,
                scope=DYNAMIC,
                layout=None,
                data_alignment=buffer.ty.data_alignment,
            )
    return ir.substitute(kernel, new) if new else kernel
