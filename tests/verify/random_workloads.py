"""Random workloads of every kind by the tile that is chosen for them, compared with float64.

    python -m tests.verify.random_workloads --seed 7 --seconds 60              emulated, small ones
    python -m tests.verify.random_workloads --seed 7 --count 200 --gpu         run, as large as a GPU needs

Nothing is asked of their plans, so none may be refused. Exit status 1: one of them was, or is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pipeliner
from pipeliner.errors import PipelinerError, WorkloadError
from pipeliner.machine import machine_for
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate
from pipeliner.schedules import Attention, GatedGemm, Gemm, conv1d, conv2d, conv3d, default_tile
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.workloads import ConvInputGrad, ConvWeightGrad, Spec
from pipeliner.targets import accelerated, cuda_target
from pipeliner.verification.verdict import verify_workload

if TYPE_CHECKING:
    from pipeliner.measuring.compiling import BuiltCandidate

TARGETS = ("h100", "h200", "a100", "rtx4090", "b200", "t4")
FLOATS = ("float16", "float16", "bfloat16")


class Draw:
    """Draws workloads by a seed; ``large``: extents times so much."""

    def __init__(self, seed: int, large: int) -> None:
        self.rng = random.Random(seed)
        self.large = large

    def extent(self, most: int, step: int = 1) -> int:
        """A number up to ``most``, small ones more often; a multiple of ``step`` most of the time."""
        found = max(1, round(2 ** self.rng.uniform(0, (most * self.large).bit_length())))
        return found if self.rng.random() < 0.2 else max(step, found // step * step)

    def target(self, spec: Spec) -> str:
        """A GPU that has the type of ``spec``."""
        found = self.rng.choice(TARGETS)
        return "a100" if found == "t4" and spec.types.dtype == "tfloat32" else found

    def epilogue(self) -> tuple[str, ...]:
        steps = [one for one in ("bias", "residual") if self.rng.random() < 0.2]
        last = self.rng.choice(["", "", "relu", "gelu", "silu"])
        return (*steps, *([last] if last else []))

    def product(self) -> Spec:
        rng = self.rng
        dtype = rng.choice([*FLOATS, "float32", "tfloat32", "int8"])
        layout = "NT" if dtype == "int8" else rng.choice(("NT", "NT", "NN", "TN", "TT"))
        sizes = self.extent(128), self.extent(128, 8), self.extent(256, 8)
        batch = rng.choice([None, None, None, 2, 3])
        epilogue = () if dtype == "int8" else self.epilogue()
        return Gemm(*sizes, batch=batch, dtype=dtype, layout=layout, epilogue=epilogue)

    def convolution(self, rank: int) -> Any:
        rng = self.rng

        def each(*of: int) -> tuple[int, ...]:
            return tuple(rng.choice(of) for _ in range(rank))

        sides = [self.extent(12 if rank < 3 else 6) + 2 for _ in range(rank)]
        groups = rng.choice([1, 1, 1, 2, 4])
        c, k = (groups * self.extent(32, 8) for _ in "ck")
        if rng.random() < 0.15:  # depthwise
            groups = k = c
        options: dict[str, Any] = {
            "stride": each(1, 1, 2, 2, 3),
            "pad": tuple(rng.choice([0, 1, 1, 2]) for _ in range(2 * rank)),
            "dilation": each(1, 1, 1, 2),
            "groups": groups,
            "dtype": rng.choice(FLOATS),
        }
        if rank == 2 and rng.random() < 0.3:
            options["layout"] = "NCHW"
        make = {1: conv1d, 2: conv2d, 3: conv3d}[rank]
        return make(rng.choice([1, 2, 3]), *sides, c, k, *each(1, 2, 3, 3, 4, 5), **options)

    def layer(self) -> Spec:
        conv: Spec = self.convolution(self.rng.choice([1, 2, 2, 2, 3]))
        return conv

    def gradient(self) -> Spec:
        of = self.rng.choice((ConvInputGrad, ConvWeightGrad))
        found: Spec = of(self.convolution(self.rng.choice([1, 2, 2, 2, 3])))
        return found

    def gated(self) -> Spec:
        sizes = self.extent(96), self.extent(96, 8), self.extent(128, 8)
        return GatedGemm(
            *sizes, dtype=self.rng.choice(FLOATS), activation=self.rng.choice(["silu", "gelu"])
        )

    def attention(self) -> Spec:
        rng = self.rng
        heads, group = rng.choice([1, 2]), rng.choice([1, 1, 2, 4])
        queries, keys = self.extent(96), self.extent(128)
        dim, causal = rng.choice([16, 40, 64, 64, 72, 80, 96, 128]), rng.random() < 0.4
        sizes = 1, heads * group, queries, max(keys, queries) if causal else keys, dim
        return Attention(*sizes, kv_heads=heads, causal=causal, dtype=rng.choice(FLOATS))

    def workloads(self) -> Iterator[Spec]:
        kinds = (self.product, self.layer, self.gradient, self.gated, self.attention)
        chosen = self.rng.choices(kinds, (2, 4, 4, 1, 1), k=1 << 20)
        for kind in chosen:
            try:
                yield kind()
            except WorkloadError:  # a window larger than the image, and the like
                continue


class Found(NamedTuple):
    """What became of a workload. ``way``: how it was planned; ``why``: what is wrong, or ''."""

    spec: Spec
    way: str
    why: str = ""


def judged(spec: Spec, target: str) -> Found:
    """What became of ``spec`` on ``target``, emulated."""
    try:
        tile = default_tile(spec, machine_for(cuda_target(target)))
        kernel = pipeliner.build(scheduled(spec, tile), target, prove=False)
        verdict = verify_workload(kernel, spec)
    except PipelinerError as err:
        return Found(spec, "refused", f"{target}: {err}")
    way = " ".join(sorted({copy.mechanism for copy in kernel.plan.copies}))
    return Found(spec, way or "threads", "" if verdict.ok else f"{target}, {tile}: {verdict}")


def emulated(draw: Draw, seconds: float) -> Iterator[Found]:
    """What becomes of workloads, until the time is over."""
    end = time.monotonic() + seconds
    for spec in draw.workloads():
        if time.monotonic() > end:
            return
        yield judged(spec, draw.target(spec))


def run(draw: Draw, count: int, jobs: int) -> Iterator[Found]:
    """The same on this machine's GPU."""
    from pipeliner.measuring.compiling import Compiler
    from pipeliner.measuring.gpu_bench import GpuBench

    target = accelerated(cuda_target())
    machine = machine_for(target)
    compiler = Compiler(target, jobs)
    compiler.start()

    def built(spec: Spec) -> BuiltCandidate | Found:
        try:
            made = compiler.compile(spec, Candidate(default_tile(spec, machine), Request()))
        except PipelinerError as err:
            return Found(spec, "refused", str(err))
        return Found(spec, "failed", str(made.failure)) if made.failure else made

    specs = list(itertools.islice(draw.workloads(), count))
    with ThreadPoolExecutor(jobs) as pool, closing(compiler):
        for spec, made in zip(specs, pool.map(built, specs)):
            if isinstance(made, Found):
                yield made
                continue
            entry = GpuBench(spec).ready(made)
            yield Found(spec, "run", "" if entry.is_right else f"error / bound: {entry.worst}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="without a GPU")
    parser.add_argument("--count", type=int, default=200, help="on a GPU")
    parser.add_argument("--jobs", type=int, default=8, help="compilers")
    parser.add_argument("--gpu", action="store_true")
    asked = parser.parse_args()
    draw = Draw(asked.seed, 4 if asked.gpu else 1)
    found = run(draw, asked.count, asked.jobs) if asked.gpu else emulated(draw, asked.seconds)
    ways, wrong = Counter[str](), 0
    for one in found:
        ways[one.way] += 1
        if one.why:
            wrong += 1
            print(one, flush=True)
    for way, number in ways.most_common():
        print(f"{number:5d}  {way}")
    print(f"{sum(ways.values())} workloads, {wrong} wrong or refused")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
