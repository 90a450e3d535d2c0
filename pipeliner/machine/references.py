"""What the sources of constants are short for: ``[CC]`` and the like."""

from __future__ import annotations

from typing import Final

REFERENCES: Final = {
    "1080Ti": "NVIDIA, GeForce GTX 1080 whitepaper (2016) and the page of the GTX 1080 Ti",
    "V100": "NVIDIA, Tesla V100 GPU Architecture (2017)",
    "T4": "NVIDIA, Turing GPU Architecture (2018)",
    "A100": "NVIDIA, A100 Tensor Core GPU Architecture (2020)",
    "3090": "NVIDIA, Ampere GA102 GPU Architecture (2021)",
    "4090": "NVIDIA, Ada GPU Architecture (2023)",
    "L40S": "NVIDIA, L40S datasheet (2023)",
    "H100": "NVIDIA, H100 Tensor Core GPU Architecture (2022) and the product page's peak rates",
    "H200": "NVIDIA, H200 datasheet (2024)",
    "B200": "NVIDIA, HGX B200 in the Blackwell datasheet (2024), and DGX B200's page: peak rates "
    "without sparsity of one of eight",
    "5090": "NVIDIA, RTX Blackwell GPU Architecture (2025), table of the GeForce RTX 5090",
    "Props": "what NVIDIA's driver reports of a B200: 148 SMs, 126.5 MB of L2, a bus of 7680 bits "
    "at 3996 MHz, as shown in pytorch/ao's pull request 4002 (2026)",
    "CC": "CUDA C++ Programming Guide, technical specifications for each compute capability; "
    "shared memory, threads, CTAs and registers of 6.1 to 12.0 agree with "
    "cuda/__device/arch_traits.h of the toolkit 13.0",
    "OCC": "cuda_occupancy.h of the CUDA toolkit 13.0: what one CTA is charged",
    "Luo": "Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv "
    "2402.13499: latencies and L2 throughput on RTX 4090, A100 and H800 PCIe, mma.sync rates",
    "Jia": "Jia et al., Dissecting the NVidia Turing T4 GPU via Microbenchmarking, arXiv "
    "1903.07486, which compares a T4 with a P4 (sm_61), a P100 and a V100",
    "Volta": "Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, "
    "arXiv 1804.06826",
    "Graphs": "NVIDIA, Getting Started with CUDA Graphs (2019): 0.9 us between kernels of 2.9 us "
    "on a V100",
    "Sun": "Sun et al., Dissecting Tensor Cores via Microbenchmarks, arXiv 2206.02874: mma.sync "
    "on A100",
}
"""Documents, by what stands for them in brackets."""
