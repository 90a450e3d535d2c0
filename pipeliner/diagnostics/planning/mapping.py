"""Sentences about how a matmul maps to warps, threads and tensor cores, and why it does not."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "mapping.refused": "cannot map '{op}' to {instruction}: {why}",
    "mapping.none": "cannot map '{op}': {why}",
    "mapping.left_out": "'{op}' is not mapped: {why}",
    "mapping.as_other": "as '{op}' is not",
    "mapping.thread_tile": (
        "cannot map '{op}' to {instruction} with thread tile {tile:by}: the instruction fixes what "
        "a thread owns, only simt leaves it open"
    ),
    # What only wgmma does
    "mapping.roles": (
        "cannot give {groups:count warpgroup} of '{op}' a producer warp: only wgmma computes by "
        "warpgroup, {why}"
    ),
    "mapping.operand": "cannot load an operand of '{op}' to registers for wgmma: {why}",
    "mapping.promoted": "cannot promote sums of '{op}': only wgmma cuts them, {why}",
    "mapping.nothing_promoted": "cannot promote sums of '{op}': {why}",
    "mapping.needs_sm_90a": "that needs sm_90a, {machine} is {arch}",
    "mapping.ask": "ask for instruction 'wgmma'",
    # mma.sync and simt
    "mapping.exact": "float32 stays exact: tf32 keeps 10 bits of mantissa and must be asked for",
    "mapping.dtypes": "operands of {a_dtype} and {b_dtype} have no instruction",
    "mapping.no_mma": "{machine} ({arch}) has no mma.sync for {dtype} that is used here",
    "mapping.no_fp8": "{machine} ({arch}) has no {dtype}, which is of sm_89 on",
    "mapping.accumulator": "mma.sync of {dtype} does not accumulate in {accumulator}",
    "mapping.multiple": "tile {tile:by} is not a multiple of m{m}n{n}k{k}",
    "mapping.mma": (
        "{machine} runs it at {ops} operations a cycle and SM, against {fma} of the FMA pipe; warp "
        "tile {tile:by} takes about {registers} of {most} registers"
    ),
    "mapping.unused_tcgen05": (
        "{why}; {arch} has no wgmma, which is of sm_90a alone, and no plan uses its tcgen05"
    ),
    "mapping.no_warpgroups": (
        "{why}; {arch} has neither wgmma, which is of sm_90a alone, nor tcgen05, which is of "
        "sm_100 to sm_110"
    ),
    "mapping.simt": (
        "a thread owns {tile:by}: {macs} multiply-adds for {operands} operands, about {registers} "
        "of {most} registers"
    ),
    "mapping.mma_split": (
        "tile {tile:by} does not split into warps of m{m}n{n}k{k} with at most {registers} "
        "registers"
    ),
    "mapping.simt_split": (
        "tile {tile:by} does not split into warps of {lanes} equal thread tiles with at most "
        "{registers} registers"
    ),
    "mapping.with_asked": "{why} (asked for: {asked:list})",
    "mapping.asked_warps": "{warps:by} warps",
    "mapping.asked_thread_tile": "thread tile {tile:by}",
    "mapping.asked_threads": "{threads} threads",
    "mapping.asked_warpgroups": "{groups:count warpgroup}",
    # wgmma
    "wgmma.machine": "wgmma needs sm_90a, {machine} is {arch}",
    "wgmma.dtype": "wgmma of {dtype} is not used here",
    "wgmma.accumulator": "wgmma of {dtype} into {accumulator} is not used here",
    "wgmma.stationary": (
        "'{operand}' holds tiles of other iterations too, but descriptors know one"
    ),
    "wgmma.same_sides": (
        "both its sides are '{operand}', which its descriptors would want in two layouts"
    ),
    "wgmma.mixed_shared": (
        "operands of {a_dtype} and {b_dtype} are not multiplied in shared memory"
    ),
    "wgmma.nothing_to_promote": (
        "sums of products of {dtype} are not cut, there is nothing to promote"
    ),
    "wgmma.columns": "{columns} columns are no multiple of {multiple}",
    "wgmma.k_outermost": "operands of {dtype} must lie with K innermost in shared memory",
    "wgmma.k_outermost_but": (
        "operands of {dtype} must lie with K innermost in shared memory, only '{operand}' goes "
        "through registers"
    ),
    "wgmma.row": "rows of '{buffer}' have {nbytes} bytes, no multiple of {multiple}",
    "wgmma.column_block": (
        "where K lies outermost, the {columns} columns of a warpgroup are no multiple of the "
        "{multiple} of a column block"
    ),
    "wgmma.split": (
        "tile {tile:by} does not split into 1 to {groups} warpgroups of {rows} rows and at most "
        "{columns} columns whose accumulators fit their registers"
    ),
    "wgmma.split_ping_pong": (
        "tile {tile:by} for each of {groups} groups alone does not split into warpgroups of {rows} "
        "rows and at most {columns} columns whose accumulators fit their registers, {registers} a "
        "thread"
    ),
    "wgmma.swap_ab_refused": "with swap A/B, as {why}: {found}",
    "wgmma.swap_ab": "swap A/B (its rows run along N), as {why}",
    "wgmma.warps_asked": "{warps:by} warps are asked for",
    "wgmma.converts": ("'{operand}' is converted in registers, which hold the first operand alone"),
    "wgmma.rows": "{rows} rows are no multiple of {multiple}",
    "wgmma.second_transposed": (
        "'{operand}' lies with K outermost and registers hold the first operand alone"
    ),
    "wgmma.rate": "{machine} runs it at {ops} operations a cycle and SM",
    "wgmma.shared_operands": "operands straight from shared memory",
    "wgmma.register_operand": (
        "the first operand of each step from {registers} registers a thread, {why:list}"
    ),
    "wgmma.as_asked": "as asked for",
    "wgmma.computed_there": "where it is computed",
    "wgmma.computed": (
        "'{operand}' is computed in registers, from where wgmma reads its first operand alone, in "
        "the second's type"
    ),
    "wgmma.converted": "converted on its way from {source} to {dtype}",
    "wgmma.transposed": "transposed on its way, as '{operand}' lies with K outermost",
    "wgmma.accumulators": (
        "{groups:count warpgroup} of {registers} accumulator registers a thread"
    ),
    "wgmma.beside": "beside {registers} of other matmuls",
    "wgmma.promoted": (
        "threads add the sum of each {k} products to them, as asked for, in float32"
    ),
}
