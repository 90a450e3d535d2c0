"""Published timings on GPUs that are not at hand, beside what the model says of such kernels.

Nothing is fitted to them. The tables give a kernel's idea, not its code: each is set against the
plain schedule that comes nearest, and only ratios between rows are compared. What no schedule here
is near to (a kernel without tiles, one that differs in the width of its accesses alone) has no
prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..machine import A100, GTX_1080_TI, Machine
from ..plan.request import Request
from ..schedules import Gemm, GemmTile
from ..schedules.closed_form import kernel_info
from ..space.ranking import choose


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One kernel of a table: microseconds for each size, and what comes nearest to it, if any."""

    name: str
    us: tuple[float, ...]
    tile: GemmTile | None = None
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of fp32 products of ``sizes`` cubed; ratios are to the row ``base``."""

    title: str
    machine: Machine
    sizes: tuple[int, ...]
    rows: tuple[PublishedRow, ...]
    base: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One cell: how many times as fast as the base row, as published and as predicted.

    ``difference``: the predicted ratio over the published one, less one.
    """

    table: str
    row: str
    size: int
    published: float
    predicted: float

    @property
    def difference(self) -> float:
        """0: as published."""
        return self.predicted / self.published - 1


def _simt(depth: int, mechanism: Any = "register") -> Request:
    return Request(instruction="simt", depth=depth, mechanism=mechanism)


_ONE: Final = GemmTile(32, 32, 32, thread_tile=(1, 1))
_COLUMN: Final = GemmTile(64, 64, 8, thread_tile=(8, 1))
_ROWS: Final = GemmTile(128, 128, 8, thread_tile=(8, 8), warps=(8, 1))
_WARPS: Final = GemmTile(128, 128, 8, thread_tile=(8, 8))

TABLES: Final = (
    PublishedTable(
        "A100, 4096 cubed: one buffer, two, two filled asynchronously",
        A100,
        (4096,),
        (
            PublishedRow("single buffer", (42e3,), _ONE, _simt(1)),
            PublishedRow("double buffer", (35e3,), _ONE, _simt(2)),
            PublishedRow("double buffer, async copy", (32e3,), _ONE, _simt(2, "cp_async")),
        ),
        "single buffer",
    ),
    PublishedTable(
        "GTX 1080 Ti, fp32, from naive to double buffered",
        GTX_1080_TI,
        (256, 512, 1024, 2048),
        (
            PublishedRow("naive", (95.5, 724, 28424, 228681)),
            PublishedRow("shared tiles", (40.5, 198, 8246, 59048), _ONE, _simt(1)),
            PublishedRow("1-D thread tile", (35.2, 175, 895, 5880), _COLUMN, _simt(1)),
            PublishedRow("2-D thread tile", (34.7, 92.9, 558, 3510), _ROWS, _simt(1)),
            PublishedRow("vectorised", (36.6, 90.7, 428, 2901)),
            PublishedRow("warp tiled", (25.1, 65.8, 361, 2651), _WARPS, _simt(1)),
            PublishedRow("double buffered", (22.4, 62.5, 333, 2533), _WARPS, _simt(2)),
        ),
        "2-D thread tile",
    ),
)


def compare(table: PublishedTable) -> list[Comparison]:
    """Every cell of ``table`` that has a prediction, but for its base row, size by size."""
    base = next(row for row in table.rows if row.name == table.base)
    found: list[Comparison] = []
    for at, size in enumerate(table.sizes):
        of_base = predicted_us(base, table.machine, size)
        for row in table.rows:
            if row is not base and row.tile is not None:
                speed = of_base / predicted_us(row, table.machine, size)
                published = base.us[at] / row.us[at]
                found.append(Comparison(table.title, row.name, size, published, speed))
    return found


def predicted_us(row: PublishedRow, machine: Machine, size: int) -> float:
    """Microseconds that the model says the schedule of ``row`` takes of ``size`` cubed."""
    assert row.tile is not None
    assert row.request is not None
    info = kernel_info(Gemm(size, size, size, dtype="float32"), row.tile)
    return choose(info, machine, row.request).predicted_us
