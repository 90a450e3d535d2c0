"""Sentences about workloads: types, extents, layouts and epilogues that make no sense."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "workload.dtype": "expected dtype to be one of {choices}, not {value!r}",
    "workload.accumulator": ("cannot accumulate {dtype} in {value!r}: expected one of {choices}"),
    "workload.out": "cannot store a result of {dtype} as {value!r}: expected one of {choices}",
    "workload.layout": "expected layout to be one of {choices}, not {value!r}",
    "workload.extent": "expected {name} to be an integer of at least {least}, not {value}",
    "workload.large_extent": "expected {name} to be at most {most}, not {value}",
    "epilogue.step": "expected each epilogue step to be one of {choices}, not {value!r}",
    "epilogue.integers": "cannot apply {step} to sums of type {accumulator}",
    "epilogue.twice": "expected each epilogue step once, not {steps}",
    "attention.dtype": "expected attention on one of {choices}, not {value!r}",
    "attention.heads": (
        "cannot share {kv_heads:count head} of keys and values equally among {heads:count head} of "
        "queries"
    ),
    "attention.first": "expected a first head of 0 to {most} of BSHD tensors, not {value}",
    "attention.scale": "expected scores to be multiplied by a positive number, not {value}",
    "back_to_back.columns": (
        "expected back to back GEMMs with {name} a multiple of {each}, not {value}"
    ),
    "back_to_back.dtype": "expected back to back GEMMs on one of {choices}, not {value!r}",
    "rows.dtype": "expected a GEMM with statistics of rows on one of {choices}, not {value!r}",
    "rows.statistic": "expected one of {choices} as the statistic of rows, not {value!r}",
    "grouped.dtype": "expected a grouped GEMM on one of {choices}, not {value!r}",
    "grouped.experts": "expected at most {most} experts, not {experts}",
    "packed.dtype": "expected packed weights beside one of {choices}, not {value!r}",
    "packed.run": "expected a K of whole runs of {run} weights, which four words have, not {k}",
    "back_to_back.splits": "expected splits of {steps} steps that all have some, not {splits}",
    "packed.splits": "expected splits that divide {groups} groups of K, not {splits}",
    "scaled.dtype": "expected a block-scaled GEMM on one of {choices}, not {value!r}",
    "gated.plain": "{workload}: a gated GEMM has no epilogue and no weights of another type",
    "gemm.weights": (
        "cannot multiply {dtype} by weights of type {weights!r}: expected int8 weights with one of "
        "{choices}"
    ),
    "gemm.symbolic_m": "expected a value for m: '{workload}' leaves it to run time",
    "conv.dimensions": "expected a convolution of 1 to 3 dimensions, not {dimensions}",
    "conv.numbers": "expected {counts:or} numbers for {name}, not {found}",
    "conv.extents": "expected {name} to have {dimensions} dimensions as size has, not {found}",
    "conv.groups": "cannot split {channels} {side} channels into {groups} groups",
    "conv.empty": (
        "cannot convolve to an empty output: {name} is {size} and padded by {low} + {high}, the "
        "kernel covers {reach}"
    ),
    "conv.not_depthwise": (
        "expected a depthwise convolution, not {groups:count group} of {channels:count channel}"
    ),
    "conv.fold": (
        "cannot fold the kernel's last dimension of '{workload}' into its channels: that takes "
        "channels innermost, one group, more than one position and no dilation"
    ),
    "conv.fold_gradient": (
        "cannot compute '{workload}' by phases of its stride: that takes channels innermost, sizes "
        "that a stride above 1 divides, and no common factor of stride and dilation"
    ),
    "conv.stride_phases": (
        "{phases} phases of the stride, each over kernel positions of its own: {taken} in all "
        "instead of {of}"
    ),
    "conv.flipped": "without a stride the gradient is a convolution with the kernel flipped",
    "conv.weights_by_thread": (
        "a thread sums {positions:count position} of the kernel over {rows:count row} of outputs, "
        "and a second kernel adds the {parts} partial sums of each weight in a fixed order"
    ),
    "conv.own_phase": (
        "each pixel is summed over the kernel positions of its own phase of the stride "
        "{stride:by}: a region starts at a multiple of it"
    ),
    "conv.phases": (
        "cannot count the outputs of '{workload}' in {phases} phases: expected a divisor of its "
        "{row} outputs in a row"
    ),
    "conv.phases_unfolded": "cannot count '{workload}' in {phases} phases: it is not folded",
    "conv.by_image_folded": "cannot tile '{workload}' image by image: it is folded",
    "conv.by_image_gradient": "cannot tile '{workload}' image by image: it is a gradient",
    "conv.reordered": (
        "cannot write the operands of '{workload}' in another order first: that takes a "
        "convolution with channels outside the image"
    ),
    "conv.written_first": "written with channels innermost first, for tiles that are read in boxes",
    "gemm.reordered": (
        "cannot write operands of '{workload}' with longer rows first: all that are known begin at "
        "multiples of {nbytes} bytes"
    ),
    "gemm.rows_padded": (
        "written with rows {pitch} elements apart first, of {elements:count element} each, for "
        "tiles that are read in boxes or vectors"
    ),
    "conv.runs": ("each row is a run of {positions:count position} of {channels:count channel}"),
    "conv.runs_early": "a run begins up to {elements:count element} before its first position",
    "conv.runs_phases": "runs of outputs {phases} apart form one matmul",
    "conv.runs_aligned": "each run starts at a multiple of {elements} elements",
    "conv.gradient": "cannot differentiate '{workload}': expected no epilogue, not {step}",
}
