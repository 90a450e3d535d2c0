"""Read what was made: a kernel at each level, the loop in its CUDA, its instructions."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

EMIT: Final = ("tir", "plan", "cuda", "ptx", "sass", "resources")
"""What ``emit`` can show of a kernel."""

ANNOTATED: Final = ("cuda", "ptx", "sass")
"""What of it can be shown with its ops and stages."""

SUFFIXES: Final = {
    "tir": "tir.py",
    "plan": "plan.txt",
    "cuda": "cu",
    "ptx": "ptx",
    "sass": "sass",
    "resources": "resources.txt",
}

INSTRUCTIONS: Final = {
    "copies to shared memory, asynchronous": (r"\bcp\.async\.c[ag]\.", r"\bLDGSTS\b"),
    "loads from global memory": (r"\bld\.global\b", r"\bLDG\b"),
    "stores to shared memory": (r"\bst\.shared\b", r"\bSTS\b"),
    "loads from shared memory": (r"\bld\.shared\b", r"\bLDS\b"),
    "matrix loads from shared memory": (r"\bldmatrix\b", r"\bLDSM\b"),
    "tensor core instructions": (r"\bmma\.sync\b", r"\b[HI]MMA\b"),
    "fp32 multiply-adds": (r"\bfma\.rn\.f32\b|\bfma\.rn\.ftz\.f32\b", r"\bFFMA\b"),
    "barriers": (r"\bbar\.sync\b|\bbarrier\.sync\b", r"\bBAR\.SYNC\b"),
    "waits for asynchronous copies": (r"\bcp\.async\.wait_group\b", r"\bLDGDEPBAR\b|\bDEPBAR\b"),
    "local memory accesses": (r"\b(?:ld|st)\.local\b", r"\b(?:LDL|STL)\b"),
}
"""What is counted in PTX and in SASS, by its name in plain words."""

MOST_LINES: Final = 60
WIDTH: Final = 110

_ADDRESS: Final = re.compile(r"\s*int cse_v\d+ = ")
_HELPER: Final = re.compile(r"(\s*)tvm_builtin_(?:ptx_|cuda_)?(\w+)\((.*)\);$")


def emit(kernel: Any, kind: str, *, annotate: bool = False) -> str:
    """One view of a kernel as text; ``kind`` is one of ``EMIT``, else ValueError.

    ``annotate``: CUDA, PTX and SASS with the origin of each line before it; ``ANNOTATED`` has them.
    """
    if annotate and kind in ANNOTATED:
        return str(getattr(kernel, f"annotated_{kind}"))
    if kind == "tir":
        return str(kernel.function.script())
    if kind == "plan":
        return str(kernel.plan.explain())
    if kind == "cuda":
        return str(kernel.cuda)
    if kind == "ptx":
        return str(kernel.ptx)
    if kind == "sass":
        return str(kernel.sass)
    if kind == "resources":
        return "\n".join(resource_lines(kernel))
    raise ValueError(f"expected one of {', '.join(EMIT)}, not {kind!r}")


def resource_lines(kernel: Any) -> list[str]:
    """What ptxas reports of a kernel, in words."""
    lines = []
    for used in kernel.all_resources:
        lines.append(f"{used.kernel} ({kernel.arch})")
        lines.append(f"  registers a thread     {used.registers}")
        lines.append(f"  spilled                {used.spills} bytes")
        lines.append(f"  stack frame            {used.stack} bytes")
        lines.append(
            f"  shared memory a CTA    {used.shared} bytes ({used.dynamic_shared} dynamic)"
        )
        if used.wgmma_warning:
            lines.append(f"  wgmma                  {used.wgmma_warning}")
    return lines


def instruction_counts(text: str) -> dict[str, int]:
    """How often each kind of instruction stands in PTX or SASS, kinds that occur only."""
    column = 0 if re.search(r"^\s*\.version\b", text, re.MULTILINE) else 1
    counts = {
        name: sum(1 for line in text.splitlines() if re.search(patterns[column], line))
        for name, patterns in INSTRUCTIONS.items()
    }
    return {name: count for name, count in counts.items() if count}


def kernel_source(cuda: str) -> str:
    """The kernels of a CUDA source without the helpers that TVM prints before them."""
    definition = re.compile(r'^extern "C" __global__[^;{]*\{', re.MULTILINE)
    found = definition.search(cuda)
    return cuda if found is None else cuda[found.start() :]


def find_loop(source: str, variable: str) -> str | None:
    """The longest ``for`` loop over ``variable`` in CUDA source; None: there is none."""
    heads = re.finditer(
        rf"^([ ]*)for \(int {re.escape(variable)}\w* = .*\{{$", source, re.MULTILINE
    )
    loops = [source[head.start() : _closing(source, head.end())] for head in heads]
    return textwrap.dedent(max(loops, key=len)) if loops else None


def condense(code: str, most: int = MOST_LINES, width: int = WIDTH) -> str:
    """CUDA for reading: what happens in which order, without the addresses.

    Address arithmetic is left out, TVM's helpers are called by their instruction with the buffers
    they touch, and lines that differ in numbers alone are counted. It no longer compiles.
    """
    lines = [_shorten(line) for line in code.splitlines() if not _ADDRESS.match(line)]
    out: list[str] = []
    for alike in _alike(line for line in lines if line.strip()):
        line = alike[0] if len(alike[0]) <= width else f"{alike[0][: width - 4]} ..."
        out.append(line if len(alike) == 1 else f"{line}  // x {len(alike)}")
    if len(out) > most:
        half = most // 2
        out[half : len(out) - half] = [f"  // ... {len(out) - 2 * half} lines like these ..."]
    return "\n".join(out)


def _shorten(line: str) -> str:
    """A call of a TVM helper as the instruction and the buffers; any other line as it is."""
    call = _HELPER.match(line)
    if call is None:
        return line
    indent, name, arguments = call.groups()
    name = re.sub(r"cp_async_(\w+?)_async_\1", r"cp_async_\1", name)
    buffers = dict.fromkeys(re.findall(r"\b([A-Za-z]\w*)_ptr\b", arguments))
    return f"{indent}{name}({', '.join(buffers)});"


def _alike(lines: Iterable[str]) -> Iterator[list[str]]:
    """Neighbouring statements grouped by what remains when their numbers are taken out."""
    for shape, group in itertools.groupby(lines, key=lambda line: re.sub(r"\d+", "#", line)):
        found = list(group)
        if shape.strip().endswith(";"):
            yield found
        else:
            yield from ([line] for line in found)


def _closing(source: str, start: int) -> int:
    """The position after the brace that closes the one that opens just before ``start``."""
    depth = 1
    for match in re.finditer(r"[{}]", source[start:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return start + match.end()
    return len(source)
