"""The GPUs that plans are made for, as frozen values; each constant names its source.

Capacities are what the vendor states; latencies and sustained rates come from published
microbenchmarks and stand until they are measured on the GPU at hand. Where nobody has published a
measurement, the constant is derived from a GPU of the same or the next architecture and says so.
Predictions were held against measurements on an H100 alone. Compared with a second source: SMs,
clocks and memory of A100, V100, T4 and L40S (vendors' tables), L2 latency of V100, and 96 MB of L2
of the L40S's chip (its own tables state 48 or 96). Not compared: the other latencies and rates.

Sources
-------
[1080Ti], [V100], [T4], [A100], [3090], [4090], [L40S], [H100], [H200]
    NVIDIA whitepapers and product pages: GeForce GTX 1080 (2016) with the page of the GTX 1080 Ti,
    Tesla V100 GPU Architecture (2017), Turing GPU Architecture (2018), A100 Tensor Core GPU
    Architecture (2020), Ampere GA102 GPU Architecture (2021), Ada GPU Architecture (2023), L40S
    datasheet (2023), H100 Tensor Core GPU Architecture (2022) with the product page's peak rates,
    H200 datasheet (2024).
[CC]
    CUDA C++ Programming Guide, technical specifications for each compute capability. Shared memory,
    threads, CTAs and registers of 6.1 to 9.0 were compared with ``cuda/__device/arch_traits.h`` of
    the toolkit 13.0: they agree.
[OCC]
    ``cuda_occupancy.h`` of the CUDA toolkit: what one CTA is charged (compared: 13.0).
[Luo]
    Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv 2402.13499:
    latencies and L2 throughput on RTX 4090, A100 and H800 PCIe, mma.sync rates.
[Jia]
    Jia et al., Dissecting the NVidia Turing T4 GPU via Microbenchmarking, arXiv 1903.07486, which
    compares a T4 with a P4 (sm_61), a P100 and a V100.
[Volta]
    Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, arXiv
    1804.06826.
[Graphs]
    NVIDIA, Getting Started with CUDA Graphs (2019): 0.9 us between kernels of 2.9 us on a V100.
[Sun]
    Sun et al., Dissecting Tensor Cores via Microbenchmarks, arXiv 2206.02874: mma.sync on A100.
"""

from .ampere import A100, L40S, RTX_3090, RTX_4090
from .earlier import GTX_1080_TI, T4, V100
from .file import SUFFIX, MachineFile, Measurement, read_machine, write_machine
from .find import MACHINES, NAMES, machine_for, model_of
from .hopper import H100, H200
from .values import MEASURED, WARP, Machine, MmaRate, key_of

__all__ = [
    "A100",
    "GTX_1080_TI",
    "H100",
    "H200",
    "L40S",
    "MACHINES",
    "MEASURED",
    "NAMES",
    "RTX_3090",
    "RTX_4090",
    "SUFFIX",
    "T4",
    "V100",
    "WARP",
    "Machine",
    "MachineFile",
    "Measurement",
    "MmaRate",
    "key_of",
    "machine_for",
    "model_of",
    "read_machine",
    "write_machine",
]
