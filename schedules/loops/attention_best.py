"""Choose among the tiles of attention by their predicted times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...choice.depth_produced import LEAST_TMA_DEPTH
from ...cost.memory import enough_in_flight
from ...diagnostics import Reason, all_of
from ...instructions.dtypes import element_bytes
from ...machine import Machine
from ..tiles import AttentionTile, LoopTile
from ..workloads import Attention
from .attention_cut import Cut, columns_of, ctas_of

SAME_IN_FLIGHT: Final = 0.08
"""Relative difference in predicted time of tiles that ask enough of memory, of which the one with
the fewest keys in a step is taken.

On an H200, one query, heads of 128, three slots of 128 and of 64 keys: 34 MB took 15.9 and 15.0 us,
67 MB 22.6 and 22.2, 134 MB 36.7 and 36.5, 268 MB 65.1 and 64.5. Predicted are 14.8 and 15.1, 24.1
and 24.9, 38.8 and 40.6, 67.9 and 71.8.
"""


def best_attention(
    workload: Attention,
    machine: Machine,
    compared: Mapping[LoopTile, float],
    about: tuple[float, float],
) -> AttentionTile:
    """The tile of the least time; of one whose keys are split, with the reason for that.

    Of those of about that time it is the one that keeps most SMs busy, or has most rows: of more
    warpgroups more compute while one multiplies. ``about``: relative differences in time below
    which tiles count as equally fast, of whole ones and of those whose keys are split.
    """
    times = {tile: us for tile, us in compared.items() if isinstance(tile, AttentionTile)}
    least = min(times, key=lambda tile: (times[tile], -tile.m * tile.n))
    most = times[least] * (1 + about[least.splits > 1])
    near = [tile for tile, us in times.items() if us <= most]
    if least.splits == 1:
        best = min(
            (tile for tile in near if tile.splits == 1),
            key=lambda tile: (-tile.m, times[tile], -tile.n),
        )
    else:
        best = min(
            (tile for tile in near if tile.splits > 1),
            key=lambda tile: (-_busy(workload, tile, machine), tile.splits, times[tile]),
        )
    whole = {tile: us for tile, us in times.items() if tile.splits == 1}
    if best.splits > 1:
        best = _of_short_steps(workload, machine, best, times)
    if best.splits == 1 or not whole:
        return best
    other = min(whole, key=lambda tile: whole[tile])
    alone = replace(best, splits=1)
    why = Reason(
        "split.keys",
        ctas=ctas_of(workload, alone),
        busy=_busy(workload, alone, machine),
        sms=machine.sms,
        splits=best.splits,
        us=times[best],
        whole_us=whole[other],
        whole=f"{other.m}x{other.n}",
    )
    return replace(best, why=all_of((why, best.why)))


def _of_short_steps(
    what: Attention, machine: Machine, best: AttentionTile, times: Mapping[AttentionTile, float]
) -> AttentionTile:
    """``best`` with the fewest keys in a step whose slots still ask enough of memory.

    Memory bounds such tiles alike. With fewer keys the first step begins earlier, and less
    arithmetic is left when the last keys are there.
    """
    if not machine.multiplies_by_warpgroup:
        return best

    def is_alike(tile: AttentionTile) -> bool:
        same = tile == replace(best, n=tile.n) and Cut(what, tile).keys <= Cut(what, best).keys
        about = times[tile] <= times[best] * (1 + SAME_IN_FLIGHT)
        return same and about and _in_flight(what, tile, machine) >= enough_in_flight(machine)

    short = min((tile for tile in times if is_alike(tile)), key=lambda t: t.n, default=best)
    if short.n >= best.n:
        return best
    why = Reason("tile.short_steps", keys=short.n, other=best.n, us=times[best])
    return replace(short, why=why)


def _in_flight(what: Attention, tile: AttentionTile, machine: Machine) -> int:
    """Bytes of K and V that the fewest slots of all CTAs that run at once ask memory for."""
    step = 2 * tile.n * columns_of(what) * element_bytes(what.storage)
    return LEAST_TMA_DEPTH * step * min(ctas_of(what, tile), machine.sms)


def _busy(workload: Attention, tile: AttentionTile, machine: Machine) -> float:
    """The fraction of the SMs that have a CTA, as a mean over the waves."""
    ctas = ctas_of(workload, tile)
    return ctas / (math.ceil(ctas / machine.sms) * machine.sms)
