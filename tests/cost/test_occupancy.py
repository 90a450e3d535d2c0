from __future__ import annotations

import pytest

from pipeliner.cost.occupancy import Occupancy, occupancy
from pipeliner.machine import A100, H100


@pytest.mark.parametrize(
    ("machine", "threads", "registers", "smem", "expected"),
    [
        # 65536 / (256 * 128) = 2
        (H100, 256, 128, 0, Occupancy(2, "registers")),
        # 129 registers are charged as 136 of a warp: 65536 / (8 * 4352) = 1
        (H100, 256, 129, 0, Occupancy(1, "registers")),
        # a partition's 16384 registers hold 4 warps of 104 each: 16 / 6 = 2, although 65536 / (6 *
        # 3328) = 3
        (H100, 192, 104, 0, Occupancy(2, "registers")),
        (A100, 1024, 32, 0, Occupancy(2, "threads")),
        (A100, 32, 16, 0, Occupancy(32, "CTA slots")),
        # 164 KB - 1 KB for each CTA: two of 81 KB fit, two of 81 KB and 1 byte do not
        (A100, 128, 32, 81 * 1024, Occupancy(2, "shared memory")),
        (A100, 128, 32, 81 * 1024 + 1, Occupancy(1, "shared memory")),
        (H100, 128, 32, 227 * 1024, Occupancy(1, "shared memory")),
        (H100, 1024, 128, 0, Occupancy(0, "registers")),
    ],
)
def test_what_one_sm_holds(machine, threads, registers, smem, expected):
    assert occupancy(machine, threads, registers, smem) == expected
