"""Sentences about what kernels are measured against, on which GPU, and how that is drawn."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "bench.suite": "expected a suite of {choices}, not {value!r}",
    "chart.name": "cannot draw '{path}': expected a name that ends in .svg or .png",
    "chart.matplotlib": (
        "cannot draw '{path}': matplotlib is missing; pip install 'tvm-pipeliner[plot]', or ask "
        "for an .svg"
    ),
    "chart.empty": "cannot draw '{path}': no kernel was measured beside a library",
    "gpu.none": "cannot time kernels: no GPU is visible",
    "gpu.torch_missing": "cannot time kernels: PyTorch is missing; pip install torch",
    "gpu.torch_blind": "cannot time kernels: PyTorch sees no GPU",
    "peer.unknown": "expected peers of {choices}, not {value!r}",
    "peer.triton_missing": (
        "cannot run Triton's templates: Triton is not installed; pip install triton"
    ),
    "peer.triton_template": (
        "cannot run {workload} in Triton: inductor chose none of Triton's templates"
    ),
    "peer.triton_plain": (
        "cannot run {workload} in Triton through torch: expected a plain product or convolution "
        "whose output has the type of its inputs"
    ),
    "peer.forward": (
        "cannot run {workload} in {peer} through torch: expected a convolution or its gradient, "
        "no epilogue"
    ),
    "peer.types": (
        "cannot run {workload} in {peer} through torch: it has no {storage} -> {out} convolution"
    ),
    "peer.padding": (
        "cannot run {workload} in {peer} through torch: expected equal padding on both sides"
    ),
    "peer.cublas": (
        "cannot run {workload} in cuBLAS through torch: torch has no such product with out="
    ),
    "peer.torch": "cannot run {workload} by torch.compile: expected a gated GEMM",
    "peer.torch_grouped": "cannot run {workload} by torch._grouped_mm: expected a grouped GEMM",
    "peer.torch_packed": (
        "cannot run {workload} by {peer}: expected weights of 4 bits, beside bfloat16 for "
        "torch's own kernel"
    ),
    "peer.cublaslt": (
        "cannot run {workload} in cuBLASLt through torch: expected e4m3, layout NT, no batch, no "
        "epilogue"
    ),
    "peer.cublaslt_missing": "cannot run cuBLASLt: torch has not loaded {library}",
    "peer.cublaslt_status": "cannot run cuBLASLt: {call} returns status {status}",
    "peer.no_algorithm": "cannot run the vendor's library: none of {tried} ways runs: {why}",
    "peer.wrong": "{wrong:count result} of NaN, or that others do not have",
    "peer.product": (
        "cannot run {workload} in cuBLASLt: expected a plain product of types that it has"
    ),
    "peer.stock_dtype": (
        "cannot schedule TVM's stock pipeline for {workload}: expected {choices:or}"
    ),
    "peer.stock": (
        "cannot schedule TVM's stock pipeline for {workload}: expected {dtype}, layout NN, no "
        "batch, no epilogue"
    ),
    "peer.stock_multiples": (
        "cannot schedule TVM's stock pipeline for {workload}: expected M, N and K to be multiples "
        "of {m}, {n} and {k}"
    ),
}
