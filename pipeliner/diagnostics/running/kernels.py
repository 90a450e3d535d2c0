"""Sentences about functions and kernels: how they are given, run, compared and exported."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "function.type": "expected a PrimFunc, a Schedule or an IRModule, not {type}",
    "function.one": "expected a module with one PrimFunc, not {count} ({names})",
    "function.option": "there is no option {option!r}",
    "function.pipelined": "cannot apply {options:list}: the function is pipelined already",
    "kernel.no_cuda": "cannot show CUDA of '{kernel}': nothing in it is bound to threads",
    "kernel.export": "cannot export '{kernel}' to '{path}': {why}",
    "kernel.no_gpu": (
        "cannot run '{kernel}': no GPU is visible; kernel.emulate(...) runs it on the CPU"
    ),
    "kernel.other_gpu": ("cannot run '{kernel}': it is compiled for {arch}, the GPU is {present}"),
    "kernel.mixed_arrays": "expected numpy arrays only, or arrays of the GPU only, not both",
    "kernel.overlap": (
        "cannot copy argument #{argument} to the GPU: it overlaps argument #{written}, which is "
        "written"
    ),
    "kernel.signature": (
        "cannot build '{kernel}' from this CUDA: expected '{expected}', it has {found:quoted}"
    ),
    "kernel.no_signature": (
        "cannot build '{kernel}' from this CUDA: expected '{expected}', it has no kernel at all"
    ),
    "arguments.count": "expected arguments {names}, not {count} of them",
    "arguments.extents": (
        "cannot make an argument for '{argument}': its shape is not static, and extents has no "
        "{names}"
    ),
    "tolerance.numbers": "expected a tolerance of RTOL or RTOL, ATOL, not {value}",
    "tolerance.negative": "expected tolerances to be at least 0, not {rtol:g} and {atol:g}",
    "relax.axes": "expected two matrices or two batches, not {a} and {b} axes",
    "relax.batches": "expected batches of one size, and only the rows of A to be symbolic",
    "relax.mask": "expected attention without a mask, or with that of earlier keys, not {mask}",
    "relax.types": "expected operands of one type, not {a} and {b}",
    "relax.layouts": "expected layouts NHWC, OHWI and NHWC, not {layouts}",
    "relax.extents": "expected all extents to be known",
    "relax.shape": "expected tensors of a known shape",
    "relax.axis": "expected axis {axis} to be known",
}
