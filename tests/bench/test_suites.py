"""The suites as published: names, sizes, and the arithmetic in them."""

from __future__ import annotations

import pytest

from pipeliner.bench import suite
from pipeliner.errors import WorkloadError
from pipeliner.schedules.suites import NAMES, OF_ATTENTION
from tests.refusals import refused


def test_gemms() -> None:
    gemms = suite("gemm", "bf16")
    assert len(gemms) == 13
    assert {(gemm.dtype, gemm.layout) for gemm in gemms.values()} == {("bfloat16", "NT")}
    assert gemms["llama_up"].flops() == gemms["llama_down"].flops() == 2 * 4096 * 4096 * 14336
    assert gemms["longk"].shapes() == ((256, 65536), (256, 65536), (256, 256))


def test_convolutions() -> None:
    convs = suite("conv", "fp16")
    assert len(convs) == 11
    sizes = {label: conv.out_size[0] for label, conv in convs.items()}
    assert sizes == {
        "rn50_stem": 112,
        "rn50_3x3_56": 56,
        "rn50_3x3_28": 28,
        "rn50_3x3_14": 14,
        "rn50_3x3_7": 7,
        "rn50_3x3_s2": 28,
        "rn50_1x1_56": 56,
        "rn50_1x1_s2": 28,
        "vgg_3x3_224": 224,
        "vgg_3x3_28": 28,
        "unet_3x3_64": 64,
    }
    # 3x3 layers of a ResNet-50 stage cost the same in every stage: half the size, twice the width
    stages = {convs[f"rn50_3x3_{size}"].flops() for size in (56, 28, 14, 7)}
    assert stages == {2 * 32 * 56 * 56 * 64 * 64 * 9}
    assert convs["rn50_stem"].shapes() == ((32, 224, 224, 3), (64, 7, 7, 3), (32, 112, 112, 64))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_ATTENTION])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "tf32", "int8"])
def test_every_type(name: str, dtype: str) -> None:
    specs = suite(name, dtype)
    assert len({spec.name for spec in specs.values()}) == len(specs)


def test_what_is_no_suite() -> None:
    with refused("bench.suite", WorkloadError, choices=NAMES, value="lstm"):
        suite("lstm")
    with refused("workload.dtype", WorkloadError):
        suite("conv", "fp12")
