"""The head of a machine's part of the page: one sentence, and the facts that one asks for first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ..markup import Html, element
from .rows import Row
from .summary import FAR_OFF, RatioSpread, RecordsSummary

Named: TypeAlias = Callable[[Row], str]
"""What a row is called on the page, linked where there is more of it."""


def headline(found: RecordsSummary) -> str:
    """What the records come to, in one sentence."""
    if found.peers:
        parts = [
            f"{spread.mean:.2f} times as fast as {name} over {_count(spread.count, 'workload')}"
            f"{_range(spread)}"
            for name, spread in found.peers.items()
        ]
        return "; ".join(parts)
    if found.roofline is not None:
        share = f"{found.roofline.mean:.0%} of the roofline"
        return f"{_count(found.workloads, 'workload')} at {share} (geometric mean)"
    return f"{_count(found.kernels, 'kernel')} measured"


def facts(found: RecordsSummary, conditions: str, named: Named) -> Html:
    """What was measured, the best and the worst, and where the model was wrong."""
    items = [*_facts(found, conditions, named)]
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", *said)) for name, said in items),
        class_="facts",
    )


def _facts(
    found: RecordsSummary, conditions: str, named: Named
) -> Iterator[tuple[str, Sequence[str]]]:
    missing = f"; {found.failures:,} more have no time" if found.failures else ""
    tried = f"{_count(found.kernels, 'kernel')} of {_count(found.workloads, 'workload')}"
    below = [element("br"), _dim(conditions)] if conditions else []
    yield "Measured", [f"{tried}{missing}", *below]
    for name, spread in found.peers.items():
        if spread.count > 1:
            yield f"Best against {name}", _one(spread.best, "{:.2f}x", named)
        worst = "Worst against" if spread.count > 1 else "Against"
        yield f"{worst} {name}", _one(spread.worst, "{:.2f}x", named)
    if found.roofline is not None:
        if found.roofline.count > 1:
            yield "Nearest to the roofline", _one(found.roofline.best, "{:.0%}", named)
        worst = "Farthest from the roofline" if found.roofline.count > 1 else "Of the roofline"
        yield worst, _one(found.roofline.worst, "{:.0%}", named)
    if found.regret is not None:
        row, speed = found.regret.worst
        alone = found.regret.count == 1
        at_worst = "" if alone else f" (geometric mean), {speed:.1%} at worst"
        said = f" of the best measured speed{at_worst}: "
        yield "The model's first choice", [_strong(f"{found.regret.mean:.1%}"), said, named(row)]
    if found.predictions:
        said = (
            f" is the median error; {found.far_off:,} of {found.predictions:,} are wrong by more "
            f"than a factor of {FAR_OFF:g}"
        )
        yield "Predicted times", [_strong(f"{found.error:.0%}"), said]


def _one(found: tuple[Row, float], text: str, named: Named) -> list[str]:
    row, ratio = found
    return [_strong(text.format(ratio)), " ", named(row)]


def _range(spread: RatioSpread) -> str:
    """Empty where there is only one."""
    if spread.count == 1:
        return ""
    return f" (geometric mean; {spread.worst[1]:.2f} at worst, {spread.best[1]:.2f} at best)"


def _strong(text: str) -> Html:
    return element("strong", text)


def _dim(text: str) -> Html:
    return element("span", text, class_="dim")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
