"""Other projects' rules, against their formulas worked out by hand."""

from __future__ import annotations

import pytest

from pipeliner.logs.cases import cases
from pipeliner.logs.rules import RULES, alcop, deep_gemm, triton
from pipeliner.machine import H100

from .made import record

BY_NAME = {rule.name.split(":")[0].split(",")[0]: rule for rule in RULES}
SIMPLE = "mma/cp_async 128x128x32 d"


def of(*keys, workload="sq4096"):
    records = [record(key, 1.0, workload) for key in keys]
    return next(iter(cases(records, H100).values()))


FAMILY = of(*(f"{SIMPLE}{depth}" for depth in (1, 2, 3, 4, 5, 6)))


def test_the_rules_have_the_depths_that_their_projects_take():
    assert BY_NAME["CUTLASS"].depths(FAMILY) == (6,)
    assert BY_NAME["TVM"].depths(FAMILY) == (4, 5)
    assert BY_NAME["TVM"].depths(of(f"{SIMPLE}2", f"{SIMPLE}4")) == (4,)
    # 128 * 128 * 32 / 2048 / 4 * 8 = 512 cycles: 300 / 512 lies nearest to 1, then to 2.
    assert BY_NAME["Triton"].depths(FAMILY) == (2,)


def test_a_short_step_makes_triton_go_deep():
    # 64 * 64 * 32 / 2048 / 4 * 8 = 128 cycles: 2.34 stages, of 2 and 3 the more.
    keys = [f"mma/cp_async 64x64x32 d{depth}" for depth in (1, 2, 3, 4)]
    assert BY_NAME["Triton"].depths(of(*keys)) == (3,)


def test_deep_gemm_ranks_as_it_does():
    # One block of 128 x 128 moves 256 rows of 4096 halves to L1, which reads them once more.
    blocks, moved, result = 32 * 32, 4096 * 256 * 2, 128 * 128 * 2
    l1 = (2 * moved + 2 * result) * blocks / (128 * 132)
    l2 = (moved + result) * blocks / (8e6 / 1.3e3)
    share = blocks / (8 * 132)
    (case,) = of("wgmma/tma 128x128x64 d4")
    assert deep_gemm(case) == pytest.approx(max(l1, l2) / share)
    (wide,) = of("wgmma/tma 128x256x64 d4")
    assert deep_gemm(wide) < deep_gemm(case)
    assert not BY_NAME["DeepGEMM"].applies(FAMILY[0])


def test_triton_counts_arithmetic_where_that_is_longer():
    rate = next(mma.ops_per_cycle for mma in H100.mmas if mma.dtype == "float16")
    compute = H100.cycles_to_us(2 * 4096**3 / (rate * 132))
    store = 4096 * 4096 * 2 / (0.6 * H100.dram_bytes_per_second) * 1e6
    (case,) = of("mma/cp_async 256x128x32 d3")
    assert triton(case) >= (compute + store) * (1 - 1e-9)
    assert triton(of("mma/cp_async 64x64x64 d3")[0]) > triton(case)


def test_alcop_waits_for_loads_until_the_ring_is_deep_enough():
    times = [alcop(case) for case in FAMILY]
    assert times[0] > times[1]
    assert times[2] == pytest.approx(times[3])
    assert BY_NAME["ALCOP"].depths(FAMILY) == (1 + times.index(min(times)),)
