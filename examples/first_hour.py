"""What does a first hour look like: my function tuned, my PyTorch model run, a page of the times?

    python examples/first_hour.py [FOLDER]     # files go to FOLDER, by default a temporary one

Each step says what it does on this machine. Without a GPU, candidates are ranked instead of timed,
and the page is made of a part of the log that ships. The emulator checks the kernel either way.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tvm import s_tir
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import ToolError
from pipeliner.records.candidate import describe
from pipeliner.records.log import SHIPPED
from pipeliner.report import report
from pipeliner.targets import cuda_target, gpu
from pipeliner.tuning import subject_of

M, N, K = 128, 256, 128
TRIALS, SHOWN = 12, 3

PLANNED = "h100"
"""The GPU that is planned for where there is none."""

PAGE_OF = ("decode16,float16", "rn50_3x3_14,float16")
"""Workloads of the shipped log on the page, where nothing was timed here."""


@T.prim_func(s_tir=True)
def layer(
    X: T.Buffer((M, K), "float16"),
    W: T.Buffer((K, N), "float16"),
    b: T.Buffer((N,), "float16"),
    Y: T.Buffer((M, N), "float16"),
):
    T.func_attr({"global_symbol": "layer", "tirx.noalias": True})
    total = T.sblock_alloc_buffer((M, N), "float32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                total[vi, vj] = T.float32(0)
            total[vi, vj] += T.Cast("float32", X[vi, vk]) * T.Cast("float32", W[vk, vj])
    for i, j in T.grid(M, N):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = T.Cast(
                "float16", T.max(total[vi, vj] + T.Cast("float32", b[vj]), T.float32(0))
            )


def tiled(rows=[64, 128, 96], columns=[64, 128], step=[32, 64]):  # noqa: B006
    """Each CTA makes ``rows`` x ``columns`` of the output, ``step`` of K at a time."""
    if M % rows:
        raise ValueError(f"{rows} rows do not divide {M}")
    sch = s_tir.Schedule(layer)
    block = sch.get_sblock("sum")
    i, j, k = sch.get_loops(block)
    by, i = sch.split(i, [None, rows])
    bx, j = sch.split(j, [None, columns])
    ko, k = sch.split(k, [None, step])
    sch.reorder(by, bx, ko, i, j, k)
    sch.bind(by, "blockIdx.y")
    sch.bind(bx, "blockIdx.x")
    sch.set_scope(block, 0, "local")
    for operand in (0, 1):
        sch.compute_at(sch.cache_read(block, operand, "shared"), ko)
    sch.reverse_compute_at(sch.get_sblock("relu"), bx)
    sch.decompose_reduction(block, ko)
    return sch


def tuned(target: str | None, times: bool, db: Path) -> Any:
    """2. The fastest of its settings and plans: timed, or else ranked by the model."""
    if times:
        found = pipeliner.tune(tiled, target, trials=TRIALS, db=db)
        best, left_out = describe(found.candidate), found.left_out
        print(f"{found.done} candidates timed, {found.failed} of them failed")
        print(f"the fastest: {best[0]}; asked: {best[1]}; {found.best.us:.1f} us")
        kernel = pipeliner.build(tiled, target, db=db)  # as any process may, from the records
    else:
        subject = subject_of(tiled, cuda_target(target))
        points = subject.ranked()
        print(f"{len(points)} candidates ranked by the model, none of them is timed here")
        for one in points[:SHOWN]:
            setting, asked = describe(one.candidate)
            print(f"  {one.predicted_us:.2f} us predicted: {setting}; asked: {asked}")
        best, left_out = points[0].candidate, subject.left_out
        kernel = pipeliner.build(tiled(**dict(best.tile.values)), target, **best.request.as_dict())
    print(f"{len(left_out)} settings left out, such as {left_out[0].knobs.told}: {left_out[0].why}")
    return kernel


def checked(kernel: Any, folder: Path) -> None:
    """3. Run every thread of it in the emulator, beside numpy; leave the CUDA to read."""
    rng = np.random.default_rng(0)
    shapes = (M, K), (K, N), (N,)
    x, w, b = (rng.standard_normal(shape).astype("float16") for shape in shapes)
    outcome = kernel.emulate(x, w, b, np.zeros((M, N), "float16"))
    right = np.maximum(x.astype("float32") @ w.astype("float32") + b, 0)
    error = abs(outcome.outputs["Y"] - right).max()
    assert not outcome.hazards, outcome.hazards[0]
    assert error < 0.05, error
    print(f"emulated: no hazards, largest error {error:.3f} of values up to {right.max():.0f}")
    (folder / "layer.cu").write_text(kernel.cuda)
    print(f"CUDA: {folder / 'layer.cu'}")
    try:
        used = kernel.resources
        print(f"compiled: {used.registers} registers a thread, {used.spills} bytes spilled")
    except ToolError as err:
        print(f"not compiled: {err}")


def in_pytorch(has_gpu: bool) -> None:
    """4. A model of mine, its layers by kernels of this library."""
    if find_spec("torch") is None:
        print("skipped: PyTorch is missing; pip install torch, and run this again")
        return
    import torch

    import pipeliner.torch as pt

    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

        def forward(self, x: Any) -> Any:
            hidden = pt.linear(x, self.up.weight, self.up.bias).relu()
            return pt.linear(hidden, self.down.weight, self.down.bias)

    device = "cuda" if has_gpu and torch.cuda.is_available() else "cpu"
    model = Mine().to(device, torch.bfloat16)
    x = torch.randn(64, 256, device=device, dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fallbacks() has what they say
        mine = model(x)
    apart = (mine - model.down(model.up(x).relu())).abs().max()
    print(f"ran on {device}; largest difference from torch.nn.Linear {apart:.4f}")
    for reason, count in pt.fallbacks().items():
        print(f"  left to PyTorch, {count} times: {reason}")


def page(db: Path, folder: Path) -> None:
    """5. A page of what was measured, here or by who made this library."""
    if db.exists():
        source, log = db, ""
        print("of what was timed here:")
    else:
        lines = SHIPPED[PLANNED].read_text().splitlines(keepends=True)
        kept = (one for one in lines if one.startswith(("#", "workload,", *PAGE_OF)))
        source, log = folder / f"{PLANNED}.csv", PLANNED
        source.write_text("".join(kept))
        print(f"of {len(PAGE_OF)} workloads of the log that ships; all: `pipeliner report --log`")
    report(source, folder / "page.html", kernels=1, log=log)
    print(f"page: {folder / 'page.html'}")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="first-hour-"))
    folder.mkdir(parents=True, exist_ok=True)
    has_gpu = gpu() is not None
    times = has_gpu and find_spec("torch") is not None
    print("1. This machine")
    print("a GPU:", gpu() or f"none; planned for {PLANNED}, nothing is timed")
    print("PyTorch:", "found" if find_spec("torch") else "missing; timing and step 4 need it")
    print("2. A function of mine, tuned")
    kernel = tuned(None if has_gpu else PLANNED, times, folder / "tuned.sqlite")
    print("3. Its kernel, checked")
    checked(kernel, folder)
    print("4. A model of mine in PyTorch")
    in_pytorch(has_gpu)
    print("5. A page of times")
    page(folder / "tuned.sqlite", folder)


if __name__ == "__main__":
    main()
