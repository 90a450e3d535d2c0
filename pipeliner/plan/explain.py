"""A KernelPlan in plain words and numbers: what was decided and why, and what was left alone.

The text is deterministic: the same plan gives the same text, byte for byte.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from ..diagnostics import Why, each_of, joined
from .decisions import Decisions, LaunchPlan, SmemPlan, SyncPlan
from .loops import LoopPlan, RingPlan
from .tiles import CopyPlan, ElementwisePlan, MatmulPlan

WIDTH: Final = 100
SHOWN_STEADY: Final = 3
"""Steps of the steady state in the picture: enough to see that they repeat."""


def explain(plan: Decisions) -> str:
    """``plan`` as text of at most 100 columns: a section for each kind of decision."""
    sections = [
        _header(plan),
        *(_matmul(matmul) for matmul in plan.matmuls),
        _copies(plan.copies),
        _stores(plan),
        _roles(plan),
        *(_loop(loop) for loop in plan.loops if loop.pipelined),
        _elementwise(plan),
        _launch(plan.launch),
        _smem(plan.smem),
        _sync(plan.sync),
        _left_alone([loop for loop in plan.loops if not loop.pipelined]),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _header(plan: Decisions) -> list[str]:
    time = f", {plan.predicted}" if plan.predicted else ""
    state = "pipelined" if plan.pipelined else "not pipelined"
    gpu = f"{plan.machine} ({plan.target})"
    title = f"kernel {plan.kernel}: {state}, {plan.threads} threads a CTA on {gpu}{time}"
    return [*_wrapped(title, indent=0), *_reasons(plan.reasons)]


def _matmul(matmul: MatmulPlan) -> list[str]:
    tile = f"{matmul.m} x {matmul.n} x {matmul.k}"
    lines = [f"matmul {matmul.op}: {tile} of {matmul.dtype} as {matmul.instruction}"]
    owner = f"{_times(matmul.warps)} warps of {_times(matmul.warp_tile)}"
    if any(matmul.thread_tile):
        owner += f", threads of {_times(matmul.thread_tile)}"
    by = f", sums of {matmul.promoted} promoted" if matmul.promoted else ""
    lines.append(f"  {owner}, accumulated in {matmul.accumulator}{by}")
    lines.append(f"  {_count(matmul.steps, 'step')} of k = {matmul.k_step}")
    return [*lines, *_reasons((matmul.reason,))]


def _copies(copies: tuple[CopyPlan, ...]) -> list[str]:
    if not copies:
        return []
    rows: list[tuple[str, ...]] = [
        (copy.op, _times(copy.tile), copy.way, f"{copy.vector_bytes} bytes", copy.layout)
        for copy in copies
    ]
    lines = ["copies"]
    for copy, line in zip(copies, _table(rows), strict=True):
        lines.append(f"  {line}")
        lines.extend(_reasons((copy.reason,), indent=6))
    return lines


def _stores(plan: Decisions) -> list[str]:
    """How accumulators leave, where roles leave a choice."""
    if not plan.roles or not plan.stores:
        return []
    lines = ["stores"]
    for store in plan.stores:
        how = f"{store.mechanism}, added" if store.partial_sums else store.mechanism
        row = [store.op, f"{store.acc} -> {store.dst}", how]
        if store.slots:
            row += [f"boxes of {_times(store.box)}", _count(store.slots, "slot"), store.layout]
        lines.append("  " + "  ".join(row))
        lines.extend(_reasons((store.reason,), indent=6))
    return lines


def _roles(plan: Decisions) -> list[str]:
    """Who does what, and what passes between them."""
    if not plan.roles:
        return []
    lines = ["roles"]
    for role in plan.roles:
        last = role.first + role.threads - 1
        owned = f", {role.registers} registers each" if role.registers else ""
        ops = ", ".join(role.ops)
        lines += _wrapped(f"{role.name}: threads {role.first}-{last}{owned}: {ops}", indent=2)
        lines += _reasons((role.reason,), indent=6)
    if plan.cluster > 1:
        lines.append(f"  clusters of {plan.cluster} CTAs: each copies a part of what several need")
    for pair in plan.mbarriers:
        slots = f"{_count(pair.depth, 'slot')} of {', '.join(pair.rings)}"
        lines += _wrapped(
            f"mbarriers {'/'.join(filter(None, (pair.full, pair.empty)))}: "
            f"{pair.producer} -> {pair.consumer}, {slots}; {pair.bytes} bytes fill one, "
            f"{_count(pair.arrivals, 'arrival')} release it",
            indent=2,
        )
        lines += _reasons((pair.reason,), indent=6)
    return lines


def _elementwise(plan: Decisions) -> list[str]:
    """What is launched beside the kernel that the rest is about.

    Before it: what writes a tensor that it copies from, or what it adds to.
    """
    first = any(store.partial_sums for store in plan.stores)
    read = {copy.src for copy in plan.copies}
    before = [kernel for kernel in plan.elementwise if first or kernel.op in read]
    behind = [kernel for kernel in plan.elementwise if kernel not in before]
    return _beside("kernels before it", before) + _beside("kernels behind it", behind)


def _beside(where: str, kernels: Sequence[ElementwisePlan]) -> list[str]:
    lines = [where] if kernels else []
    for kernel in kernels:
        lines += _wrapped(
            f"{kernel.op}: {kernel.ctas} CTAs of {kernel.threads} threads, {kernel.elements} "
            f"outputs each, {kernel.vector} at once",
            indent=2,
        )
        lines += _reasons((kernel.reason,), indent=6)
    return lines


def _launch(launch: LaunchPlan) -> list[str]:
    """How kernels follow each other, where that is not one behind the other's end, or why it is."""
    if not launch.pdl and not launch.reason:
        return []
    lines = ["launch"]
    if not launch.pdl:
        return [
            *lines,
            *_wrapped("one behind the end of the other", indent=2),
            *_reasons((launch.reason,), indent=6),
        ]
    lines += _wrapped(
        "each kernel may start before the one that is before it in the stream ends, and waits for "
        "that end before it touches global memory",
        indent=2,
    )
    for number in launch.triggers:
        text = f"kernel {number}: the next one may start when the last loads are issued"
        lines += _wrapped(text, indent=2)
    return [*lines, *_reasons((launch.reason,), indent=6)]


def _loop(loop: LoopPlan) -> list[str]:
    stages = f"{_count(loop.stages, 'stage')}, {loop.epilogue} epilogue"
    lines = [f"loop {loop.name}: {loop.trip} iterations, {stages} ({_SOURCES[loop.source]})"]
    if loop.ii:
        bounds = f"ResMII {loop.res_mii}, RecMII {loop.rec_mii}"
        lines.append(f"  II = {loop.ii} cycles, set by {loop.limiter or 'nothing'} ({bounds})")
    if loop.unroll > 1:
        lines.append(f"  unrolled by {loop.unroll} so that register rings have constant indices")
    lines.extend(_reasons(loop.reasons))
    for ring in loop.rings:
        if ring.depth > 1 or ring.requested:
            lines.extend(_ring(ring, loop))
    lines.extend(_single(loop.rings))
    if loop.ii:
        lines += ["", *_schedule(loop), "", *_picture(loop)]
    return lines


def _ring(ring: RingPlan, loop: LoopPlan) -> list[str]:
    slots = f"{_count(ring.depth, 'slot')} of {ring.slot_bytes} bytes"
    total = ring.depth * ring.slot_bytes
    lines = [f"  ring {ring.buffer} ({ring.scope}): {slots} = {total}"]
    ends = [", ".join(names) for names in (ring.producers, ring.consumers) if names]
    if ends:
        lines.append(f"      {' -> '.join(ends)}")
    if ring.live_cycles:
        lines.append(f"      a slot is in use for {ring.live_cycles} cycles")
    # The rings of a loop usually share the loop's reasons, which stand above already.
    shown = tuple(part for part in each_of(ring.reason) if part not in loop.reasons)
    return [*lines, *_reasons(shown, indent=6)]


def _single(rings: tuple[RingPlan, ...]) -> list[str]:
    """Buffers that need one version only, by scope: each is free again before it is refilled."""
    lines = []
    for scope in sorted({ring.scope for ring in rings}):
        free = [
            ring for ring in rings if ring.scope == scope and ring.depth == 1 and not ring.requested
        ]
        if free:
            size = sum(ring.slot_bytes for ring in free)
            buffers = ", ".join(ring.buffer for ring in free)
            lines.extend(_wrapped(f"one version ({scope}, {size} bytes): {buffers}", indent=2))
    return lines


def _schedule(loop: LoopPlan) -> list[str]:
    """The ops in the order of one step of the steady state."""
    rows: list[tuple[str, ...]] = [("op", "stage", "cycle", "pipe", "latency", "occupancy")]
    for op in sorted(loop.ops, key=lambda op: op.order):
        numbers = (op.stage, op.cycle, op.pipe, op.latency, op.occupancy)
        rows.append((op.name, *(str(number) for number in numbers)))
    return ["  one step, in order:", *(f"    {line}" for line in _table(rows))]


def _picture(loop: LoopPlan) -> list[str]:
    """Which iteration each op works on at each step: rows are ops, columns are steps."""
    last = loop.stages - 1
    shown = last + SHOWN_STEADY
    if loop.trip.isdigit():
        shown = max(1, min(shown, int(loop.trip)))
    steps = range(shown + last)
    width = max(3, len(str(len(steps))) + 1)
    ops = sorted(loop.ops, key=lambda op: op.order)
    name = max((len(op.name) for op in ops), default=0)

    def row(title: str, cells: Iterable[str]) -> str:
        return f"    {title:<{name}} |" + "".join(f"{cell:>{width}}" for cell in cells)

    lines = [f"  iteration that each op works on, drawn for {_count(shown, 'iteration')}:"]
    lines.append(row("step", (str(step) for step in steps)))
    for op in ops:
        cells = (str(step - op.stage) if 0 <= step - op.stage < shown else "." for step in steps)
        lines.append(row(op.name, cells))
    lines.append(row("", (_phase(step, loop.ahead, shown) for step in steps)))
    lines.append("    P prologue, S steady state, E epilogue")
    return lines


def _phase(step: int, ahead: int, iterations: int) -> str:
    if step >= iterations:
        return "E"
    return "P" if step < ahead else "S"


def _smem(smem: SmemPlan) -> list[str]:
    if not smem.buffers:
        return []
    share = f" ({smem.bytes / smem.budget:.0%})" if smem.budget else ""
    lines = [f"shared memory: {smem.bytes} of {smem.budget} bytes{share}"]
    rows: list[tuple[str, ...]] = [("offset", "bytes", "align", "buffer")]
    rows += [
        (str(buf.offset), str(buf.bytes), str(buf.alignment), buf.buffer) for buf in smem.buffers
    ]
    table = _table(rows)
    lines.append(f"  {table[0]}")
    for buf, line in zip(smem.buffers, table[1:], strict=True):
        lines.append(f"  {line}")
        if buf.shares_with:
            lines.append(f"      shares its place with {', '.join(buf.shares_with)}")
        lines.extend(_reasons((buf.reason,), indent=6))
    return lines


def _sync(sync: SyncPlan) -> list[str]:
    if not (sync.barriers or sync.waits or sync.reasons):
        return []
    steady = f"{sync.barriers_in_steady} of them in the steady state"
    lines = [f"synchronisation: {_count(sync.barriers, 'barrier')}, {steady}"]
    if sync.waits:
        lines.append(f"  waits: {', '.join(_each(sync.waits))}")
    return [*lines, *_reasons(_each(sync.reasons))]


def _each(texts: Iterable[Why]) -> list[str]:
    """The different texts, each with how often it stands there."""
    counted = Counter(map(str, texts))
    return [text if times == 1 else f"{text}, {times} times" for text, times in counted.items()]


def _left_alone(loops: list[LoopPlan]) -> list[str]:
    if not loops:
        return []
    lines = ["loops left alone"]
    for loop in loops:
        lines.extend(_wrapped(f"{loop.name}: {joined(loop.reasons)}", indent=2))
    return lines


_SOURCES: Final = {
    "auto": "chosen",
    "request": "as requested",
    "annotation": "as annotated",
    "edited": "as edited",
}


def _reasons(reasons: Iterable[Why], indent: int = 2) -> list[str]:
    return [line for text in map(str, reasons) if text for line in _wrapped(f"- {text}", indent)]


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines with aligned columns: numbers to the right, words to the left."""
    columns = list(zip(*rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    numeric = [all(cell.isdigit() for cell in column[1:]) for column in columns]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _times(sizes: Iterable[int]) -> str:
    return "x".join(str(size) for size in sizes)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
