"""Sentences about blocks that are given to threads: on instructions, in registers, in pieces."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Blocks
    "block.unmapped": "cannot map block '{block}': {why}",
    "block.omitted": "the plan omits it",
    "block.to_registers": "cannot map block '{block}' to registers: {why}",
    "block.to_role": "cannot map block '{block}' to the threads of a role: {why}",
    "registers.decides": "'{buffer}' decides where it stores",
    "registers.places": "it touches '{buffer}' at several places at once",
    "registers.index": "index {index}",
    "registers.unlike": (
        "it combines the register tiles {buffers:quoted}, which are spread over threads and "
        "registers in different ways"
    ),
    "registers.order": "what it makes of the rows in '{buffer}' depends on their order",
    "registers.row": "several warps have elements of each row of '{buffer}'",
    "registers.columns_in_step": (
        "threads have parts of the columns in '{buffer}', which they cannot put together in each "
        "step of a loop"
    ),
    "registers.apart": (
        "it combines elements of the register tiles {buffers:quoted} that are not in the same "
        "register of one thread"
    ),
    # What is not as fast as it could be
    "mapped.through_shared": "'{block}' reads register tiles through shared memory: {why}",
    "mapped.in_parts": (
        "{threads} threads make a part of each element of '{buffer}' in '{block}': it stores "
        "{elements}"
    ),
    "mapped.along": "'{block}' is shared out along {axes:quoted} alone: {why}",
    "mapped.by_one": "'{block}' is one thread's: {why}",
    "mapped.call": "one thread makes the call {call}: nothing says that others may",
    "mapped.beside": (
        "{threads} threads of each CTA share {blocks:quoted}, a kernel of its own beside the "
        "loops; its time is not predicted"
    ),
    "mapped.loop": "one thread runs {loop}: {why}",
    "mapped.loop_over": "the loop over '{var}'",
    "mapped.a_loop": "a loop",
    "mapped.workspace": (
        "'{buffer}' lies in global memory, a part for each CTA: it has {nbytes} bytes, of "
        "{budget} of shared memory"
    ),
    "mapped.shared": "'{buffer}' lies in shared memory: no matmul spreads it over registers",
    # Matmuls
    "matmul.unknown": "cannot map op '{matmul}': the kernel has no such matmul",
    "matmul.instruction": (
        "cannot map op '{matmul}': expected an instruction such as {example}, not '{instruction}'"
    ),
    "matmul.layouts": "cannot map the matmuls on '{buffer}': they need it in two layouts",
    "matmul.unmapped": "cannot map op '{matmul}' to {instruction}: {why}",
    "matmul.pointed": ("a view or a pointer reaches '{buffer}', which would not lie row by row"),
    "matmul.spread": "an earlier matmul spreads '{buffer}' over the threads in another way",
    "matmul.multiples": (
        "{dimension} of the tile is {extent}, the plan covers {covered} in pieces of {part}, "
        "expected multiples of {unit}"
    ),
    "matmul.covered": "{dimension} of the tile is {extent}, the plan covers {covered}",
    "matmul.lanes": (
        "warp tile ({warp_tile:list}) holds {lanes} thread tiles ({thread_tile:list}), expected 32"
    ),
    "matmul.dtype": "'{buffer}' holds {dtype}",
    "matmul.dtypes": "'{buffer}' holds {dtype}, '{accumulator}' {sums}",
    "matmul.converted": "'{buffer}' holds {dtype}, which is converted in registers alone",
    "matmul.tile": (
        "the tile has M, N, K of {tile:list}, the plan covers {covered:list} by ({warps:list}) "
        "warps of ({warp_tile:list})"
    ),
    "matmul.threads": "{threads} threads compute, the plan has ({warps:list}) warps",
    "matmul.transposed": (
        "the plan transposes '{buffer}', {dtype} with K {lies} read from {operand}"
    ),
    "matmul.not_transposed": (
        "the plan does not transpose '{buffer}', {dtype} with K {lies} read from {operand}"
    ),
    "matmul.target": "cannot use wgmma for {arch}: it needs {needed}, which the same GPU runs",
}
