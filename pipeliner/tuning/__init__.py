"""Search for the fastest kernel of a workload, and keep everything that is measured on the way.

tuned = pipeliner.tune(Gemm(4096, 4096, 4096), trials=32, db="tuned.sqlite")
kernel = pipeliner.build(Gemm(4096, 4096, 4096), db="tuned.sqlite")

A function of the user's is tuned likewise: a PrimFunc, a Schedule, or what makes one of knobs.
"""

from .autotuned import Autotuned, autotune
from .session import Progress
from .space import Point, space
from .subjects import LeftOut, TuningSubject, subject_of
from .tuner import TRIALS, Tuned, on_gpus, ranked, records_path, tune

__all__ = [
    "TRIALS",
    "Autotuned",
    "LeftOut",
    "Point",
    "Progress",
    "Tuned",
    "TuningSubject",
    "autotune",
    "on_gpus",
    "ranked",
    "records_path",
    "space",
    "subject_of",
    "tune",
]
