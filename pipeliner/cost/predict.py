"""Time of a pipelined loop in closed form: the one model behind every choice and every number.

    T     = latency of a tile's load + its arrival, from issue to the last byte
    alone = T + busy + first + bubble                                              depth 1
    alone = max(busy + bubble,  (T + (late + ahead) * busy + bubble) / (depth - 1))  reading ahead
    alone = max(busy + bubble + first,  (T + late * busy + bubble) / (depth - 1))    not doing so
    alone = max(alone, serial + bubble)            wgmma by the warps that copy, with two slots
    alone = max(alone, beside + bubble)                                        and with more
    depth - 2, bubble - hidden, 1.5 T   for depth - 1, bubble and T: a wgmma stays in flight
    step  = norm(busy, alone / CTAs)                           several CTAs that take turns
    time  = rounds * ((trip - 1) * step + a step that waits for nothing + tiles * stray)
            + (1 + (waves - 1) / CTAs) * (held + entries * (first load + drain)
                                          + (tiles - entries) * between)

A step is one iteration of one CTA; ``alone``, of a CTA that has the SM for itself. Its copy is
issued when the slot is free and waited for ``depth - 1`` iterations later; it stalls once in each,
so that what it does of an iteration behind the wait or before the issue adds to T. With one slot,
everything takes turns. Several CTAs fill each other's stalls as far as pipes allow: a step is
neither shorter than the pipes' cycles nor than what one CTA's own ring needs for it, shared by all
of them. So warps that the hardware switches to and slots of a ring hide the same T together, and
neither counts in full beside the other.

``II`` is the busiest pipe's cycles for an iteration; ``busy`` is a little more, for pipes that are
nearly as busy get in each other's way, and so do warps. ``ahead`` is the part of an iteration by
which fragments of the next tile are read early, so that its load must have landed early; without
it, ``first``, the reading of a tile's first fragments, is exposed. ``late`` is the part of an
iteration after which the last of its copies is issued, where they are spread. ``bubble`` is what a
barrier and its restart cost that no other CTA fills; with one slot there are two barriers;
``hidden`` is as much of it as passes while tensor cores still work on the step before.
``held`` is the arrival of what is copied before the loop and stays; ``entries``: a loop that fills
and drains its rings for each tile of a persistent grid does so as often; one that does not has the
results of a tile ``between`` it and the next, and what the next has to wait for; where teams take
tiles by turns, that runs under the steps of the others. CTAs of one SM fall out of step: after the
first wave one's filling and draining runs under the steps of the others. Loads that wait in
registers are of one tile, whatever the depth, and their T grows with what else memory delivers
meanwhile. A lone warp fetches the instructions of a long step
anew each time (``LONG_BODY``). What is copied by way of L1 waits for lines of it, see ``l1``. A
small last wave may find CTAs of an SM ended together, and share it (``PACKED``). What memory takes
beside all that, see ``memory``; it idles between CTAs that an SM has one by one (``REFILLING``).

``R = T + (1 + ahead + late) * CTAs * II`` is how long a slot is in use, and
``depth = ceil(R / (CTAs * II))`` the least depth at which no step waits for its load: Little's law
for a ring's slots.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, NamedTuple

from ..machine import WARP, Machine
from .descriptor import Depth, Work, least, most
from .l1 import waiting
from .memory import loading, memory_us
from .occupancy import PARTITIONS, Occupancy, occupancy
from .steps import BESIDE_SLOTS, Shares, on_sms
from .usage import PIPE_WORDS

UNKNOWN_TRIP: Final = 64
"""Iterations assumed where the trip count is symbolic: enough for the steady state to count."""

RESTART: Final = 100
"""Cycles behind a barrier in which warps issue copies and addresses and do no arithmetic, and as
many in which other CTAs do. Fitted to nine workloads of the log of an H100, with what an SM gets
from L2; 75 to 130 choose as well among 111 tiles of 11 layers measured apart."""

LONE_WARP: Final = 100
"""Cycles of a step that a scheduler with a single warp idles: nothing else issues while that waits
for its operands. Measured on an H100 with one CTA of 128 threads an SM and fp32 products (1024
along K, three slots): 129 cycles beyond what this model says otherwise with 64 x 64 x 8, 127 with
128 x 128 x 8, 49 with 128 x 64 x 8; none with two CTAs."""

LONG_BODY: Final = 32 * 1024
"""Bytes of instructions of a step that a lone warp finds again an iteration later. Measured on an
H100 as ``LONE_WARP``, 128 x 128: steps of 8 and 12 along K, 18 and 27 KB, take 1.4 times what their
instructions do, of 16 and 24, 35 and 53 KB, 2.0 and 2.6 times."""

FETCHED: Final = 8
"""Bytes of instructions that it gets in a cycle otherwise: half of one."""

INSTRUCTION_BYTES: Final = 16
"""Of an instruction, since Volta (NVIDIA, CUDA binary utilities)."""

FIRST_TOUCH: Final = 0.4
"""Of the steps of all waves but the first, those that wait for memory: the first wave reads what
nobody has read, later ones find most of it in L2. Measured on an H100 as ``TURNS``: loads take 450
cycles, and 670 in a kernel of one wave."""

LONG_US: Final = 300
"""From which on warpgroups multiply at the clock that their power leaves: 700 W of an H100 are not
reached at once. 8192 x 8192 x 1024 takes 183 us and what cycles say; 4096 cubed, 178."""

POWERED: Final = 0.71
"""Of the tensor cores' rate, what 700 W of an H100 sustain with normal numbers: 8192 cubed in 1570
us, 700 TFLOP/s of 989, by turns at 1346 MHz and shared at 1224. The SMs need 9 % fewer cycles where
warpgroups share each tile, at a clock that is as much lower: it is power that takes the time."""

SPARED: Final = 0.97
"""Of that power, what teams need that take turns. Measured on an H100, kernels apart, time by turns
over that of the best tile that is shared: 0.965 to 0.985 at 8192 cubed, 0.966 at 4096 x 14336 x
4096, 0.96 at 8192 x 8192 x 2048, 1.03 at 4096 x 4096 x 14336; predicted are 0.97, 0.97, 0.96 and
1.11. Kernels behind one another for 0.6 s took as long either way at 8192 cubed."""

CONTENTION: Final = 8.0
"""Exponent of the norm that combines pipes: 8 gives what two tiles of an mma.sync GEMM took on an
H100, 128x256x64 (474 thousand cycles at 4096 cubed) and 128x128x64 (495 thousand)."""

BESIDE: Final = 4.5
"""Exponent of the norm of what SMs take and what memory takes, which runs beside it. The nine
workloads that are fitted do not tell 4 and 5 apart; 147 kernels by way of registers, of 20 products
and layers that no log has, are predicted within 13 % (root of the mean square) with 4 and 15 % with
5, weights that are converted 16 and 14 % too slow at most."""

LAGGING_SLOTS: Final = 4
"""From which on one wgmma may stay in flight across steps: copies run a slot less ahead, have two
steps to land still, and tensor cores do not wait for barriers. Measured on an H100 with
four slots, without and with: 4096 cubed 201.2 and 193.5 us by 128 x 256 x 64, 210.7 and 195.7 by
256 x 128 x 64, 260.8 and 247.9 by 192 x 128 x 64; 4096 x 14336 x 4096 713 and 679; a 3 x 3
convolution by 256 x 128 x 64 124.7 and 118.4."""

LAGGING: Final = 1.5
"""Of T, when the last bytes of the last of loads have landed: beside copies that are waited for a
slot earlier. Fitted to the half of the log of an H100 that may be fitted to, recorded both ways."""

REFILLING: Final = 0.5
"""Of the time in which memory takes a tile, that in which its SM asks for nothing, between
two CTAs that it has one by one. Measured on an H100, rn50_1x1_56, all of which memory bounds: 392
CTAs of 256 x 64, one an SM, take 32.1 us and walked by 132 of them 30.5; 523 of 192 x 64 take 33.6
us one by one and 31.4 two by two."""


class Prediction(NamedTuple):
    """What ``predict`` computed, in cycles unless named otherwise. See the module's formulas.

    ``load``: T, of which ``latency`` passes before the first bytes arrive. ``iterations``: of one
    SM, on average. ``in_flight``: steps whose arithmetic may still run when the next one's starts.
    """

    depth: int
    resident: int
    occupancy: Occupancy
    latency: float
    load: float
    step: float
    us: float
    cycles: float
    iterations: float
    work: Work
    in_flight: int = 0

    @property
    def ii(self) -> float:
        """Cycles of the busiest pipe for an iteration."""
        return self.work.usage.busiest()[1]

    @property
    def limiter(self) -> str:
        """The busiest pipe, in words."""
        return PIPE_WORDS[self.work.usage.busiest()[0]]

    @property
    def response(self) -> float:
        """R, how long a slot is in use."""
        turns = (1 + self.in_flight) * self.resident
        return self.load + (turns + self.work.ahead + self.work.late) * self.ii

    @property
    def law(self) -> int:
        """The depth that hides R: ``ceil(R / (CTAs * II))``."""
        return math.ceil(self.response / (self.resident * self.ii)) if self.ii else 1

    @property
    def roofline(self) -> float:
        """Share of the time that arithmetic alone would take."""
        return self.iterations * self.work.usage.compute / self.cycles


def predict(
    work: Work, machine: Machine, depth: Depth, in_flight: int | None = None
) -> Prediction | None:
    """Time of ``work`` with rings of ``depth`` slots; None when one CTA does not fit an SM.

    Where rings differ, the one that hides the least of what it waits for sets the step. Where wgmma
    may stay in flight across steps, it does if that saves time, or as ``in_flight`` says.
    """
    if in_flight is not None:
        return _predicted(work, machine, depth, min(in_flight, 1))
    plain = _predicted(work, machine, depth, 0)
    if plain is None or not _may_stay(work, machine, depth):
        return plain
    lagging = _predicted(work, machine, depth, 1)
    return lagging if lagging is not None and lagging.us < plain.us else plain


def _may_stay(work: Work, machine: Machine, depth: Depth) -> bool:
    """Whether one wgmma may stay in flight: an SM has one CTA, with fewer slots too.

    Where it has two, tensor cores do not wait for the barriers of one.
    """
    if not work.runs_on or least(depth) < LAGGING_SLOTS:
        return False
    registers, smem = work.registers_at(most(depth)), work.smem(BESIDE_SLOTS)
    return occupancy(machine, work.threads, registers, smem).ctas == 1


def why_in_flight(found: Prediction, machine: Machine) -> str:
    """Why wgmma stays in flight across steps or does not; empty where that is no question."""
    work, depth = found.work, found.depth
    if not work.runs_on or depth < LAGGING_SLOTS:
        return ""
    if not _may_stay(work, machine, depth):
        return (
            f"each step waits for its wgmma: with {BESIDE_SLOTS} slots an SM has more CTAs than one"
        )
    other = _predicted(work, machine, depth, 1 - found.in_flight)
    us = f"{found.us:.1f} us, {found.us if other is None else other.us:.1f}"
    if found.in_flight:
        return f"one wgmma stays in flight across steps: {us} where each step waits for its own"
    return f"each step waits for its wgmma: {us} with one in flight, copies a slot less ahead"


def _predicted(work: Work, machine: Machine, depth: Depth, in_flight: int) -> Prediction | None:
    """The same where wgmma of ``in_flight`` steps stays in flight when the next one starts."""
    deepest = most(depth)
    smem, registers = work.smem(depth), work.registers_at(deepest)
    if smem > machine.smem_per_cta or registers > machine.max_registers_per_thread:
        return None
    fit = occupancy(machine, work.threads, registers, smem)
    if fit.ctas == 0:
        return None
    rounds = fit.ctas if work.ctas is None else math.ceil(work.ctas / machine.sms)
    resident = min(fit.ctas, rounds)
    waves = math.ceil(rounds / resident)
    trip = UNKNOWN_TRIP if work.trip is None else work.trip

    usage = work.usage
    lined = waiting(machine, work.lines, resident * (smem + machine.smem_reserved))
    busy = usage.norm(CONTENTION) + lined
    bubble = 0.0
    if work.synchronised:
        busy += RESTART
        bubble = machine.barrier_cycles + machine.shared_latency + RESTART
        if work.by_registers:  # what has arrived is stored before the barrier
            bubble += work.slot_bytes / machine.smem_bytes_per_cycle + machine.shared_latency
        if usage.fma and resident * work.threads <= PARTITIONS * WARP:
            busy = max(busy + LONE_WARP, _fetching(work, machine))
    latency = _latency(work, machine, waves)
    hidden, late = (_hidden(work, busy, bubble, lined), LAGGING) if in_flight else (0.0, 1.0)
    shares = Shares(resident, rounds, trip, busy, bubble, lined, hidden, late)
    slots = _nearer(depth, in_flight)
    cycles, step = on_sms(work, machine, slots, shares, latency)
    if work.by_registers and work.delivered:
        # Loads that wait in registers are few: the later memory answers, the longer each step.
        latency += loading(work, machine, cycles / (machine.clock_ghz * 1e3))
        cycles, step = on_sms(work, machine, slots, shares, latency)
    us = cycles / (machine.clock_ghz * 1e3)
    if work.tensor and us > LONG_US:
        power = rounds * trip * work.tensor / POWERED / (machine.clock_ghz * 1e3)
        power *= SPARED if work.teams > 1 else 1.0
        us = (us**CONTENTION + power**CONTENTION) ** (1.0 / CONTENTION)
    running = machine.sms * resident
    if work.ctas is not None and work.ctas < running:
        running = work.ctas
    memory = memory_us(work, machine, running, slots, us)
    if memory:
        stored = work.store_bytes / machine.dram_bytes_per_cycle / (machine.clock_ghz * 1e3)
        memory += REFILLING * (waves - 1) / resident * stored
    return Prediction(
        deepest,
        resident,
        fit,
        latency,
        latency + usage.l2,
        step,
        (us**BESIDE + memory**BESIDE) ** (1.0 / BESIDE) if memory else us,
        cycles,
        (rounds if work.ctas is None else work.ctas / machine.sms) * trip,
        work,
        in_flight,
    )


def _nearer(depth: Depth, in_flight: int) -> Depth:
    """Slots that copies run ahead by: those that wgmma in flight still reads are not free."""
    if isinstance(depth, int):
        return depth - in_flight
    return {name: slots - in_flight for name, slots in depth.items()}


def _hidden(work: Work, busy: float, bubble: float, lined: float) -> float:
    """Of ``bubble``, what passes while tensor cores work on and would wait for nothing else."""
    other = replace(work.usage, tensor=0.0).norm(CONTENTION) + lined + RESTART
    return min(bubble, max(0.0, busy - other))


def _fetching(work: Work, machine: Machine) -> float:
    """Cycles in which a lone warp gets the instructions of a step; 0 where it has them still."""
    instructions = work.usage.issue * machine.issue_per_cycle * WARP / work.threads
    body = instructions * INSTRUCTION_BYTES
    return body / FETCHED if body > LONG_BODY else 0.0


def _latency(work: Work, machine: Machine, waves: int) -> float:
    """Cycles until the first bytes of a load arrive, as a mean over all steps of all waves."""
    cold = 1.0 if work.streams else FIRST_TOUCH + (1 - FIRST_TOUCH) / waves
    near, far = machine.l2_latency, machine.global_latency
    return (near + cold * (far - near) if near < far else far) + work.passing
