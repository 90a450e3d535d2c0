"""Sentences about copies and stores: what a mechanism can move, and what it cannot."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Copies by the threads that use them
    "copy.by_registers": "cannot move copy '{copy}' through registers: {why}",
    "copy.no_share": "loop '{loop}' of a thread's share does not run from 0 to a fixed extent",
    "copy.share": "a thread's share is {elements:count element}, {most} at most go ahead",
    "copy.loads_nothing": "it loads nothing from global memory that its loop does not write",
    "copy.asks_itself": "its condition loads what its loop writes",
    "copy.has_buffers": "its block has buffers or an initial value",
    "copy.inseparable": "there is a {statement} in it",
    "copy.chunks": (
        "cannot split copy '{copy}' into {chunks} chunks: a thread makes it in {rounds:count round}"
    ),
    "copy.vthread": "'{buffer}' is a vthread's own",
    "copy.unread": "nothing reads '{buffer}'",
    # cp.async
    "copy.cp_async": "cannot copy '{copy}' by cp.async: {why}",
    "cp_async.no_copy": "a {statement} is no copy",
    "cp_async.computes": ("it does more than move elements of a global buffer to '{buffer}'"),
    "cp_async.converts": "it changes the type from {source} to {dtype}",
    "cp_async.mask": (
        "it moves 4, 8 or 16 bytes, here what to leave out begins or changes inside {nbytes}"
    ),
    "cp_async.bytes": (
        "it moves 4, 8 or 16 bytes, here {aligned} bytes are provably aligned and {contiguous} "
        "contiguous"
    ),
    # Copies that a producer warp issues
    "producer.no_copy": "it is no copy of a box",
    "producer.no_mbarriers": "it has no pair of mbarriers",
    "producer.fence": "the kernel {fence}, which a producer warp would not",
    "producer.filled_twice": "'{other}' fills '{buffer}' too",
    "producer.written": "the kernel writes '{buffer}'",
    # The tensor memory accelerator
    "tma.partial_box": "it copies whole boxes, '{buffer}' only where {condition}",
    "tma.strides": "it takes a tensor without gaps, '{buffer}' has strides of its own",
    "tma.index": ("it takes dimension {dimension} of '{buffer}' one by one, not by {index}"),
    "tma.mask": "it fills with zero outside '{buffer}', not {condition}",
    "tma.both": "{tiled}; as im2col, {im2col}",
    "tma.coordinates": (
        "cannot copy '{buffer}' by the tensor memory accelerator: its coordinates reach {most} "
        "elements, {extent} is more"
    ),
    "im2col.rank": "it takes pixels of 1 to 3 dimensions by channels",
    "im2col.size": "the size of '{buffer}' is known at run time only",
    "im2col.walk": "'{buffer}' is not walked pixel by pixel in {index}",
    "im2col.pixels": "it counts up to {most} pixels, '{buffer}' has {pixels}",
    "im2col.count": "its pixels are not counted one by one: {index}",
    # Stores
    "store.tma": "cannot store '{store}' by tma: {why}",
    "store.coalesced": "cannot store '{store}' coalesced: {why}",
    "store.joined": "threads write rows of '{buffer}' itself, not of dimensions put together",
    "store.no_holder": "no warpgroup holds its tile",
    "store.dimensions": "it writes boxes, rows or columns of the tile are several dimensions",
    "store.walk": "it writes boxes, the tile is not walked row by row",
    "store.reads": "it writes '{buffer}', which the same block reads",
    "store.scattered": "it writes boxes, the elements of '{buffer}' are scattered",
    "store.part": "it writes boxes, {stored} of {whole} {lines} of the tile are stored",
    "store.mask": "it leaves out what is outside '{buffer}', not {condition}",
    "store.adds_nothing": "cannot add '{store}' to '{buffer}': it is stored there",
    "store.adds_alone": (
        "cannot add to '{buffer}' in '{block}': others do so at the same time, and the plan does "
        "not have it added by tma"
    ),
    # Partial sums
    "partial_sums.refused": "cannot add the partial sums of '{kernel}' atomically: {why}",
    "partial_sums.none": "no kernel sums parts that one before it stores",
    "partial_sums.several": "'{block}' makes one output of the sums of {names:list}",
    "partial_sums.no_sum": "'{block}' stores {value}, which is no sum of parts",
    "partial_sums.dtype": (
        "'{buffer}' holds {dtype}, which memory cannot add: it can {dtypes:list}"
    ),
    # Clusters
    "cluster.refused": "cannot make clusters of {ctas} CTAs: {why}",
    "cluster.grid": "the grid along x is {extent}, no multiple of that",
    "cluster.dynamic_grid": "the grid along x is known at run time only",
    "cluster.trip": "loop '{loop}' has {trip} iterations, not the same for all of them",
    "cluster.nothing_shared": (
        "no tile is the same for neighbours and has rows for each of them to copy, whole fours in "
        "boxes alike"
    ),
}
