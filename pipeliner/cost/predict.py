"""Time of a pipelined loop in closed form: the one model behind every choice and every number.

README.md of this folder explains it from the roofline up, with an example to follow by hand. In
short, for one kernel:

    cycles = iterations of an SM at ``step`` cycles each + prologues, epilogues and stores (steps)
    step   = norm(busy, alone / CTAs)          several CTAs interleave on an SM (steps, busy)
    alone  = max(busy + bubble, (T + ...) / (depth - 1))      a ring of ``depth`` slots (steps)
    T      = global_latency + handshake + l2   from the issue of a load to its last byte
    us     = max(norm(cycles / clock, memory + tail), l2)    memory works beside SMs (memory)

``R = T + (1 + ahead + spread) * CTAs * II`` is how long a slot is in use, and ``ceil(R / (CTAs *
II))`` the least depth at which no step waits for its load: Little's law for a ring's slots.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ..diagnostics import Reason
from ..machine import Machine
from ..machine.constant import chosen, constant, measured
from .busy import OVERLAP_NORM, busy_and_bubble, hidden_bubble, issue_cycles
from .descriptor import Depth, Work, least, most
from .l1 import in_flight_in_l1
from .memory import cluster_us, l2_us, loading, memory_us, tensor_map_us
from .occupancy import Occupancy, occupancy
from .power import power_limited_us
from .steps import OVERLAP_DEPTH, Shares, on_sms, tail_cycles
from .usage import PIPE_NORM, PIPE_WORDS

ASSUMED_TRIP: Final = constant(
    "ASSUMED_TRIP",
    64,
    "1",
    "iterations assumed where the trip count is symbolic",
    formula="trip = ASSUMED_TRIP",
    source=chosen("long enough for the steady state to count, as K = 4096 in steps of 64"),
    date="2026-11-21",
)

CROSS_STEP_DEPTH: Final = constant(
    "CROSS_STEP_DEPTH",
    4,
    "slots",
    "depth from which on a wgmma may stay in flight across steps: copies run one slot less "
    "ahead and still have two steps to land",
    formula="depth >= CROSS_STEP_DEPTH",
    source=measured(
        "H100, four slots, without and with: 4096 cubed 201.2 and 193.5 us by 128x256x64, 210.7 "
        "and 195.7 by 256x128x64, 260.8 and 247.9 by 192x128x64; 4096x14336x4096 713 and 679; a "
        "3x3 convolution by 256x128x64 124.7 and 118.4"
    ),
    date="2026-11-22",
)


class TimeSpent(NamedTuple):
    """Microseconds of a kernel by what takes them: SMs, memory and L2 work side by side."""

    start: float
    """To start and end, with the first tensor map and the cluster."""
    sms: float
    """Of the SMs, if memory were never in their way."""
    steps: float
    """Those of them in the steps of the loop: not the first tile, nor what is stored."""
    power: float
    """Those of them by which power slows the clock."""
    memory: float
    """Of memory beside the SMs; 0: what it moves is not known."""
    l2: float
    """In which L2 delivers what all CTAs copy, at best."""
    arithmetic: float
    """In which the pipe that multiplies, or computes else, would do all by itself."""


class Prediction(NamedTuple):
    """What ``predict`` computed; cycles unless a comment says otherwise."""

    depth: int
    """Slots of the deepest ring."""
    resident: int
    """CTAs of an SM at once."""
    occupancy: Occupancy
    """CTAs that would fit, and what stops one more."""
    latency: float
    """Until the first bytes of a load arrive."""
    load: float
    """T: until the last bytes do."""
    step: float
    """Of an SM for one iteration of one CTA."""
    us: float
    """Microseconds of the kernel."""
    cycles: float
    """Of the SMs for the whole kernel."""
    work: Work
    """What was predicted."""
    in_flight: int
    """Steps whose wgmma may still be in flight when the next step starts."""
    spent: TimeSpent
    """What takes the microseconds."""
    issue: float
    """In which the warps of an SM issue an iteration of one CTA, however few they are."""

    @property
    def ii(self) -> float:
        """II: cycles of the busiest pipe for an iteration."""
        return self.work.usage.busiest()[1]

    @property
    def limiter(self) -> str:
        """What is busiest, in words: a pipe, or the schedulers where they have few warps."""
        return PIPE_WORDS["issue" if self.issue > self.ii else self.work.usage.busiest()[0]]

    @property
    def bound(self) -> str:
        """What the kernel's time is limited by, in words.

        Power and loads limit a time to which they add more than another pipe as busy would, by the
        norm.
        """
        spent, alike = self.spent, 2.0 ** (1.0 / PIPE_NORM)
        if spent.l2 >= max(spent.sms, spent.memory):
            return "L2"
        if spent.memory > spent.sms:
            return "memory"
        if spent.sms > alike * (spent.sms - spent.power):
            return "power"
        if self.depth < self.law and self.step > alike * max(self.ii, self.issue):
            return "the latency of loads"
        return self.limiter

    @property
    def response(self) -> float:
        """R, cycles that a slot is in use: T + ((1 + in_flight) * CTAs + ahead + spread) * II."""
        steps = (1 + self.in_flight) * self.resident
        early = steps + self.work.fragments.ahead + self.work.loads.spread
        return self.load + early * self.ii

    @property
    def law(self) -> int:
        """The depth that hides R: ``ceil(R / (CTAs * II))``."""
        return math.ceil(self.response / (self.resident * self.ii)) if self.ii else 1


def predict(
    work: Work, machine: Machine, depth: Depth, in_flight: int | None = None
) -> Prediction | None:
    """Time of ``work`` with rings of ``depth`` slots; None: one CTA does not fit an SM.

    Where rings differ, the one that hides the least of its latency sets the step. Where a wgmma may
    stay in flight across steps it does if that saves time, or as ``in_flight`` says.
    """
    if in_flight is not None:
        return _predicted(work, machine, depth, min(in_flight, 1))
    plain = _predicted(work, machine, depth, 0)
    if plain is None or not _may_stay(work, machine, depth):
        return plain
    crossing = _predicted(work, machine, depth, 1)
    return crossing if crossing is not None and crossing.us < plain.us else plain


def _may_stay(work: Work, machine: Machine, depth: Depth) -> bool:
    """Whether a wgmma may stay in flight across steps: only where an SM has one CTA.

    With two CTAs the tensor cores do not wait for the barriers of one. One CTA is meant with
    ``OVERLAP_DEPTH`` slots too: more slots shall not be what drives the second away.
    """
    if not work.wgmma.crosses_steps or least(depth) < CROSS_STEP_DEPTH:
        return False
    registers, smem = work.registers_at(most(depth)), work.smem(OVERLAP_DEPTH)
    return occupancy(machine, work.threads.count, registers, smem).ctas == 1


def why_in_flight(found: Prediction, machine: Machine) -> Reason | None:
    """Why wgmma stays in flight across steps or does not; None where that is no question."""
    work, depth = found.work, found.depth
    if not work.wgmma.crosses_steps or depth < CROSS_STEP_DEPTH:
        return None
    if not _may_stay(work, machine, depth):
        return Reason("in_flight.ctas", slots=OVERLAP_DEPTH)
    other = _predicted(work, machine, depth, 1 - found.in_flight)
    code = "in_flight.one" if found.in_flight else "in_flight.none"
    return Reason(code, us=found.us, other_us=found.us if other is None else other.us)


def _predicted(work: Work, machine: Machine, depth: Depth, in_flight: int) -> Prediction | None:
    """``predict`` where wgmma of ``in_flight`` steps (0 or 1) stays in flight."""
    deepest = most(depth)
    smem, registers = work.smem(depth), work.registers_at(deepest)
    if smem > machine.smem_per_cta or registers > machine.max_registers_per_thread:
        return None
    fit = occupancy(machine, work.threads.count, registers, smem)
    if fit.ctas == 0:
        return None
    ctas, sms = work.grid.ctas, machine.sms_of(work.grid.cluster)
    rounds = fit.ctas if ctas is None else math.ceil(ctas / sms)
    resident = min(fit.ctas, rounds)
    trip = ASSUMED_TRIP if work.grid.trip is None else work.grid.trip
    if work.grid.most:  # no SM is done before the CTA that has most
        trip = max(trip, work.grid.most / rounds)

    busy, bubble = busy_and_bubble(work, machine, resident)
    latency: float = machine.global_latency + work.loads.handshake
    hidden = hidden_bubble(work, busy, bubble) if in_flight else 0.0
    shares = Shares(
        resident, rounds, trip, busy, bubble, hidden, _last(ctas, rounds, resident, sms)
    )
    slots = _free_slots(depth, in_flight)
    cycles, step, beside = on_sms(work, machine, slots, shares, latency)
    if work.loads.register_staged and work.traffic.memory_us:
        # One tile is in flight: the later memory answers, the longer each step.
        latency += loading(work, machine, cycles / (machine.clock_ghz * 1e3))
        cycles, step, beside = on_sms(work, machine, slots, shares, latency)
    unlimited = cycles / (machine.clock_ghz * 1e3)
    us = sms_us = power_limited_us(work, machine, unlimited, rounds * trip)
    running = sms * resident
    if ctas is not None and ctas < running:
        running = ctas
    shared = fit.ctas * (smem + machine.smem_reserved)
    at_most = in_flight_in_l1(machine, work.traffic.l1_lines, shared) / resident
    memory = memory_us(work, machine, running, slots, us, at_most)
    if memory:
        memory += tail_cycles(work, resident) / (machine.clock_ghz * 1e3)
        us = (us**OVERLAP_NORM + memory**OVERLAP_NORM) ** (1.0 / OVERLAP_NORM)
    l2 = l2_us(work, machine)
    start = machine.start_us + tensor_map_us(work, machine) + cluster_us(work)
    steps = sms_us * (1 - beside / cycles) if cycles else 0.0
    iterations = (rounds if ctas is None else ctas / sms) * trip
    arithmetic = iterations * work.usage.compute / (machine.clock_ghz * 1e3)
    return Prediction(
        deepest,
        resident,
        fit,
        latency,
        latency + work.usage.l2,
        step,
        start + max(us, l2),
        cycles,
        work,
        in_flight,
        TimeSpent(start, sms_us, steps, sms_us - unlimited, memory, l2, arithmetic),
        issue_cycles(work, machine, resident),
    )


def _last(ctas: int | None, rounds: int, resident: int, sms: int) -> float:
    """Fraction of ``sms`` that have a CTA of the last of several waves."""
    before = (math.ceil(rounds / resident) - 1) * resident * sms
    return min(1.0, (ctas - before) / sms) if ctas is not None and before else 1.0


def _free_slots(depth: Depth, in_flight: int) -> Depth:
    """Slots by which copies run ahead: those that a wgmma in flight still reads are not free."""
    if isinstance(depth, int):
        return depth - in_flight
    return {name: slots - in_flight for name, slots in depth.items()}
