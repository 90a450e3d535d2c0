"""Sentences about copies and stores: mechanisms, vectors, layouts, caches, and TMA's boxes."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Mechanisms
    "mechanism.refused": "cannot copy '{copy}' by {mechanism}: {why}",
    "mechanism.for_wgmma": (
        "cannot copy '{copy}' for wgmma: by tma, {tma}; by cp_async, {cp_async}"
    ),
    "mechanism.not_asked": "not asked for",
    "mechanism.into_registers": "a load into registers is early enough by itself",
    "mechanism.no_reader": "only wgmma and mma.sync read what it copies, neither reads this tile",
    "mechanism.by_words": (
        "'{op}' reads it in words, in whose pattern its swizzle has bank conflicts: ldmatrix "
        "transposes elements of 2 bytes, these have {nbytes}"
    ),
    "mechanism.by_vectors": (
        "threads of '{op}' read vectors, in whose pattern its swizzle has bank conflicts: only "
        "wgmma and ldmatrix read 8 rows of 16 bytes"
    ),
    "mechanism.read_by_wgmma": "wgmma reads what is copied for it",
    "mechanism.no_producer": "a producer warp must issue it, none is asked for",
    "mechanism.asynchronous": "asynchronous, past the registers",
    "mechanism.zero_filled": "zero-filled past the source's end",
    "mechanism.as_written": "as it is written: {why}; in registers, {register}",
    "mechanism.staged": "register-staged: {why}",
    "mechanism.staged_alone": "register-staged: its loop is not pipelined",
    "mechanism.no_box": "no box for TMA: {why}",
    "mechanism.as_other": "as '{copy}', which is no box for TMA",
    "mechanism.multicast": "each of {cluster} CTAs copies a part and multicasts it to all",
    "mechanism.multicast_part": "each of {ctas} CTAs of a cluster of {cluster} copies a part and "
    "multicasts it to them",
    "cp_async.machine": "cp.async needs sm_80, {machine} is {arch}",
    "cp_async.scope": "cp.async writes shared memory, '{buffer}' is in {scope}",
    "cp_async.vector": ("cp.async moves 4, 8 or 16 bytes, here only {nbytes} are provably aligned"),
    # Vectors
    "vector.planned": "{nbytes} bytes at once, as the plan says",
    "vector.widest": "{nbytes} bytes at once",
    "vector.scattered": (
        "{nbytes} bytes at once: the source is not contiguous along the tile's rows"
    ),
    "vector.bfloat16": "{nbytes} bytes at once: {arch} holds bfloat16 as float32",
    "vector.aligned": "{nbytes} bytes at once: row starts are aligned to {aligned} bytes",
    "vector.row": "{nbytes} bytes at once: a row of the tile has {row} bytes",
    "vector.chunks": "{chunks} chunks, spread over the k-steps: {nbytes}-byte copies are many",
    # Caches
    "cache.l1": "through L1: rows start every {aligned} bytes, inside sectors of {sector}",
    "eviction.once": "evict-first in L2: the grid reads its {megabytes:.0f} MB once",
    "eviction.one_wave": (
        "evict-first in L2: the grid reads its {megabytes:.0f} MB {times:.0f} times in one wave"
    ),
    "eviction.too_large": (
        "not evict-first in L2, though nothing reads its {megabytes:.0f} MB again: of more than "
        "{most} times L2, they drive out what another kernel left there all the same"
    ),
    "eviction.refused": (
        "cannot evict first what '{copy}' copies: {mechanism} takes no cache policy, {expected} "
        "does"
    ),
    # Layouts in shared memory
    "layout.both_sides": "both operands of '{op}' are this tile",
    "layout.patterns": "{readers} matmuls read it, each in a pattern of its own",
    "layout.rotated": (
        "odd rows are rotated by a chunk: rows lie {stride} bytes apart, every other one begins "
        "inside a sector of {sector}, whose halves are one read where they stay together; ldmatrix "
        "reads 8 rows of 16 bytes without bank conflicts"
    ),
    "layout.ldmatrix": "ldmatrix reads 8 rows of 16 bytes without bank conflicts",
    "layout.lanes": "lanes read K of neighbouring rows without bank conflicts",
    "layout.columns": "neighbouring threads write one column of it without bank conflicts",
    "layout.padded": (
        "neighbouring threads write one column of it without bank conflicts, and every address is "
        "a base and a constant"
    ),
    "layout.neighbours": "lanes read neighbouring words",
    "layout.boxes": "TMA fills it in swizzled boxes",
    "layout.descriptor": "wgmma reads it by descriptor, 8 rows without bank conflicts",
    "layout.short": "a row of {nbytes} bytes is too short to swizzle",
    # Boxes of the tensor memory accelerator
    "box.one": "a box by one thread, past the registers",
    "box.blocks": "{boxes} boxes of {nbytes} bytes a row by one thread, past the registers",
    "box.narrower": (
        "{boxes} boxes of {nbytes} bytes a row, the last of each row of {last}, by one thread, "
        "past the registers"
    ),
    "box.flattened": "its rows lie one behind the other; no other thread computes where",
    "box.window": "its pixels are boxes in all their dimensions; no other thread computes where",
    "box.im2col": "its pixels are gathered in im2col mode; no other thread computes where",
    "box.machine": "it needs sm_90, {machine} is {arch}",
    "box.bound": "its threads are bound, one thread would have to make it",
    "box.scope": "it writes shared memory, '{buffer}' is in {scope}",
    "box.dtype": "it does not know elements of {dtype}",
    "box.rank": "it takes tensors of 2 to {most} dimensions, '{buffer}' has {rank}",
    "box.inner_stride": (
        "it moves neighbours, '{buffer}' has stride {stride} in its last dimension"
    ),
    "box.run_time_stride": (
        "its strides are multiples of {multiple} bytes, that of dimension {dimension} of "
        "'{buffer}' is known at run time only"
    ),
    "box.stride": (
        "its strides are multiples of {multiple} bytes, that of dimension {dimension} of "
        "'{buffer}' is {stride}"
    ),
    "box.long_stride": (
        "its strides have up to {most} bytes, that of dimension {dimension} of '{buffer}' has "
        "{stride}"
    ),
    "box.extent": (
        "its coordinates have 32 bits and reach {most} elements, dimension {dimension} of "
        "'{buffer}' has {extent}"
    ),
    "box.corner": "corners in {rank} dimensions are {least} to {most}, not {corner}",
    "box.offset": "offsets in {rank} dimensions are up to {most}, not {offset}",
    "box.step": "it takes steps of up to {most} pixels, not {step}",
    "box.order": "it keeps the order of dimensions, '{buffer}' has them as {dimensions:list}",
    "box.row": "a row of '{buffer}' has {nbytes} bytes, no multiple of {multiple}",
    "box.large": "a box has at most {most} {unit} in a dimension, '{buffer}' {extent}",
    # Stores
    "store.no_tile": "cannot store '{kernel}' by tma: it stores no accumulator's tile",
    "store.cluster": "cannot store '{store}' to a cluster: {why}",
    "parts.taken": (
        "{parts} CTAs are a cluster, each of which gets {rows:count row} of all parts "
        "and puts them together in their order; no workspace and no second kernel"
    ),
    "parts.none": "'{buffer}' is no workspace with parts of outputs, read by the next kernel alone",
    "parts.dtype": "parts have {nbytes} bytes, '{buffer}' has {dtype}",
    "parts.tile": "'{buffer}' gets no rows and columns of a tile",
    "parts.grid": (
        "parts are the CTAs along blockIdx.z, 2 to {most} of them, '{buffer}' has {parts}"
    ),
    "parts.not_each": "'{block}' makes no output of one element of each part of '{buffer}', once",
    "parts.rows": "{rows:count row} of a tile are no multiple of {parts} CTAs",
    "parts.read": "'{buffer}' is used before parts are put together",
    "parts.workspace": "a workspace is asked for, and a second kernel",
    "parts.multicast": "CTAs of a cluster put parts together, {ctas} are to copy for each other",
    "parts.persistent": "a CTA has several tiles, whose parts would be in the same place",
    "parts.no_room": "{nbytes:count byte} for parts leave no room for {slots:count slot}",
    "store.by_warp": "a warpgroup fills its boxes, {instruction} is a warp's",
    "store.direct": "from registers, not by TMA: {why}",
    "store.not_by_tma": "not by TMA: {why}",
    "store.by_rows": "{boxes:count box} a warpgroup, whose rows neighbouring threads write",
    "store.boxes": "{boxes:count box} a warpgroup, written while it computes on",
    "store.boxes_added": "{boxes:count box} a warpgroup, added while it computes on",
    "store.stmatrix": "stmatrix fills 8 rows without bank conflicts",
    "store.no_producer": "no producer warp copies for what computes it",
    "store.pairs": "stmatrix does not transpose rows that lie in pairs",
    "store.few": ("{cycles:.0f} cycles of uncoalesced stores of a tile are fewer than boxes take"),
    "store.no_room": (
        "a box of {box:by} for each of {groups:count warpgroup}, {nbytes} bytes, leaves too little "
        "shared memory for {slots} slots"
    ),
    "store.copied": "'{buffer}' is copied from too",
    "store.dtype": "stmatrix stores elements of {nbytes} bytes, '{buffer}' has {dtype}",
    "store.halves": "the accumulator lies in registers in pairs of halves",
    "store.rows": "a box has at most {most} rows, a warpgroup {rows}",
    "partial_sums.direct": "only TMA adds, stores are to be direct",
    "partial_sums.direct_store": (
        "only TMA adds to what others add to at the same time, '{store}' is to be direct"
    ),
    "partial_sums.integers": (
        "partial sums are added as they come, which changes no sum of integers"
    ),
    "partial_sums.rounded": (
        "{parts} partial sums are rounded to {dtype} and added as they come: the last bits differ "
        "from run to run"
    ),
}
