"""The product of the options of which the tests run a covering set.

    python -m tests.verify.product --shard 2/8     the second of eight parts

GEMMs: schedule (instruction and mechanism) x dtype x layout x ragged edges x depth 1 to 6 x trip
count to depth + 2, from 1 where it is static and from 0 where only a run tells. The epilogue, the
GPU, the timing and the order of warps rotate. Then every function of the corpus with every
request, and every defect of every small convolution.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pipeliner.emulator.engine.scheduler import ORDERS
from pipeliner.emulator.units.cp_async import TIMINGS
from pipeliner.errors import PipelinerError

from ..schedules.conv_cases import CASES as CONVOLUTIONS
from . import corpus_requests
from .conv_mutation import check_mutants
from .corpus_requests import Asked
from .requirements import Refusal, refusal
from .runner import add_options, options_of, run
from .sweep import FACTORS, STATIC_SHAPES, Case, Mode, check

TILE: Final = (32, 16, 32)
"""Two warps share it, and one step of K is one to four steps of every instruction."""

SHAPES: Final = ("even", "ragged m", "ragged n", "ragged k", "ragged")

ROTATED: Final = {
    "epilogue": ("auto", "rolled", "clamped", "peeled"),
    "target": ("sm_80", "sm_90"),
    "timing": TIMINGS,
    "order": ORDERS,
}


def gemms() -> Iterator[tuple[Case, Mode]]:
    """A case and the mode of its run; a case with dynamic K stands for all trip counts."""
    rotated = {name: itertools.cycle(values) for name, values in ROTATED.items()}
    for dtype, layout, shape, depth, instruction, mechanism, dynamic in itertools.product(
        FACTORS["dtype"],
        FACTORS["layout"],
        SHAPES,
        range(1, 7),
        ("simt", "mma"),
        ("cp_async", "register"),
        (False, True),
    ):
        if dynamic and shape in STATIC_SHAPES:
            continue
        for trips in (0,) if dynamic else range(1, depth + 3):
            case = Case(
                dtype=dtype,
                layout=layout,
                tile=TILE,
                warps=(2, 1),
                shape=shape,
                trips=trips,
                dynamic=dynamic,
                depth=depth,
                mechanism=mechanism,
                instruction=instruction,
                target=next(rotated["target"]),
                epilogue=next(rotated["epilogue"]),
            )
            yield case, (next(rotated["timing"]), next(rotated["order"]))


def check_gemm(item: tuple[Case, Mode]) -> Counter[str]:
    """Count the runs that were ``right``, or 1 request that was ``refused`` as it should be."""
    case, mode = item
    expected = refusal(case)
    if expected is not None:
        return _refused(case, expected)
    kernel = case.kernel()
    trips = range(int(case.depth) + 3) if case.dynamic else (case.trips,)
    for count in trips:
        check(replace(case, trips=count), kernel, (mode,))
    return Counter({"kernels": 1, "right": len(trips)})


def _refused(case: Case, expected: Refusal) -> Counter[str]:
    try:
        case.kernel()
    except PipelinerError as err:
        if not expected.is_of(err):
            raise
        return Counter({"refused": 1})
    raise AssertionError(f"expected {expected}")


def requests() -> Iterator[Asked]:
    """Every function of the corpus with every depth, mechanism and epilogue."""
    rotated = {name: itertools.cycle(ROTATED[name]) for name in ("target", "timing")}
    varied = ("name", "depth", "mechanism", "epilogue")
    for values in itertools.product(*(corpus_requests.FACTORS[name] for name in varied)):
        asked = Asked(*values, target=next(rotated["target"]), timing=next(rotated["timing"]))
        if asked.is_possible:
            yield asked


def check_request(asked: Asked) -> Counter[str]:
    return Counter({corpus_requests.outcome(asked): 1})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    options = options_of(parser.parse_args())
    passed = [
        run("GEMMs", check_gemm, options.part(list(gemms())), options.jobs),
        run("corpus", check_request, options.part(list(requests())), options.jobs),
        run("defects", check_mutants, options.part(list(CONVOLUTIONS)), options.jobs),
    ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
