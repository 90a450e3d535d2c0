"""``pipeliner plan --why``: the alternatives to a plan, as tables and a drawing."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ...diagnostics import Why, joined
from ..shared import console

if TYPE_CHECKING:
    from ...explain.why import Alternatives, TileOption
    from ...space.alternatives import CandidateOption, DepthOption, LoopDepths

_BAR: Final = 50
_WIDTH: Final = 100
_BEYOND: Final = 2
"""Depths that are shown beyond the chosen and the fastest one."""

_CHOSEN: Final = "<-"


def show(found: Alternatives) -> None:
    """Print everything that was considered, the chosen marked."""
    print(f"alternatives for {found.kernel} on {found.machine}, times predicted")
    if found.measured:
        print(f"beside them what was measured, the fastest of each: {found.measured}")
    for loop in found.depths:
        _depths(loop)
    _candidates(found.candidates)
    if found.best_tiles:
        console.heading("instructions, each with its best tile")
        rows = [(name, tile.text, f"{tile.us:.1f}") for name, tile in found.best_tiles]
        console.print_table(("instruction", "tile", "us"), rows, numeric=1)
    if found.declined:
        console.heading("loops left alone")
        _reasons((name, joined(reasons)) for name, reasons in found.declined)
    if found.tiles:
        console.heading("tiles, the best of those compared")
        _tiles(found.tiles)
    if len(found.splits) > 1:
        console.heading("split-K, each number of splits with its best tile")
        _tiles(found.splits)
    if found.reasons:
        console.heading("the choice")
        _reasons(("", text) for text in found.reasons)


def _depths(loop: LoopDepths) -> None:
    shown, more = _of_interest(loop.depths)
    console.heading(f"depths of loop {loop.loop}")
    rows: list[tuple[str, ...]] = [
        (
            option.slots,
            f"{option.smem}",
            "-" if option.us is None else f"{option.ctas}",
            "-" if option.us is None else f"{option.step:.0f}",
            _us(option.us),
            _CHOSEN if option.chosen else "",
        )
        for option in shown
    ]
    headers: tuple[str, ...] = (
        "slots",
        "shared memory",
        "CTAs an SM",
        "cycles a step",
        "us",
        "chosen",
    )
    points = {option.slots: option.measured_us for option in shown if option.measured_us}
    if points:
        headers = (*headers, "measured")
        rows = [(*row, _us(points.get(row[0]))) for row in rows]
    console.print_table(headers, rows, numeric=len(headers))
    if more:
        print(f"  - {more[0].depth} to {more[-1].depth}: no faster")
    _reasons((str(option.depth), option.why) for option in shown)
    timed = [(o.slots, o.us, o.chosen) for o in shown if o.us is not None]
    block, point = ("█", "●") if _can_print("█●") else ("#", "o")
    print("\npredicted time over depth" + f", {point} measured" * bool(points))
    print("\n".join(bars(timed, block, points, point)))


def _of_interest(
    depths: Sequence[DepthOption],
) -> tuple[list[DepthOption], list[DepthOption]]:
    """Depths to show, and deeper ones that are no faster than these."""
    times = {o.depth: o.us for o in depths if o.us is not None and not o.ring_depths}
    deepest = max(
        min(times, key=lambda depth: (round(times[depth], 1), depth), default=1),
        max((option.depth for option in depths if option.chosen), default=1),
    )
    more = [
        option
        for option in depths
        if option.depth > deepest + _BEYOND
        and not (option.why or option.ring_depths or option.measured_us)
    ]
    return [option for option in depths if option not in more], more


def bars(
    timed: Sequence[tuple[str, float, bool]],
    block: str,
    points: Mapping[str, float] = MappingProxyType({}),
    point: str = "",
) -> list[str]:
    """A bar from zero for each time, the chosen one marked.

    ``points``: other times of some, each a ``point`` in its line.
    """
    longest = max([us for _, us, _ in timed] + list(points.values()), default=1.0)
    lines = []
    for label, us, chosen in timed:
        line = f"{block * _cells(us, longest):<{_BAR}}"
        other = points.get(label)
        if other is not None:
            at = _cells(other, longest)
            line = line[: at - 1] + point + line[at:]
        text = f"{label:>5} {line} {us:.1f} us" + f" {_CHOSEN}" * chosen
        lines.append(text if other is None else f"{text} {point} {other:.1f} us")
    return lines


def _cells(us: float, longest: float) -> int:
    return max(1, round(_BAR * us / longest))


def _candidates(options: tuple[CandidateOption, ...]) -> None:
    console.heading("candidates with this tile, in the order in which they are tried")
    rows = [
        (
            option.name,
            option.instruction or "-",
            option.slots or "-",
            _us(option.us),
            _CHOSEN if option.chosen else "",
        )
        for option in options
    ]
    headers = ("candidate", "multiplies", "slots", "us", "chosen")
    console.print_table(headers, rows, numeric=3)
    _reasons((option.name, option.why) for option in options)


def _tiles(options: tuple[TileOption, ...]) -> None:
    rows: list[tuple[str, ...]]
    rows = [(o.text, f"{o.us:.1f}", _CHOSEN if o.chosen else "") for o in options]
    headers: tuple[str, ...] = ("tile", "us", "chosen")
    if any(option.measured_us for option in options):
        headers = (*headers, "measured")
        rows = [(*row, _us(option.measured_us)) for row, option in zip(rows, options)]
    console.print_table(headers, rows, numeric=len(headers) - 1)
    _reasons((option.text, option.why) for option in options)


def _reasons(named: Iterable[tuple[str, Why]]) -> None:
    for name, why in named:
        if why:
            said = f"{name}: {why}" if name else str(why)
            lines = textwrap.wrap(said, _WIDTH - 4, break_on_hyphens=False)
            print("  - " + "\n    ".join(lines))


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:.1f}"


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
