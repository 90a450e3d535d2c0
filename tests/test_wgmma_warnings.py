"""What ptxas does to wgmma behind the code's back: that it is seen, and that our kernels are spared.

Where registers of a wgmma in flight are touched, ptxas waits for it, and where it finds no way to
keep several in flight it serialises all. It says so, in lines of its log that are no errors.
"""

from __future__ import annotations

from typing import Any

import pytest

import pipeliner
from pipeliner.bench.problems import describe
from pipeliner.explain.inspect import resource_lines
from pipeliner.machine import H100
from pipeliner.schedules import (
    ConvInputGrad,
    Gemm,
    GemmTile,
    default_tile,
    schedule_conv,
    schedule_gemm,
)
from pipeliner.schedules.suites import suite
from pipeliner.toolchain import nvcc

KINDS = """
#include <cstdint>

__device__ void begin(float (&d)[4]) {
  asm volatile("wgmma.fence.sync.aligned;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) :: "memory");
}

__device__ void multiply(float (&d)[4], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
               "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;");
}

__device__ void end(float* out, float (&d)[4]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) :: "memory");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

extern "C" __global__ void touched(float* out, uint64_t a, uint64_t b, int n) {
  float d[4] = {0, 0, 0, 0};
  begin(d);
  for (int i = 0; i < n; ++i) {
    multiply(d, a + i, b + i);
    d[0] += 1.0f;  // in flight
  }
  end(out, d);
}

extern "C" __global__ void unfenced(float* out, uint64_t a, uint64_t b, int n) {
  float d[4] = {0, 0, 0, 0};
  begin(d);
  for (int i = 0; i < n; ++i) multiply(d, a + i, b + i);
  end(out, d);
}

extern "C" __global__ void fenced(float* out, uint64_t a, uint64_t b, int n) {
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; ++i) {
    begin(d);
    multiply(d, a + i, b + i);
  }
  end(out, d);
}
"""

LOG = """\
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized \
due to wgmma pipeline crossing function boundary at a function call in the function 'first'
ptxas info    : (C7519) warpgroup.arrive is injected in around line 60 by compiler to allow use \
of registers in GMMA in function 'second'
ptxas info    : (C7517) warpgroup.wait is injected in around line 65 by compiler to allow use of \
registers defined by GMMA in function 'second'
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Used 168 registers, used 2 barriers
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compiling entry function 'third' for 'sm_90a'
ptxas info    : Used 10 registers, used 0 barriers
"""
"""As ptxas words it, with another of its reasons."""


def test_the_log_tells_which_kernel_it_is_about() -> None:
    first, second, third = nvcc.resources(LOG)
    assert first.serialised == "wgmma pipeline crossing function boundary at a function call"
    assert first.wgmma_warning.startswith("each waits for the one before (wgmma pipeline crossing")
    assert "1.24 times as long" in first.wgmma_warning
    assert (second.serialised, second.injected) == ("", 2)
    assert second.wgmma_warning.startswith("ptxas put 2 fences and waits between them")
    assert third.wgmma_warning == ""


@pytest.mark.nvcc
def test_what_ptxas_does_is_caught() -> None:
    found = nvcc.resources(nvcc.compile_cuda(KINDS, "sm_90a", "cubin").log)
    used = {one.kernel: one for one in found}
    assert "insufficient register resources" in used["touched"].serialised
    assert used["touched"].wgmma_warning.startswith("each waits for the one before")
    assert (used["unfenced"].serialised, used["unfenced"].injected > 0) == ("", True)
    assert used["fenced"].wgmma_warning == ""


@pytest.mark.nvcc
def test_a_user_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = pipeliner.build(schedule_gemm(Gemm(128, 64, 64), GemmTile(64, 64, 64)), "h100")
    assert not any("wgmma" in line for line in resource_lines(kernel))
    assert "wgmma" not in describe(kernel)
    log = LOG.replace("'first'", f"'{kernel.resources.kernel}'")
    found = kernel.resources_in(
        log.partition("ptxas info    : Compiling entry function 'second'")[0]
    )
    monkeypatch.setattr(kernel, "all_resources", found)
    (line,) = [line for line in resource_lines(kernel) if "wgmma" in line]
    assert "wgmma                  each waits for the one before" in line
    assert "wgmma: each waits for the one before" in describe(kernel)


LARGE = (4096, 4096, 4096)
PING_PONG = {"consumers": "ping-pong"}
BY_LANE = {"operand": "registers"}
GUARDED = {"mechanism": "cp_async", "epilogue": "rolled", "depth": 3}

KERNELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "float16": (Gemm(*LARGE), None, {}),
    "bfloat16": (Gemm(*LARGE, dtype="bf16"), None, {}),
    "half sums": (Gemm(*LARGE, accumulator="float16"), None, {}),
    "tf32": (Gemm(*LARGE, dtype="tf32"), None, {}),
    "int8": (Gemm(*LARGE, dtype="int8"), None, {}),
    "fp8": (Gemm(*LARGE, dtype="e4m3"), None, {}),
    "weights of int8": (Gemm(*LARGE, weights="int8"), None, {}),
    "weights of int8, bfloat16": (Gemm(*LARGE, dtype="bf16", weights="int8"), None, {}),
    "promoted": (Gemm(*LARGE, dtype="e4m3"), None, {"accumulate": "promoted"}),
    "ping-pong": (Gemm(*LARGE), GemmTile(128, 192, 64, persistent=132), PING_PONG),
    "fp8 ping-pong": (
        Gemm(*LARGE, dtype="e4m3"),
        GemmTile(128, 192, 128, persistent=132),
        PING_PONG,
    ),
    "by registers": (Gemm(*LARGE), GemmTile(128, 128, 64), BY_LANE),
    "int8 transposed": (Gemm(*LARGE, dtype="int8", layout="NN"), None, {}),
    "fp8 transposed": (Gemm(*LARGE, dtype="e4m3", layout="TT"), None, {}),
    "tf32 transposed": (Gemm(*LARGE, dtype="tf32", layout="NN"), None, {}),
    "swap A/B": (Gemm(16, 4096, 4096), None, {}),
    "split-K": (Gemm(256, 256, 65536), None, {}),
    "ragged": (Gemm(4000, 4104, 4040), None, {}),
    "by cp.async": (Gemm(*LARGE), GemmTile(128, 128, 64), {"mechanism": "cp_async"}),
    "by cp.async, under guards": (Gemm(*LARGE), GemmTile(128, 256, 64), GUARDED),
    "by cp.async and registers": (Gemm(*LARGE), GemmTile(128, 128, 64), {**GUARDED, **BY_LANE}),
    "pixels": (suite("conv")["rn50_3x3_28"], None, {}),
    "gathered": (ConvInputGrad(suite("conv")["rn50_3x3_s2"]), None, {}),
}
"""Workload, tile (None: the default one) and what is asked for."""


@pytest.mark.part(30)
@pytest.mark.nvcc
@pytest.mark.parametrize("case", KERNELS)
def test_ptxas_leaves_our_wgmma_alone(case: str) -> None:
    spec, tile, asked = KERNELS[case]
    accumulate = asked.get("accumulate", "auto")
    tile = tile or default_tile(spec, H100, "wgmma", accumulate=accumulate)
    schedule = schedule_gemm if isinstance(spec, Gemm) else schedule_conv
    kernel = pipeliner.build(schedule(spec, tile), "h100", instruction="wgmma", **asked)
    assert "wgmma" in kernel.cuda
    assert [used.wgmma_warning for used in kernel.all_resources if used.wgmma_warning] == []
