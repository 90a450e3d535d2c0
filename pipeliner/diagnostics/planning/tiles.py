"""Sentences about tiles of a workload, and about reductions that are split (split-K)."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "tile.integer": "expected tile {name} to be an integer, not {value}",
    "tile.pair": "expected tile {name} to be a pair of integers, not {value}",
    "tile.least": "expected tile {name} to be at least 1, not {value}",
    "tile.kind": "cannot tile '{workload}' by a {kind}",
    "tile.none": "cannot tile '{workload}' for {machine}: {why}",
    "tile.none_split": "cannot tile '{workload}' with {splits} splits for {machine}: {why}",
    "tile.no_plan": "none of its tiles has a plan there",
    "tile.passed": "a tile of {tile:by}, predicted to take {us:.1f} us, is not taken: {why}",
    "tile.passed_split": "in {splits} splits {passed}",
    "tile.slower": "its kernel takes {us:.1f} us",
    "tile.untimed": "of its kernel no time is predicted",
    "rows.many_tiles": (
        "'{workload}': a row has {tiles} tiles, and a second kernel combines at most {most}; "
        "take a wider tile"
    ),
    "scaled.columns": (
        "expected tile n to divide {block}, which share a scale, or to be a multiple, not {columns}"
    ),
    "tile.planes": (
        "cannot cut '{workload}' into regions of planes: that takes two dimensions, channels "
        "outside the image, one output of each channel, no epilogue, no integers, and extents that "
        "strides of a gradient divide"
    ),
    "tile.regions": (
        "cannot cut '{workload}' into regions of {vector} channels: expected two dimensions, "
        "channels innermost and a multiple of that, one output of each, floats, no epilogue, and "
        "weights that {most} bytes of shared memory hold"
    ),
    "tile.weights": (
        "cannot sum the weights of '{workload}' by thread: expected the gradient of the weights of "
        "a depthwise convolution of two dimensions, channels innermost, one output of each, "
        "floats, regions of at least a row, at most {most} sums of a thread, and {most_bytes} "
        "bytes of shared memory for those of a CTA"
    ),
    "tile.groups": (
        "cannot cut '{workload}' into rows of groups: expected two dimensions, channels innermost, "
        "as many outputs as inputs, 16-bit floats, no epilogue, groups that {block} channels are a "
        "multiple or a part of, a tile of whole groups, and at most {most} registers of weights "
        "and sums"
    ),
    "groups.faster": (
        "an input row is copied once for all groups and positions of {channels} channels: "
        "predicted {us:.1f} us instead of {whole_us:.1f} us with the best tile of a matmul, {whole}"
    ),
    "tile.depthwise": "cannot schedule '{workload}' channel by channel: expected a convolution",
    "tile.batch": "cannot give each output of '{workload}' a thread: it is a batch",
    "tile.batch_axes": ("cannot launch {count} independent matmuls: gridDim.z is at most {most}"),
    "tile.same_time": (
        "counts as fast as {other:by}, {us:.1f} us (within {percent:.1%}): with mbarriers, and its "
        "rings are as deep and its stores as wide as those of any such tile"
    ),
    "tile.same_wave": (
        "counts as fast as {other:by}, {us:.1f} us (within {percent:.1%}): CTAs are one wave, and "
        "of such tiles this one computes and copies least"
    ),
    "split.uneven": (
        "cannot split the reduction of '{workload}': its phases have different numbers of steps"
    ),
    "split.few_tiles": (
        "cannot split the reduction of '{workload}' into {splits}: it has {tiles:count tile} of "
        "{size}"
    ),
    "split.many_terms": (
        "cannot split the reduction of '{workload}' into {splits}: a sum has at most {most} terms"
    ),
    "split.no_matmul": "cannot split the reduction of '{workload}': it is no matmul",
    "tile.reordered_given": (
        "cannot write operands first in a function of your own: schedule '{workload}' itself"
    ),
    "split.given": (
        "cannot split the reduction of '{workload}': its function is given, with blocks of others"
    ),
    "split.faster": (
        "{tiles:count tile} keep {busy:.0%} of {sms} SMs busy; with split-K predicted {us:.1f} us "
        "instead of {whole_us:.1f} us with the best whole tile, {whole}"
    ),
    "split.keys": (
        "without splits {ctas:count CTA} keep {busy:.0%} of {sms} SMs busy; with {splits} of the "
        "keys predicted {us:.1f} us instead of {whole_us:.1f} us with the best whole tile, {whole}"
    ),
    "tile.short_steps": (
        "steps of {keys} keys, whose slots ask enough of memory, start earlier and leave less at "
        "the end than those of {other} keys, predicted {us:.1f} us"
    ),
    "split.combined": "combines what {splits} splits of the keys have of each query",
    "split.persistent": (
        "cannot split the keys of '{workload}' in {splits} and have persistent CTAs: they have all "
        "keys of several tiles"
    ),
    "split.causal": "cannot split or group '{workload}': its queries see different keys",
    "split.sum": "adds the {splits} partial sums of each output in a fixed order",
    "split.added": "starts each sum, to which {splits} parts are added in any order",
}
