"""Choose among the tiles of attention by their predicted times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ...diagnostics import Reason
from ...machine import Machine
from ..tiles import AttentionTile, LoopTile
from ..workloads import Attention
from .attention_cut import ctas_of


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
    return replace(best, why=why)


def _busy(workload: Attention, tile: AttentionTile, machine: Machine) -> float:
    """The fraction of the SMs that have a CTA, as a mean over the waves."""
    ctas = ctas_of(workload, tile)
    return ctas / (math.ceil(ctas / machine.sms) * machine.sms)
