"""The machine that measurements make of a described one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..machine import Machine, MeasuredValue, MmaRate

COUNTED: Final = (
    "global_latency",
    "l2_latency",
    "shared_latency",
    "barrier_cycles",
    "fp32_latency",
)
"""Fields that are whole cycles."""

RATES: Final = ("dram_bytes_per_second", "launch_us", "clock_ghz")

_WGMMA: Final = "wgmma_m64n256k16"


def with_measured(machine: Machine, found: Mapping[str, MeasuredValue]) -> Machine:
    """``machine`` with what was measured in place of what was published.

    Widths of shared memory and of the FMA pipe stay what the vendor states: no kernel gets more. So
    does what an SM gets from L2: the probe's SMs read lines of their own, 29 bytes a cycle on an
    H100; CTAs that work on neighbouring tiles read the same ones, and get twice that.
    What wgmma does with other types than half precision stays the same multiple of that.
    """
    changed: dict[str, Any] = {
        "mmas": tuple(_with_rate(rate, found) for rate in machine.mmas),
        "wgmmas": _with_wgmma(machine.wgmmas, found),
        **{name: round(found[name].value) for name in COUNTED if name in found},
        **{name: found[name].value for name in RATES if name in found},
    }
    return replace(machine, **changed)


def _with_rate(rate: MmaRate, found: Mapping[str, MeasuredValue]) -> MmaRate:
    m, n, k = rate.shape
    name = f"mma_{rate.dtype}_m{m}n{n}k{k}"
    if f"{name}_rate" not in found:
        return rate
    ops, latency = found[f"{name}_rate"].value, found[f"{name}_latency"].value
    return replace(rate, ops_per_cycle=round(ops), latency=round(latency))


def _with_wgmma(
    rates: tuple[MmaRate, ...], found: Mapping[str, MeasuredValue]
) -> tuple[MmaRate, ...]:
    if f"{_WGMMA}_rate" not in found:
        return rates
    half = next(rate for rate in rates if rate.dtype == "float16")
    share = found[f"{_WGMMA}_rate"].value / half.ops_per_cycle
    latency = round(found[f"{_WGMMA}_latency"].value)
    return tuple(
        replace(rate, ops_per_cycle=round(rate.ops_per_cycle * share), latency=latency)
        for rate in rates
    )
