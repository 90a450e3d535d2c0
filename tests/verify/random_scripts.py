"""Random programs as TVMScript, bound to threads."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .random_programs import (
    MAX_TRIPS,
    Loop,
    Program,
    Read,
    Shapes,
    Statement,
    Tile,
    row_count,
    signs,
    source,
)


def script(program: Program) -> str:
    """``program`` as TVMScript, bound to threads."""
    lines = [
        *header(program.shapes(), program.blocks),
        f"        for tx in T.thread_binding({program.threads}, thread='threadIdx.x'):",
        "            with T.sblock('kernel'):",
        "                acc = T.sblock_alloc_buffer((1,), 'float32', scope='local')",
        f"                h = T.sblock_alloc_buffer(({program.threads},), 'float32', scope='shared')",
    ]
    early = [tile for loop in program.loops for tile in loop.tiles if _outlives(tile, loop)]
    for tile in early:
        lines.append(" " * 16 + _allocation(tile))
    for loop in program.loops:
        if not loop.inside:
            lines += [" " * 16 + _scratch(name, program) for name in loop.scratch]
    lines += [" " * 16 + line for line in ("acc[0] = T.float32(0)", "h[tx] = T.float32(0)")]
    for tile in early:
        if tile.guard:
            lines += [" " * 16 + line for line in _zeroed(tile, program)]
    lines.append(f"                for o in T.serial({program.outer}):")
    for loop in program.loops:
        lines += [" " * 20 + line for line in _loop_lines(loop, program)]
    lines.append(f"                    out[bx, o, tx] = acc[0] + h[{program.threads - 1} - tx]")
    text = "\n".join(lines)
    return by_statements(text) if program.stated else text


def by_statements(text: str) -> str:
    """A script with statements that allocate, in place of blocks; those with a ``T.where`` stay.

    TVM's parser has what a block allocates by a statement read by the blocks around it.
    """
    lines: list[str] = []
    around: list[int] = []
    given = text.replace("T.sblock_alloc_buffer(", "T.alloc_buffer(").splitlines()
    for line, following in zip(given, [*given[1:], ""]):
        depth = len(line) - len(line.lstrip())
        around = [one for one in around if one < depth]
        if line.lstrip().startswith("with T.sblock(") and "T.where(" not in following:
            around.append(depth)
        elif not line.lstrip().startswith(("T.reads(", "T.writes(")):
            lines.append(line[4 * len(around) :])
    return "\n".join(lines)


def header(shapes: Shapes, ctas: int) -> list[str]:
    """A function of arrays, ``n`` and ``m`` that ``ctas`` CTAs run, up to its body."""
    parameters = [
        f"{name}: T.Buffer({shape}, {dtype!r})" for name, (shape, dtype) in shapes.items()
    ]
    return [
        "@T.prim_func(s_tir=True)",
        f"def main({', '.join([*parameters, 'n: T.int32', 'm: T.int32'])}):",
        "    T.func_attr({'global_symbol': 'main', 'tirx.noalias': True})",
        f"    for bx in T.thread_binding({ctas}, thread='blockIdx.x'):",
    ]


def _loop_lines(loop: Loop, program: Program) -> Iterator[str]:
    trips = str(loop.trips)
    span = f"{loop.low}, {loop.low} + {trips}" if loop.low else trips
    yield f"for {loop.var} in T.serial({span}):"
    indent = "    "
    if loop.guard:
        yield indent + f"if {loop.guard.format(k=loop.var)}:"
        indent += "    "
    yield indent + f"with T.sblock('body_{loop.var}'):"
    indent += "    "
    for tile in loop.tiles:
        if not _outlives(tile, loop):
            yield indent + _allocation(tile)
    if loop.inside:
        for name in loop.scratch:
            yield indent + _scratch(name, program)
    for number, item in enumerate(loop.body):
        lines = (
            _copy_lines(item, loop, program)
            if isinstance(item, Tile)
            else _statement_lines(item, number, loop, program)
        )
        for line in lines:
            yield indent + line


def _copy_lines(tile: Tile, loop: Loop, program: Program) -> Iterator[str]:
    indent = ""
    if tile.guard:
        yield f"if {tile.guard.format(k=loop.var)}:"
        indent = "    "
    first = f"({loop.var} - {loop.low} + o * {MAX_TRIPS}) * {tile.step}"
    each = tile.vector
    size = each * program.threads if tile.scope == "local" else tile.rows * tile.columns
    per_step = program.threads * each
    steps = math.ceil(size / per_step)
    flat = f"t * {per_step} + tx * {each}" if steps > 1 else f"tx * {each}"
    if steps > 1:
        yield indent + f"for t in T.serial({steps}):"
        indent += "    "
    yield indent + f"with T.sblock('{tile.name}'):"
    indent += "    "
    if size % per_step:
        yield indent + f"T.where({flat} < {size})"
    place = flat
    if each > 1:
        yield indent + f"for v in T.vectorized({each}):"
        indent += "    "
        place = f"({flat} + v)"
    row, column = f"({place}) // {tile.columns}", f"({place}) % {tile.columns}"
    target = f"{row}, {column}"
    if tile.scope == "local":
        row, column, target = "0", place, "v" if each > 1 else "0"
    row, column = f"{first} + {row}", f"{column} + {tile.shift}"
    value = f"{source(tile)}[bx, {row}, {column}]"
    if tile.mask:
        mask = tile.mask.format(row=f"({row})", column=f"({column})")
        value = f"T.if_then_else({mask}, {value}, T.{tile.dtype}(0))"
    yield indent + f"{tile.name}[{target}] = {value}"


def _statement_lines(item: Statement, number: int, loop: Loop, program: Program) -> Iterator[str]:
    step = f"{loop.var} - {loop.low} + o * {MAX_TRIPS}"
    yield f"with T.sblock('{item.target}_{loop.var}_{number}'):"
    indent = "    "
    if item.guard:
        yield indent + f"if {item.guard.format(k=loop.var)}:"
        indent += "    "
    rows = row_count(item, loop)
    if rows > 1:
        yield indent + f"for r in T.serial({rows}):"
        indent += "    "
    terms = [
        ("" if sign == 1 and not at else " + " if sign == 1 else " - ") + _text(read, loop, program)
        for at, (sign, read) in enumerate(zip(signs(), item.reads))
    ]
    target = {"acc": "acc[0]", "h": "h[tx]"}.get(item.target, f"{item.target}[tx]")
    old = target
    if item.target.startswith("C"):
        target, old = (f"{item.target}[bx, {step} + {row}, tx]" for row in (1, 0))
    yield indent + f"{target} = {''.join(terms)}" + (f" - {old}" if item.recurs else "")


def _text(read: Read, loop: Loop, program: Program) -> str:
    if read.name == "B":
        return f"B[bx, {loop.var} - {loop.low} + o * {MAX_TRIPS}, tx]"
    if read.name == "acc":
        return "acc[0]"
    tile = next((tile for tile in loop.tiles if tile.name == read.name), None)
    if tile is None:
        return f"{read.name}[{read.column.format(w=program.threads)}]"
    index = str(read.row)
    if tile.scope == "shared":
        row = f"{read.row} % {tile.rows}" if isinstance(read.row, str) else read.row
        index = f"{row}, {read.column.format(w=tile.columns)}"
    text = f"{tile.name}[{index}]"
    return text if tile.dtype == "float32" else f"T.Cast('float32', {text})"


def _allocation(tile: Tile) -> str:
    shape = f"({tile.vector},)" if tile.scope == "local" else f"({tile.rows}, {tile.columns})"
    return f"{tile.name} = T.sblock_alloc_buffer({shape}, {tile.dtype!r}, scope={tile.scope!r})"


def _scratch(name: str, program: Program) -> str:
    return f"{name} = T.sblock_alloc_buffer(({program.threads},), 'float32', scope='shared')"


def _zeroed(tile: Tile, program: Program) -> Iterator[str]:
    if tile.scope == "local":
        yield f"for v in T.serial({tile.vector}):"
        yield f"    {tile.name}[v] = T.{tile.dtype}(0)"
        return
    size = tile.rows * tile.columns
    flat = f"(z * {program.threads} + tx)"
    yield f"for z in T.serial({math.ceil(size / program.threads)}):"
    yield f"    if {flat} < {size}:"
    place = f"{flat} // {tile.columns}, {flat} % {tile.columns}"
    yield f"        {tile.name}[{place}] = T.{tile.dtype}(0)"


def _outlives(tile: Tile, loop: Loop) -> bool:
    return bool(tile.guard) or not loop.inside
