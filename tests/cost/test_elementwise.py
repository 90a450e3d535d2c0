"""Kernels beside the loops: memory bounds them, or what L2 gives one SM."""

from __future__ import annotations

import pytest

from pipeliner.choice.elementwise import elementwise_us
from pipeliner.cost.memory import EXPOSED_LATENCIES
from pipeliner.machine import H100, H200
from pipeliner.values.facts import ElementwiseInfo

KB = 1024


def passing_us(ctas, nbytes, machine):
    """What is left of a kernel's time without its launch and what it waits for, cold or not."""
    info = ElementwiseInfo("store", ctas, elements=512, vector=4, global_bytes=nbytes)
    cold, behind = (elementwise_us(info, machine, behind=behind) for behind in (False, True))
    cold -= machine.cycles_to_us(EXPOSED_LATENCIES * machine.global_latency)
    behind -= machine.cycles_to_us(2 * machine.l2_latency)
    assert cold == pytest.approx(behind)
    return behind - machine.launch_us


@pytest.mark.parametrize("machine", [H100, H200], ids=lambda machine: machine.name)
def test_many_ctas_take_what_memory_takes(machine):
    bytes_ = 64 * machine.sms * 16 * KB
    expected = bytes_ / machine.dram_bytes_per_second * 1e6
    assert passing_us(64 * machine.sms, 16 * KB, machine) == pytest.approx(expected)


def test_an_sm_gets_no_more_than_l2_gives_it():
    """Eight CTAs that add 64 parts of 512 sums each: the other SMs do not help."""
    alone = passing_us(8, 128 * KB, H100)
    assert alone == pytest.approx(128 * KB / H100.l2_bytes_per_cycle / H100.clock_ghz / 1e3)
    assert alone == pytest.approx(passing_us(1, 128 * KB, H100))
    assert alone > 10 * 8 * 128 * KB / H100.dram_bytes_per_second
    assert passing_us(H100.sms + 1, 128 * KB, H100) >= 2 * alone


def test_of_an_open_grid_one_cta_is_counted():
    assert passing_us(None, KB, H100) == passing_us(1, KB, H100)
