"""How do I compile a whole model of PyTorch?

ResNet-50 with random weights: imported by TVM, batch norms folded, laid out with channels
innermost, converted to halves, and scheduled, with each bias, residual and activation in the kernel
of the convolution before it. Where PyTorch is missing, it says so.

    python examples/resnet50.py                        one image of 64 x 64
    python examples/resnet50.py --batch 32 --size 224  the usual size
    python examples/resnet50.py --save resnet.json.gz  the imported module without its weights, for
    python examples/resnet50.py --load resnet.json.gz  a machine whose TVM has no importer
    python examples/resnet50.py --batch 32 --size 224 --bench   timed on this GPU, beside PyTorch
"""

from __future__ import annotations

import argparse
import collections
import copy
import gzip
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tvm

from pipeliner import meta, plan_of
from pipeliner.bench.models import ModelBench, exactly, graphed, ways_of_torch
from pipeliner.relax import Schedule, prepared
from pipeliner.toolchain import nvcc

BLOCKS = (3, 4, 6, 3)
MODES = ("eager", "reduce-overhead", "max-autotune")


def resnet(blocks: tuple[int, ...] = BLOCKS, seed: int = 0) -> Any:
    """The model, for images with channels innermost, with weights that keep values small."""
    import torch
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)),
                *(nn.ReLU(), nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
            )
            self.short: nn.Module = nn.Identity()
            if channels != 4 * width or stride != 1:
                conv = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
                self.short = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

        def forward(self, x: Any) -> Any:
            return (self.body(x) + self.short(x)).relu()

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
            self.stem = nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1))
            widths = [64 << at for at, count in enumerate(blocks) for _ in range(count)]
            channels = [64, *(4 * width for width in widths)]
            strides = [2 if 4 * w == 2 * c else 1 for c, w in zip(channels, widths)]
            made = map(Bottleneck, channels, widths, strides)
            self.blocks = nn.Sequential(*made)
            self.classes = nn.Linear(channels[-1], 1000)

        def forward(self, images: Any) -> Any:
            x = self.blocks(self.stem(images.permute(0, 3, 1, 2)))
            return self.classes(x.mean((2, 3)))

    torch.manual_seed(seed)
    model = ResNet().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as if trained, of few values: they save small
            module.running_mean.copy_(torch.randint(-8, 9, module.running_mean.shape) / 32)
            module.running_var.copy_(torch.randint(16, 49, module.running_var.shape) / 32)
            module.bias.data.copy_(torch.randn_like(module.bias) / 8)
    return model


def imported(model: Any, images: tuple[int, ...]) -> Any:
    """The relax module, whose weights are parameters."""
    import torch
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.torch import from_exported_program

    program = torch.export.export(model, (torch.zeros(images),))
    options = {"keep_params_as_input": True, "unwrap_unit_return_tuple": True}
    return detach_params(from_exported_program(program, **options))[0]


def weights(model: Any) -> dict[str, Any]:
    """The values of those parameters, by the names that the importer gives them."""
    return {
        "p_" + name.replace(".", "_"): tvm.runtime.tensor(value.detach().numpy())
        for name, value in model.named_parameters()
    }


def bench(
    model: Any, shape: tuple[int, ...], scheduled: Any, target: Any, *, kernels: bool
) -> None:
    """Print times and errors of the module's kernels and of PyTorch's, one after the other.

    An error is the largest difference from what float64 gives for the same images of halves.
    """
    import torch
    from tvm import relax

    torch.backends.cudnn.benchmark = True
    with nvcc.for_tvm(), target:
        built = tvm.compile(scheduled, target, tir_pipeline="pipeliner")
    machine = relax.VirtualMachine(built, tvm.cuda())
    images = torch.randn(shape, generator=torch.Generator().manual_seed(1)).half().cuda()
    half = copy.deepcopy(model).cuda().half().to(memory_format=torch.channels_last)
    given = tvm.runtime.from_dlpack(images)
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    ours = graphed(lambda: torch.from_dlpack(machine["main"](given)))
    timed = ModelBench(exactly(copy.deepcopy(model).cuda(), images), kernels)
    timed.beside(ours, ways_of_torch(half, images, MODES), "ours in a CUDA graph")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCKS)
    parser.add_argument("--target", help="by default that of this GPU with --bench, else h100")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--kernels", action="store_true", help="with --bench, the slowest kernels")
    asked = parser.parse_args()
    model = resnet(tuple(asked.blocks))
    if asked.load:
        mod = tvm.ir.load_json(gzip.decompress(asked.load.read_bytes()).decode())
    else:
        mod = imported(model, (asked.batch, asked.size, asked.size, 3))
    if asked.save:
        asked.save.write_bytes(gzip.compress(tvm.ir.save_json(mod).encode(), 9))
        print(f"saved: {asked.save.stat().st_size / 1000:.0f} kB")
        return
    start = time.process_time()
    ready = prepared(mod, weights(model), half_inputs=True)
    between = time.process_time()
    target = meta.target(asked.target or (None if asked.bench else "h100"))
    scheduled = Schedule(target)(ready)
    print(f"prepared in {between - start:.1f} s of CPU time")
    print(f"scheduled in {time.process_time() - between:.1f} s of CPU time")
    kernels = [one for one in scheduled.functions.values() if isinstance(one, tvm.tirx.PrimFunc)]
    ours = [one for one in kernels if "pipeliner.plan" in one.attrs]
    print(f"kernels: {len(kernels)}, of which ours: {len(ours)}")
    how = collections.Counter(plan_of(one).matmuls[0].instruction.split(".")[0] for one in ours)
    print("instructions:", dict(how))
    if asked.bench:
        import torch

        shape = tuple(int(extent) for extent in mod["main"].params[0].ty.shape.values)
        with torch.no_grad():
            bench(model, shape, scheduled, target, kernels=asked.kernels)


if find_spec("torch") is None:
    print("kernels: none, PyTorch is missing")
elif __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch.export's own
    main()
