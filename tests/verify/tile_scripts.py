"""A random program of tiles as TVMScript: plain nests of loops, nothing bound but the grid."""

from __future__ import annotations

from collections.abc import Iterator

from .random_programs import MAX_TRIPS
from .random_scripts import header
from .tile_programs import (
    Computed,
    Epilogue,
    Item,
    Product,
    RowSum,
    Side,
    Tap,
    Tile,
    TileLoop,
    TileProgram,
    Update,
    source,
)

INDENT = "    "


def script(program: TileProgram) -> str:
    """``program`` as TVMScript."""
    return "\n".join(_Writer(program).lines())


class _Writer:
    """Writes one program; methods yield lines, indented from where they stand."""

    def __init__(self, program: TileProgram) -> None:
        self.program = program
        self.m, self.n, self.k = program.tile

    def lines(self) -> Iterator[str]:
        yield from header(self.program.shapes(), self.program.ctas)
        yield 2 * INDENT + "with T.sblock('kernel'):"
        for line in self._kernel():
            yield 3 * INDENT + line

    def _kernel(self) -> Iterator[str]:
        program = self.program
        outlive = [tile for tile in program.tiles if tile.guard]
        yield from map(self._allocation, outlive)
        for name in program.sums:
            yield _alloc(name, (self.m,), "float32", program.rows_in)
        for name, dtype, _ in program.accs:
            yield _alloc(name, (self.m, self.n), dtype, "local")
        for one in program.epilogues:
            if one.staged:
                yield _alloc(f"{one.name}_tile", (self.m, self.n), one.dtype)
            if one.odd == "largest":
                kind = self._acc_dtype(one.acc)
                yield _alloc(f"{one.name}_most", (self.m,), kind, program.rows_in)
        for tile in outlive:
            zero = f"{self._element(tile.name)} = T.{tile.dtype}(0)"
            yield from _nest(f"{tile.name}_zero", self._dims(tile), zero)
        for name in program.sums:
            yield from _nest(f"{name}_zero", {"i": self.m}, f"{name}[i] = T.float32(0)")
        yield f"for o in T.serial({program.outer}):"
        for line in self._once():
            yield INDENT + line

    def _once(self) -> Iterator[str]:
        """What is done in each turn of the outermost loop."""
        program, whole = self.program, {"i": self.m, "j": self.n}
        for name, dtype, begins in program.accs:
            value = f"T.{dtype}(0)"
            if begins:
                value = _inside(f"{name}_begin[{self._at('n', 'j')}]", dtype, self._in("n", "j"))
            yield from _nest(f"{name}_init", whole, f"{name}[i, j] = {value}")
        for loop in program.loops:
            yield from self._loop(loop)
        for name in program.sums:
            store = f"{name}_out[bx, o, i] = {name}[i]"
            yield from _nest(f"{name}_store", {"i": self.m}, store)
        for one in program.epilogues:
            yield from self._epilogue(one)

    def _loop(self, loop: TileLoop) -> Iterator[str]:
        span = f"{loop.low}, {loop.low} + {loop.trips}" if loop.low else str(loop.trips)
        yield f"for {loop.var} in T.serial({span}):"
        indent = INDENT
        if loop.guard:
            yield indent + f"if {loop.guard.format(k=loop.var)}:"
            indent += INDENT
        yield indent + f"with T.sblock('body_{loop.var}'):"
        indent += INDENT
        for item in loop.body:
            if isinstance(item, Computed) or (isinstance(item, Tile) and not item.guard):
                yield indent + self._allocation(item)
        for number, item in enumerate(loop.body):
            lines: Iterator[str] = self._item(item, loop, f"{loop.var}_{number}")
            if guard := getattr(item, "guard", ""):
                yield indent + f"if {guard.format(k=loop.var)}:"
                lines = (INDENT + line for line in lines)
            for line in lines:
                yield indent + line

    def _item(self, item: Item, loop: TileLoop, label: str) -> Iterator[str]:
        step = f"({loop.var} - {loop.low} + o * {MAX_TRIPS})"
        if isinstance(item, Tile):
            yield from _nest(item.name, self._dims(item), self._copied(item, step))
        elif isinstance(item, Computed):
            value = _cast(item.dtype, self._source_dtype(item), self._element(item.source))
            if item.how == "doubled":
                value = f"{value} * T.{item.dtype}(2)"
            if item.how == "neighbour":
                other = self._element(item.source, r=f"(r + 1) % {self.k}")
                value = f"{value} - {_cast(item.dtype, self._source_dtype(item), other)}"
            yield from _nest(item.name, self._dims(item), f"{self._element(item.name)} = {value}")
        elif isinstance(item, Product):
            dims = {"i": self.m, "j": self.n, "r": self.k}
            yield from _nest(f"product_{label}", dims, self._multiplied(item))
        elif isinstance(item, Update):
            kind = self._acc_dtype(item.acc)
            value = f"T.{kind}(1)"
            if item.vector:
                tile = self.program.named(item.vector)
                index = "i" if self.program.side(item.vector) == "m" else "j"
                value = _cast(kind, tile.dtype, f"{item.vector}[{index}]")
            store = f"{item.acc}[i, j] = {value} - {item.acc}[i, j]"
            yield from _nest(f"update_{label}", {"i": self.m, "j": self.n}, store)
        elif isinstance(item, Tap):
            place = f"{item.name}[bx, {step}, i, r]"
            value = self._element(item.tile) + (f" + {place}" if item.adds else "")
            dims = {"i": self.program.rows(self.program.side(item.tile)), "r": self.k}
            yield from _nest(f"tap_{label}", dims, f"{place} = {value}")
        elif isinstance(item, RowSum):
            dtype = self.program.named(item.tile).dtype
            value = _cast("float32", dtype, self._element(item.tile))
            store = f"{item.total}[i] = {value} - {item.total}[i]"
            yield from _nest(f"sum_{label}", {"i": self.m, "r": self.k}, store)

    def _copied(self, tile: Tile, step: str) -> str:
        column = f"{step}" if tile.vector else f"{step} * {self.k} + r"
        column += (
            f" + {tile.offset}" if tile.offset > 0 else f" - {-tile.offset}" * bool(tile.offset)
        )
        row = self._at(tile.side, "i")
        indices = (row, column) if tile.source_k_last else (column, row)
        checks = self._in(tile.side, "i")
        checks += [f"{column} >= 0"] * (tile.offset < 0)
        checks += [f"{column} < {tile.columns}"] * (self.program.columns(tile) == tile.columns)
        value = _inside(f"{source(tile)}[{', '.join(indices)}]", tile.dtype, checks)
        if tile.clipped:
            value = f"T.max({value}, T.{tile.dtype}(0))"
        return f"{self._element(tile.name)} = {value}"

    def _multiplied(self, item: Product) -> str:
        kind = self._acc_dtype(item.acc)
        factors = []
        for name, index in ((item.a, "i"), (item.b, "j")):
            element = self._element(name, i=index)
            factors.append(_cast(kind, self.program.named(name).dtype, element))
        return f"{item.acc}[i, j] = {item.acc}[i, j] + {' * '.join(factors)}"

    def _epilogue(self, one: Epilogue) -> Iterator[str]:
        whole, kind = {"i": self.m, "j": self.n}, self._acc_dtype(one.acc)
        row, column = self._at("m", "i"), self._at("n", "j")
        value = f"{one.acc}[i, j]"
        if one.odd == "largest":
            most = f"{one.name}_most[i]"
            lowest = f"{most} = T.min_value({kind!r})"
            yield from _nest(f"{one.name}_lowest", {"i": self.m}, lowest)
            yield from _nest(f"{one.name}_most", whole, f"{most} = T.max({most}, {value})")
            value = f"({value} - {most})"
        value = f"T.{kind}(0) - {value}" if one.negated else value
        more = {"row": column, "column": row, "residual": f"{row}, {column}"}.get(one.adds)
        if more is not None:
            value = f"{value} + {_cast(kind, one.dtype, f'{one.name}_more[{more}]')}"
        if one.adds == "acc":
            other, other_kind, _ = self.program.accs[-1]
            value = f"{value} + {_cast(kind, other_kind, f'{other}[i, j]')}"
        if one.clipped:
            value = f"T.max({value}, T.{kind}(0))"
        value = _cast(one.dtype, kind, value)
        place, checks = (
            f"{one.name}[o, {self._row_of(one, row)}, {column}]",
            [*self._in("m", "i"), *self._in("n", "j")],
        )
        if one.staged:
            tile = f"{one.name}_tile"
            yield from _nest(f"{one.name}_stage", whole, f"{tile}[i, j] = {value}")
            value = f"{tile}[i, j] + {tile}[i, (j + 1) % {self.n}]"
        yield from _nest(f"{one.name}_store", whole, f"{place} = {value}", " and ".join(checks))

    def _row_of(self, one: Epilogue, row: str) -> str:
        return f"T.max({one.name}_to[{row}], 0)" if one.odd == "scattered" else row

    def _allocation(self, tile: Tile | Computed) -> str:
        return _alloc(tile.name, tuple(self._dims(tile).values()), tile.dtype)

    def _dims(self, tile: Tile | Computed) -> dict[str, int]:
        """The dimensions of a tile, in its order, by the variable that indexes each."""
        rows = {"i": self.program.rows(self.program.side(tile.name))}
        if isinstance(tile, Tile) and tile.vector:
            return rows
        both = {**rows, "r": self.k}
        return both if self._k_last(tile) else dict(reversed(both.items()))

    def _element(self, name: str, i: str = "i", r: str = "r") -> str:
        names = {"i": i, "r": r}
        return f"{name}[{', '.join(names[d] for d in self._dims(self.program.named(name)))}]"

    def _k_last(self, tile: Tile | Computed) -> bool:
        if isinstance(tile, Computed):
            return self._k_last(self.program.named(tile.source))
        return tile.k_last

    def _source_dtype(self, item: Computed) -> str:
        return self.program.named(item.source).dtype

    def _acc_dtype(self, name: str) -> str:
        return next(dtype for acc, dtype, _ in self.program.accs if acc == name)

    def _at(self, side: Side, index: str) -> str:
        """The row or column of the results that ``index`` of a CTA's is."""
        columns = self.program.grid[1]
        number = f"bx // {columns}" if side == "m" else f"bx % {columns}"
        return f"{number} * {self.program.rows(side)} + {index}"

    def _in(self, side: Side, index: str) -> list[str]:
        """What has to hold for that to be one of the results."""
        if not self.program.ragged[side == "n"]:
            return []
        return [f"{self._at(side, index)} < {self.program.extent(side)}"]


def _nest(name: str, dims: dict[str, int], store: str, where: str = "") -> Iterator[str]:
    yield f"for {', '.join(dims)} in T.grid({', '.join(map(str, dims.values()))}):"
    yield INDENT + f"with T.sblock('{name}'):"
    if where:
        yield 2 * INDENT + f"T.where({where})"
    yield 2 * INDENT + store


def _alloc(name: str, shape: tuple[int, ...], dtype: str, scope: str = "shared") -> str:
    return f"{name} = T.sblock_alloc_buffer({shape}, {dtype!r}, scope={scope!r})"


def _inside(value: str, dtype: str, checks: list[str]) -> str:
    return f"T.if_then_else({' and '.join(checks)}, {value}, T.{dtype}(0))" if checks else value


def _cast(to: str, of: str, value: str) -> str:
    return value if to == of else f"T.Cast('{to}', {value})"
