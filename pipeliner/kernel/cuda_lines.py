"""Which lines of the CUDA each statement of the device TensorIR becomes, and where it comes from.

TVM prints CUDA without telling. So the functions are printed twice, once with a call before every
statement that prints as a line of its own; without those lines the two texts must be the same.

    if (tx < 8) {                    __builtin_assume(7);
      S_ptr[tx] = A_ptr[tx];         if (tx < 8) {
    }                                  __builtin_assume(8);
                                       S_ptr[tx] = A_ptr[tx];
                                     }

Statements are numbered as the emulator numbers them: in preorder, sequences and attributes not
counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.tirx.build import codegen_build

from ..emulator.base.report import CudaLine
from ..emulator.lower import is_device_function
from ..errors import InternalError
from ..passes.ir import nodes as ir
from ..passes.ir.kernels import bodies, with_bodies
from ..toolchain import nvcc
from ..values.origin import Origin

_MARKER: Final = "__builtin_assume"  # known to nvcc and NVRTC, and without effect for a constant
_MARKED: Final = re.compile(rf"\s*{_MARKER}\((\d+)\);")
_CLOSING: Final = re.compile(r"\s*(\} else \{|[{}]?)")


@dataclass(frozen=True)
class Statement:
    """A statement of a device function: where it comes from and the lines that it becomes.

    ``cuda``: None where nothing is printed for it.
    """

    kernel: str
    number: int
    origin: Origin | None
    cuda: CudaLine | None


@dataclass(frozen=True)
class CudaLines:
    """CUDA source with the statements of the device functions that it was printed from."""

    source: str
    statements: tuple[Statement, ...]

    def find(self, kernel: str, number: int) -> CudaLine | None:
        """The lines of one statement; None where nothing is printed for it."""
        return self._by_number.get((kernel, number))

    def origins(self) -> Mapping[int, Origin]:
        """The origin of each line, from 1, that has one."""
        return {
            line: statement.origin
            for statement in self.statements
            if statement.origin is not None and statement.cuda is not None
            for line in range(statement.cuda.first, statement.cuda.last + 1)
        }

    @cached_property
    def _by_number(self) -> Mapping[tuple[str, int], CudaLine | None]:
        return {(found.kernel, found.number): found.cuda for found in self.statements}


def lines_when_asked(mod: Any) -> Callable[[str, int], CudaLine | None]:
    """``lines`` for ``emulate`` of a lowered module: its CUDA is printed for the first hazard."""
    made = cache(lambda: cuda_lines(mod))
    return lambda kernel, number: made().find(kernel, number)


def cuda_lines(mod: Any) -> CudaLines:
    """The CUDA of the device functions of a lowered module, statement by statement.

    ``mod``: as ``lower_for_emulation`` returns it. InternalError: TVM prints the statements in
    another way when calls stand between them.
    """
    functions = {gv: func for gv, func in mod.functions.items() if is_device_function(func)}
    numbers = itertools.count(1)
    found: list[tuple[str, int, Origin | None]] = []
    marked = {}
    for gv, func in functions.items():
        marker = _Marker(str(func.attrs["global_symbol"]), numbers)
        body = ir.seq(*marker.mark(func.body, None))
        marked[gv] = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
        found += marker.found
    source = _printed(functions)
    kept, ranges = _without_markers(_printed(marked))
    if "".join(kept) != source:
        raise InternalError(
            "cannot tell the CUDA line of a statement: TVM prints the function in another way "
            "with a call before each statement; this is a bug in pipeliner"
        )
    return CudaLines(
        source,
        tuple(
            Statement(*entry, _lines(kept, *ranges[number]) if number in ranges else None)
            for number, entry in enumerate(found, 1)
        ),
    )


class _Marker:
    """Puts a marker before every statement of one function and notes the statement."""

    def __init__(self, kernel: str, numbers: Iterator[int]) -> None:
        self.found: list[tuple[str, int, Origin | None]] = []
        self._kernel = kernel
        self._numbers = numbers

    def mark(self, stmt: Any, origin: Origin | None) -> list[Any]:
        """``stmt``, which comes from ``origin``, with the markers before and inside it."""
        if isinstance(stmt, tirx.SeqStmt):
            return [part for inner in stmt.seq for part in self.mark(inner, origin)]
        if isinstance(stmt, tirx.AttrStmt):
            op = ir.op_of(stmt)
            origin = ir.origin_of(stmt) or origin or (Origin(op) if op else None)
            return [with_bodies(stmt, [ir.seq(*self.mark(stmt.body, origin))])]
        self.found.append((self._kernel, len(self.found), origin))
        call = tirx.call_extern("int32", _MARKER, next(self._numbers))
        inner = [ir.seq(*self.mark(body, origin)) for body in bodies(stmt)]
        return [tirx.Evaluate(call), with_bodies(stmt, inner) if inner else stmt]


def _printed(functions: Mapping[Any, Any]) -> str:
    target = next(iter(functions.values())).attrs["target"]
    with nvcc.for_tvm(), target:
        return str(codegen_build(tvm.IRModule(dict(functions)), target).inspect_source())


def _without_markers(source: str) -> tuple[list[str], dict[int, tuple[int, int]]]:
    """The other lines, and for each marker the lines between it and the next, from 0."""
    kept: list[str] = []
    starts: list[tuple[int, int]] = []
    for line in source.splitlines(keepends=True):
        marker = _MARKED.fullmatch(line.rstrip("\n"))
        if marker is None:
            kept.append(line)
        else:
            starts.append((int(marker[1]), len(kept)))
    ends = [start for _, start in starts[1:]] + [len(kept)]
    return kept, {number: (start, end) for (number, start), end in zip(starts, ends)}


def _lines(source: list[str], start: int, end: int) -> CudaLine | None:
    """The lines [start, end) up to the end of the function, without those that only close."""
    body = list(itertools.takewhile(lambda line: not line.startswith("}"), source[start:end]))
    while body and _CLOSING.fullmatch(body[-1].rstrip("\n")):
        body.pop()
    if not body:
        return None
    return CudaLine(start + 1, start + len(body), "".join(body).rstrip("\n"))
