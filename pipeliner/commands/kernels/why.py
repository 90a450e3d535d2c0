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
    from ...choice.alternatives import DepthOption, LoopDepths, WayOption
    from ...explain.why import Alternatives, TileOption

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
    _ways("instruction", found.instructions, dict(found.best_tiles))
    _ways("mechanism", found.mechanisms)
    _ways("consumer", found.consumers)
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


def _ways(
    what: str, options: tuple[WayOption, ...], best: dict[str, TileOption] | None = None
) -> None:
    if not options:
        return
    console.heading(f"{what}s, with this tile")
    multiplies = any(option.instruction for option in options)
    rows: list[tuple[str, ...]] = []
    for option in options:
        tile = (best or {}).get(option.name)
        own = (tile.text, f"{tile.us:.1f}") if tile else ("-", "-")
        chosen = _CHOSEN if option.chosen else ""
        instruction = (option.instruction or "-",) if multiplies else ()
        row = (option.name, *instruction, _us(option.us), chosen)
        rows.append((*row, *own) if best else row)
    names = [what, "multiplies"] if multiplies else [what]
    headers = [*names, "us", "chosen", *(["its best tile", "us"] if best else [])]
    console.print_table(headers, rows, numeric=len(headers) - len(names))
    _reasons((option.name, option.why) for option in options)


def _tiles(options: tuple[TileOption, ...]) -> None:
    rows: list[tuple[str, ...]]
    rows = [(o.text, f"{o.us:.1f}", _CHOSEN if o.chosen else "") for o in options]
    headers: tuple[str, ...] = ("tile", "us", "chosen")
    if any(option.measured_us for option in options):
        headers = (*headers, "measured")
        rows = [(*row, _us(option.measured_us)) for row, option in zip(rows, options)]
    console.print_table(headers, rows, numeric=len(headers) - 1)


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
