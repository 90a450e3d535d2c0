"""The value of each constant of the model with which its term says nothing, and what has none.

A norm's exponent of 32 is a maximum within 2 %. What only decides which code is made, or is of
kernels that no log has, is no part of a predicted time of a log and is not left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

_MAXIMUM: Final = 32.0
"""As the exponent of a norm."""

_NEVER: Final = 10**9
"""As a number from which on something is done."""

NEUTRAL: Final[Mapping[str, float]] = {
    "BANK_STALLS": 0.0,
    "CHAIN_CYCLES": 0,
    "CHAIN_NORM": _MAXIMUM,
    "CHAIN_TILE_CYCLES": 0,
    "CLUSTER_RELEASE_CYCLES": 0,
    "CLUSTER_US": 0.0,
    "COALESCED": 1.0,
    "COLD_TILE_CYCLES": 0,
    "CONVERT_CYCLES": 0,
    "CP_ASYNC_CYCLES": 1,
    "CROSS_STEP_DEPTH": _NEVER,
    "CROWDED_ROWS_PER_CYCLE": math.inf,
    "DIRECT_STORE_COST": 1,
    "DIRTY_LINES": 0.0,
    "PASSING_SHARE": 0.0,
    "ENOUGH_IN_FLIGHT_US": 1e6,
    "ENOUGH_SCATTERED_US": 1e6,
    "EXPOSED_LATENCIES": 0,
    "FETCH_BYTES_PER_CYCLE": math.inf,
    "HANDSHAKE_CYCLES": 0,
    "HOT_LINE_CTAS": math.inf,
    "IM2COL_LINE_CYCLES": 0.0,
    "INSTRUCTION_CACHE_BYTES": _NEVER,
    "LOADED_LATENCY_US": 0.0,
    "LOAD_CYCLES": 1,
    "LONE_WARP_CYCLES": 0,
    "MBARRIER_CYCLES": 0,
    "MULTICAST_US": 0.0,
    "OVERLAP_NORM": _MAXIMUM,
    "PING_PONG_POWER": 1.0,
    "PIPE_NORM": _MAXIMUM,
    "SPLIT_READ_COST": 0.0,
    "POWER_LIMITED_RATE": 1.0,
    "POWER_RESERVE_US": 0.0,
    "PRODUCER_CYCLES": 0,
    "PUSHED_BYTES_PER_CYCLE": math.inf,
    "RESTART_CYCLES": 0,
    "SECOND_LINE": 0.0,
    "SHARED_ARRIVAL": 1.0,
    "SPARE_DEPTH": 2,
    "SPARE_SLOTS": 0,
    "SPLIT_SECTOR_CYCLES": 0,
    "STORE_SLOT_CYCLES": 0,
    "TMA_DEPTH": 16,
    "TMA_RATE": 1.0,
    "TMA_WRITE_COST": 1.0,
    "UNALIGNED_STORE_CYCLES": 0,
    "UNCOALESCED_STORE_CYCLES": 0,
    "ZERO_FILL_LINE_CYCLES": 0.0,
}
"""By name: the constants that are fitted, or measured by the time of whole kernels."""

OTHERWISE: Final[Mapping[str, str]] = {
    "CLAMP_TRIPS": "which code is made",
    "COMPILE_MARGIN": "what is compiled",
    "EVICT_FIRST_MOST": "which code is made",
    "EVICT_FIRST_READERS": "which code is made",
    "FEW_UNCOALESCED_CYCLES": "which code is made",
    "IM2COL_CLAMP_TRIPS": "which code is made",
    "PING_PONG_ACCUMULATORS": "what is compared by default",
    "PING_PONG_FP8_COLUMNS": "what is compared by default",
    "PING_PONG_FP8_STEP": "what is compared by default",
    "REGISTER_DEPTH": "which code is made",
    "ROOF_RESIDUAL": "the interval of a predicted time, not the time",
    "SHORT_BOX_BYTES": "which tiles are compared",
    "SHORT_RESIDUAL": "the interval of a predicted time, not the time",
    "USUAL_DEPTH": "which depths are tried",
    "WAITING_RESIDUAL": "the interval of a predicted time, not the time",
}
"""Other such constants, and what each decides that no time of a log shows."""
