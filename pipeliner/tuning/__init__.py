"""Search for the fastest kernel of a workload, and keep everything that is measured on the way.

tuned = pipeliner.tune(Gemm(4096, 4096, 4096), trials=32, db="tuned.sqlite")
kernel = pipeliner.build(Gemm(4096, 4096, 4096), db="tuned.sqlite")
"""

from .session import Progress
from .space import Point, space
from .tuner import TRIALS, Tuned, on_gpus, ranked, records_path, tune

__all__ = [
    "TRIALS",
    "Point",
    "Progress",
    "Tuned",
    "on_gpus",
    "ranked",
    "records_path",
    "space",
    "tune",
]
